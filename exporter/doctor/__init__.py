"""The doctor: checks of each source, from the result of the last poll. It reads nothing itself."""

from exporter.doctor.checks import Doctor, examine

__all__ = ["Doctor", "examine"]
