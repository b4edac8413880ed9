"""A dcgm-exporter on the node as a source: the profiling meters that NVML does not have before Hopper."""

from exporter.dcgm_scrape.errors import DcgmError
from exporter.dcgm_scrape.merge import with_dcgm
from exporter.dcgm_scrape.page import DcgmReading, Device

__all__ = ["DcgmError", "DcgmReading", "Device", "with_dcgm"]
