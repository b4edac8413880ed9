"""Totals of a container on a device since this exporter first saw it there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of a container on a device since it was first seen there.

    Peak, use, energy and last activity are None until the use has been measured once. The times are None
    without an allocation, and the measured ones 0 until then.
    """

    first_seen: float
    # Bytes; the largest memory use of all polls.
    memory_peak: int | None = None
    # Time of the allocation, and the part of it in which memory use was known.
    held_seconds: float | None = None
    memory_measured_seconds: float | None = None
    entitled_gpu_seconds: float | None = None
    # Entitlement and use over the time in which both were known.
    measured_gpu_seconds: float | None = None
    measured_use_gpu_seconds: float | None = None
    used_gpu_seconds: float | None = None
    energy_joules: float | None = None
    # Unix time of the last compute use; until the first one, when monitoring began.
    last_active: float | None = None
    # Whether ``last_active`` is the time of a use.
    seen_computing: bool = False
