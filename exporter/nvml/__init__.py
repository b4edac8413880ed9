"""NVIDIA GPUs through NVML, read by one worker thread."""

from exporter.nvml.driver.library import NvmlOptions
from exporter.nvml.source import NvmlSource

__all__ = ["NvmlOptions", "NvmlSource"]
