"""The thresholds of the group hardware."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareThresholds:
    """The section [hardware] of thresholds.toml, which explains each."""

    lost_for: str
    needs_reset_for: str
    needs_reboot_for: str
    throttled_for: str
    link_degraded_for: str
    missing_for: str
    remembered: str
    remembered_step: str
    released_for: str
    xid_window: str
    xid_burst: float
    ecc_corrected_per_hour: float
    fabric_for: str
    health_disagrees_for: str
    pcie_replays_per_minute: float
