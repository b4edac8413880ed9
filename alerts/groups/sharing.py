"""Alerts of the group sharing."""

from dataclasses import dataclass

from alerts.model import Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingThresholds:
    """The numbers of this group, as they stand under [sharing] in thresholds.toml."""

    idle_after: str


def sharing_alerts(numbers: SharingThresholds) -> tuple[Alert, ...]:
    """Give the alerts."""
    return ()
