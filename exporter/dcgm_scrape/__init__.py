"""A dcgm-exporter on the node as a source of profiling metrics, which NVML does not have before Hopper."""

from exporter.dcgm_scrape.page import DcgmError, DcgmReading, with_dcgm

__all__ = ["DcgmError", "DcgmReading", "with_dcgm"]
