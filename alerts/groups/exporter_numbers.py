"""The thresholds of the alerts on exporters."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterThresholds:
    """The section [exporter] of thresholds.toml, which explains each."""

    absent_for: str
    gone_after: str
    down_for: str
    known_for: str
    node_without_for: str
    scraped_twice_for: str
    labels_overwritten_for: str
    collector_failing_for: str
    collector_stale_after: str
    collector_slow_seconds: float
    collector_slow_for: str
    snapshot_unchanged_for: str
    pod_resources_for: str
    unattributed_ratio: float
    unattributed_used_bytes: float
    unattributed_for: str
    process_view_for: str
    pod_annotations_unreadable_for: str
    inconsistent_window: str
    inconsistent_polls: float
    nvml_errors_window: str
    nvml_errors: float
