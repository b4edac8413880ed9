"""What the devices of the node say: NVML, read by one worker thread, and AMD's sysfs by another."""

from exporter.hardware.lost import without_values
from exporter.hardware.options import NvmlOptions
from exporter.hardware.source import NvmlSource

__all__ = ["NvmlOptions", "NvmlSource", "without_values"]
