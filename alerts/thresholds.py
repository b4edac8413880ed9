"""The thresholds of the rules, read from TOML."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from alerts.groups.capacity import CapacityThresholds
from alerts.groups.exporter import ExporterThresholds
from alerts.groups.hardware import HardwareThresholds
from alerts.groups.sharing import SharingThresholds

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
