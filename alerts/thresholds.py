"""The thresholds of the rules, read from TOML."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

STANDARD = Path(__file__).with_name("thresholds.toml")
_DURATION = re.compile(r"([0-9]+(ms|[smhdwy]))+")
Section = TypeVar("Section")


class ThresholdError(ValueError):
    """An invalid file of thresholds; the message names the file, the key and the valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesSettings:
    """Intervals and links of all rules."""

    interval: str
    slow_interval: str
    runbook_url: str
    grafana_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterThresholds:
    """The section [exporter] of the file, which explains each."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareThresholds:
    """The section [hardware] of the file, which explains each."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingThresholds:
    """The section [sharing] of the file, which explains each."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityThresholds:
    """The section [capacity] of the file, which explains each."""

    mig_free_ratio: float
    mig_adjacent_ratio: float
    mig_fragmented_for: str
    mig_unallocated_for: str
    exhausted_for: str
    waiting_for_idle_for: str
    overcommit_ratio: float
    overcommitted_for: str
    replica_mismatch_for: str
    slices_unhealthy_for: str
    device_missing_for: str
    unlicensed_for: str
    license_expires_within: str
    license_unchanged_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """All thresholds, by section."""

    rules: RulesSettings
    exporter: ExporterThresholds
    hardware: HardwareThresholds
    sharing: SharingThresholds
    capacity: CapacityThresholds


def load_thresholds(path: Path | None = None) -> Thresholds:
    """Return the standard thresholds, overridden by those of a file. Raises ThresholdError."""
    tables = _tables(STANDARD)
    if path is not None:
        for name, table in _tables(path).items():
            if name not in tables:
                raise ThresholdError(f"{path}: no section is called {name!r}; there are {', '.join(tables)}")
            tables[name] = tables[name] | table
    where = path or STANDARD
    return Thresholds(
        rules=_section(where, "rules", tables, RulesSettings),
        exporter=_section(where, "exporter", tables, ExporterThresholds),
        hardware=_section(where, "hardware", tables, HardwareThresholds),
        sharing=_section(where, "sharing", tables, SharingThresholds),
        capacity=_section(where, "capacity", tables, CapacityThresholds),
    )


def _tables(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ThresholdError(f"{path}: {error}") from error
    for name, table in found.items():
        if not isinstance(table, dict):
            raise ThresholdError(f"{path}: {name!r} is outside of a section such as [sharing]")
    return found


def _section(where: Path, name: str, tables: Mapping[str, Any], kind: type[Section]) -> Section:
    table = tables[name]
    known = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    for key, value in table.items():
        if key not in known:
            raise ThresholdError(f"{where}: [{name}] has no {key!r}; it has {', '.join(known)}")
        _check(where, f"[{name}] {key}", known[key], value)
    if missing := sorted(known.keys() - table.keys()):
        raise ThresholdError(f"{where}: [{name}] lacks {', '.join(missing)}")
    return kind(**table)


def _check(where: Path, key: str, kind: Any, value: object) -> None:
    """Raise ThresholdError unless a value fits its field: a duration, a URL (key ``*_url``) or a number."""
    if kind is not str:
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ThresholdError(f"{where}: {key} is {value!r}, and must be a number of 0 or more")
    elif not isinstance(value, str):
        raise ThresholdError(f"{where}: {key} is {value!r}, and must be text")
    elif not key.endswith("_url") and not _DURATION.fullmatch(value):
        raise ThresholdError(f"{where}: {key} is {value!r}, and must be a time such as 90s, 5m, 1h or 7d")
