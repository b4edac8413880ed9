"""What the devices of the node say: NVML, read by one worker thread, and AMD's sysfs by another."""

from exporter.model.lost_gpu import without_values
from exporter.nvml.driver.library import NvmlOptions
from exporter.nvml.source import NvmlSource

__all__ = ["NvmlOptions", "NvmlSource", "without_values"]
