"""A dcgm-exporter on the node as a source: the profiling meters that NVML does not have before Hopper."""

from exporter.dcgm_scrape.page import DcgmError, DcgmReading, Device, with_dcgm

__all__ = ["DcgmError", "DcgmReading", "Device", "with_dcgm"]
