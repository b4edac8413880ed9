"""The doctor: judges what the last poll had of each source, and reads nothing by itself."""

from exporter.doctor.checks import Doctor, examine

__all__ = ["Doctor", "examine"]
