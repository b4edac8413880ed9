"""Geometry of the bars: segments in percent of the track, each with the look of a state."""

from collections.abc import Iterable
from typing import NamedTuple

from exporter.metrics import Number

UNATTRIBUTED = "used by no known container"
# A small use stays visible.
_LEAST_WIDTH = 0.6
_FULL = 100.0


class Part(NamedTuple):
    """A part of a bar."""

    look: str  # a state, ``unattributed``, ``held`` or ``unmeasured``
    size: Number
    title: str
    label: str = ""  # a short mark
    name: str = ""  # a longer one, if the part is wide enough


class Use(NamedTuple):
    """The use and the entitlement of a container, and the size of its device; None is not known."""

    used: Number | None
    entitled: Number | None
    whole: Number | None


class Segment(NamedTuple):
    """A part at its place; ``x`` and ``width`` are percent of the track."""

    part: Part
    x: float
    width: float


class Bar(NamedTuple):
    """A track with segments."""

    text: str  # all of it in words
    segments: tuple[Segment, ...]
    tick: float | None = None  # the entitlement, if the use exceeds it
    dashed: bool = False  # whether the track is the device's size, not an entitlement


def bar(
    text: str,
    parts: Iterable[Part],
    track: Number | None,
    *,
    known: bool = True,
    dashed: bool = False,
) -> Bar:
    """Return a bar of ``parts`` stacked on a track of size ``track``.

    Parts beyond the track's end shrink it, and the tick marks its end. What is not ``known`` of the
    track is hatched, all of it if its size is unknown.
    """
    shown = [part for part in parts if part.size > 0]
    used = sum(part.size for part in shown)
    if not track:
        return Bar(text, (_unmeasured(0.0, text),), dashed=dashed)
    full = max(track, used)
    segments, end = [], 0.0
    for part in shown:
        x, end = end, end + _FULL * part.size / full
        segments.append(_segment(part, x, end))
    if not known and end < _FULL:
        segments.append(_unmeasured(end, text))
    return Bar(text, tuple(segments), _FULL * track / full if used > track else None, dashed)


def use_bar(text: str, state: str, use: Use, rest: Number | None = None) -> Bar:
    """Return a bar of a use against its entitlement or, dashed, against the device if there is none.

    ``rest`` is the device's use by no known container.
    """
    known = use.used is not None
    parts = [Part(state, use.used or 0, text), Part("unattributed", rest or 0, UNATTRIBUTED)] if known else ()
    track = use.whole if use.entitled is None else use.entitled
    return bar(text, parts, track, known=known, dashed=use.entitled is None)


def _segment(part: Part, x: float, end: float) -> Segment:
    # Sums of floats may exceed the track by rounding.
    return Segment(part, min(x, _FULL - _LEAST_WIDTH), min(max(end - x, _LEAST_WIDTH), _FULL))


def _unmeasured(x: float, text: str) -> Segment:
    return _segment(Part("unmeasured", 0, text), x, _FULL)
