"""The thresholds of the alerts on capacity."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityThresholds:
    """The section [capacity] of thresholds.toml, which explains each."""

    mig_free_ratio: float
    mig_adjacent_ratio: float
    mig_fragmented_for: str
    mig_unallocated_for: str
    exhausted_for: str
    overcommit_ratio: float
    overcommitted_for: str
    replica_mismatch_for: str
    slices_unhealthy_for: str
    device_missing_for: str
    unlicensed_for: str
    license_expires_within: str
    license_unchanged_for: str
