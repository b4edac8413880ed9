"""NVIDIA GPUs through NVML.

``source.py`` reads in a worker thread, which is replaced when a call hangs. ``sweep.py`` reads all GPUs, and
puts what is known of it in the place of one that hangs or is lost; ``gpu.py`` reads one. ``driver/calls.py``
asks one question, within a time, and counts its errors.
"""

from exporter.nvml.driver.library import NvmlOptions
from exporter.nvml.source import NvmlSource

__all__ = ["NvmlOptions", "NvmlSource"]
