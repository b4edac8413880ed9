"""The parameters of requests for history; errors have the allowed values."""

import re
from dataclasses import dataclass

from multidict import MultiMapping

from exporter.history import Wanted
from exporter.history.past import FIELDS
from exporter.history.ring import span_seconds

DEFAULT_SPAN = "1h"
DEFAULT_POINTS = 240
MOST_POINTS = 1440
SPANS = "a duration such as 5m, 1h, 6h or 7d, from 10s to 366d"
SPAN_PATTERN = (
    "([1-9][0-9]{1,5}s"
    "|([1-9][0-9]{0,4}|[1-4][0-9]{5}|5[01][0-9]{4}|52[0-6][0-9]{3}|5270[0-3][0-9]|527040)m"
    "|([1-9][0-9]{0,2}|[1-7][0-9]{3}|8[0-6][0-9]{2}|87[0-7][0-9]|878[0-4])h"
    "|([1-9][0-9]?|[12][0-9]{2}|3[0-5][0-9]|36[0-6])d)"
)
"""Allowed ranges as a regular expression, also for JSON Schema."""
LATEST = 253402300800
"""Unix time of the year 10000."""
LONGEST_NAMES = {"uuid": 100, "namespace": 63, "pod": 253, "container": 63}
"""Maximum lengths of names: limits of Kubernetes; UUIDs of the driver are shorter than theirs."""
_SHORTEST, _LONGEST = 10.0, 366 * 86400.0
# Non-negative numbers as in JSON.
_NUMBER = re.compile(r"[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")


class BadValueError(Exception):
    """A parameter is invalid; the message has its name and the allowed values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for history."""

    span: float  # seconds
    end: float | None  # Unix time, None for now
    points: int  # maximum number of steps
    wanted: Wanted


def asked_span(parameters: MultiMapping[str]) -> float:
    """Return the parameter ``range`` in seconds; raises BadValueError."""
    return span_of(_once(parameters, "range"))


def span_of(text: str | None) -> float:
    """Return a range in seconds, the default for None; raises BadValueError."""
    seconds = span_seconds(DEFAULT_SPAN if text is None else text)
    if seconds is None or not _SHORTEST <= seconds <= _LONGEST:
        raise BadValueError(f"range: write {SPANS}")
    return seconds


def read_ask(parameters: MultiMapping[str]) -> Ask:
    """Return the request of all parameters; raises BadValueError."""
    return Ask(
        span=asked_span(parameters),
        end=_end(_once(parameters, "end")),
        points=_points(_once(parameters, "points")),
        wanted=Wanted(
            levels=_levels(parameters.getall("level", [])),
            uuid=_name(parameters, "uuid"),
            holder=_holder(parameters),
        ),
    )


def _once(parameters: MultiMapping[str], name: str) -> str | None:
    values = parameters.getall(name, [])
    if len(values) > 1:
        raise BadValueError(f"{name}: write it once")
    return values[0] if values else None


def _end(text: str | None) -> float | None:
    if text is None:
        return None
    end = float(text) if _NUMBER.fullmatch(text) else -1.0
    if not 0 <= end <= LATEST:
        raise BadValueError("end: write a Unix time in seconds, such as 1767225600")
    return end


def _points(text: str | None) -> int:
    if text is None:
        return DEFAULT_POINTS
    if not re.fullmatch("[0-9]{1,4}", text) or not 1 <= int(text) <= MOST_POINTS:
        raise BadValueError(f"points: write a whole number from 1 to {MOST_POINTS}")
    return int(text)


def _levels(names: list[str]) -> frozenset[str]:
    levels = frozenset(names)
    if not FIELDS.keys() >= levels or len(names) > len(levels):
        raise BadValueError(f"level: write {', '.join(FIELDS)}, each at most once")
    return levels


def _name(parameters: MultiMapping[str], name: str) -> str:
    """Return a name, "" if it is absent; raises BadValueError."""
    text = _once(parameters, name)
    if text is not None and not 1 <= len(text) <= LONGEST_NAMES[name]:
        raise BadValueError(f"{name}: write 1 to {LONGEST_NAMES[name]} characters")
    return text or ""


def _holder(parameters: MultiMapping[str]) -> tuple[str, str, str] | None:
    namespace, pod, container = (_name(parameters, name) for name in ("namespace", "pod", "container"))
    if bool(namespace) != bool(pod):
        missing = "pod" if namespace else "namespace"
        raise BadValueError(f"{missing}: write it too; a holder needs namespace and pod")
    if container and not pod:
        raise BadValueError("container: write namespace and pod too")
    return (namespace, pod, container) if pod else None
