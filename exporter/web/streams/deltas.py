"""What is new in one document of ``/api/v1/snapshot`` after another."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from exporter.metrics import LEVEL_LABELS, Level

Document: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]

LEVELS: Mapping[str, Level] = {
    "gpus": "gpu",
    "migs": "mig",
    "vgpus": "vgpu",
    "containers": "container",
    "pods": "pod",
    "collectors": "collector",
}
"""The lists whose objects are told apart by labels, and the level that has these."""
_ALWAYS = ("sequence", "timestamp")


def delta(old: Document, new: Document) -> dict[str, Any]:
    """Tell what is new, in the shape that ``exporter.web.streams.stream`` describes."""
    return {
        name: _told(name, old[name], value)
        for name, value in new.items()
        if name in _ALWAYS or old[name] != value
    }


def _told(name: str, old: Any, new: Any) -> Any:
    if isinstance(new, Mapping):
        return _changed(old, new)
    rows = _rows(LEVEL_LABELS[LEVELS[name]], old, new) if name in LEVELS else None
    return new if rows is None else rows


def _rows(labels: Sequence[str], old: Sequence[Row], new: Sequence[Row]) -> dict[str, Any] | None:
    """Tell of rows by their labels, None where these do not tell them apart."""
    before, after = _by_labels(labels, old), _by_labels(labels, new)
    if len(before) != len(old) or len(after) != len(new):
        return None
    new_ones = [key for key in after if key not in before]
    told: dict[str, Any] = {
        "changed": [
            _identity(labels, row) | _changed(before.get(key, {}), row)
            for key, row in after.items()
            if before.get(key) != row
        ],
        "gone": [_identity(labels, row) for key, row in before.items() if key not in after],
    }
    if list(after) != [key for key in before if key in after] + new_ones:
        told["order"] = [_identity(labels, row) for row in new]
    return told


def _by_labels(labels: Sequence[str], rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[label] for label in labels): row for row in rows}


def _identity(labels: Sequence[str], row: Row) -> dict[str, Any]:
    return {label: row[label] for label in labels}


def _changed(old: Row, new: Row) -> dict[str, Any]:
    return {name: value for name, value in new.items() if name not in old or old[name] != value}
