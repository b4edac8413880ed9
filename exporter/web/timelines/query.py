"""What is asked of the past, read from a URL; whoever asks wrongly is told what to write instead."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from multidict import MultiMapping

from exporter.history import Wanted
from exporter.history.past import FIELDS
from exporter.history.spans import span_seconds

DEFAULT_SPAN = "1h"
DEFAULT_POINTS = 240
MOST_POINTS = 1440
_SHORTEST, _LONGEST = 10.0, 366 * 86400.0
# The last time that a calendar of four digits knows.
_LATEST = 253402300800.0


class BadValueError(Exception):
    """A parameter of a URL cannot be used; the text names it and says what it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """``span`` seconds up to Unix time ``end`` (None: now) in at most ``points`` steps."""

    span: float
    end: float | None
    points: int
    wanted: Wanted


def asked_span(parameters: Mapping[str, str]) -> float:
    """Read ``range``; raises BadValueError."""
    seconds = span_seconds(parameters.get("range", DEFAULT_SPAN))
    if seconds is None or not _SHORTEST <= seconds <= _LONGEST:
        raise BadValueError("range: write a duration such as 5m, 1h, 6h or 7d, from 10s to 366d")
    return seconds


def read_ask(parameters: MultiMapping[str]) -> Ask:
    """Read all parameters; raises BadValueError."""
    return Ask(
        span=asked_span(parameters),
        end=_end(parameters.get("end")),
        points=_points(parameters.get("points")),
        wanted=Wanted(
            levels=_levels(parameters.getall("level", [])),
            uuid=parameters.get("uuid", ""),
            holder=_holder(parameters),
        ),
    )


def _end(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        end = float(text)
    except ValueError:
        end = math.nan
    if not 0 <= end <= _LATEST:
        raise BadValueError("end: write a Unix time in seconds, such as 1767225600")
    return end


def _points(text: str | None) -> int:
    if text is None:
        return DEFAULT_POINTS
    known = re.fullmatch("[0-9]{1,4}", text)
    if not known or not 1 <= int(text) <= MOST_POINTS:
        raise BadValueError(f"points: write a whole number from 1 to {MOST_POINTS}")
    return int(text)


def _levels(told: list[str]) -> frozenset[str]:
    if not FIELDS.keys() >= set(told):
        raise BadValueError(f"level: write {', '.join(FIELDS)}; once for each that is wanted")
    return frozenset(told)


def _holder(parameters: Mapping[str, str]) -> tuple[str, str, str] | None:
    namespace, pod = parameters.get("namespace", ""), parameters.get("pod", "")
    container = parameters.get("container", "")
    if bool(namespace) != bool(pod):
        missing = "pod" if namespace else "namespace"
        raise BadValueError(f"{missing}: a holder is named by namespace and pod, with or without container")
    if container and not pod:
        raise BadValueError("container: write namespace and pod with it")
    return (namespace, pod, container) if pod else None
