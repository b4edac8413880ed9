"""The thresholds of the alerts about sharing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingThresholds:
    """The section [sharing] of thresholds.toml, which explains each."""

    idle_after: str
    idle_memory_bytes: float
    fair_share_ratio: float
    fair_share_for: str
    limit_ratio: float
    limit_for: str
    unheld_memory_bytes: float
    unheld_for: str
    noisy_share_ratio: float
    noisy_busy_ratio: float
    noisy_neighbour_ratio: float
    noisy_for: str
    pressure_ratio: float
    pressure_for: str
    exhaust_ratio: float
    exhaust_within: str
    exhaust_span: str
    waste_efficiency_ratio: float
    waste_held_gpus: float
    waste_over: str
    underused_ratio: float
    underused_held_bytes: float
    underused_over: str
