"""What the devices of the node say: NVML, read by one worker thread."""

from exporter.hardware.lost import without_values
from exporter.hardware.source import NvmlSource

__all__ = ["NvmlSource", "without_values"]
