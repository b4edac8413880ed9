"""The thresholds of the group hardware."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareThresholds:
    """The section [hardware] of thresholds.toml, which explains each."""

    lost_for: str
    missing_for: str
    remembered: str
    remembered_step: str
    released_for: str
    xid_repair_window: str
    xid_window: str
    xid_burst: float
    recovery_for: str
    ecc_corrected_per_hour: float
    repair_pending_for: str
    slowdown_window: str
    slowdown_share: float
    thermal_window: str
    thermal_share: float
    temperature_margin: float
    temperature_for: str
    nvlink_down_for: str
    nvlink_retries_per_hour: float
    nvlink_crc_per_second: float
    fabric_for: str
    pcie_window: str
    pcie_idle_share: float
    pcie_replays_per_minute: float
