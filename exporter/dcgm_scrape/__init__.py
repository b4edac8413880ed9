"""A dcgm-exporter on the node as a source of profiling metrics, which NVML does not have before Hopper."""

from exporter.dcgm_scrape.page import DcgmDevice, DcgmError, DcgmReading, with_dcgm

__all__ = ["DcgmDevice", "DcgmError", "DcgmReading", "with_dcgm"]
