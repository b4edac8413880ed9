"""What pages show, as small records: numbers with reasons, bars, totals, findings and notices.

They know no snapshot; ``markup.py`` writes some of them as HTML, templates the others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model import ContainerRef
from exporter.wording import UNKNOWN, gibibytes, hundredths


class Figure(NamedTuple):
    """A number as text; ``why`` is why it is unknown, "" if it is known."""

    text: str
    why: str = ""


class Pair(NamedTuple):
    """A used part and its whole, in one unit."""

    used: Figure
    whole: Figure
    unit: str

    def __str__(self) -> str:
        text = f"{self.used.text} of {self.whole.text} {self.unit}"
        return f"{text} ({self.used.why})" if self.used.why else text


def figure_of(value: float | None, write: Callable[[float], str], why: str) -> Figure:
    """Return a number as text, or a dash with the reason if it is None."""
    return Figure(UNKNOWN, why) if value is None else Figure(write(value))


def memory_pair(used: float | None, why: str, whole: float | None, why_whole: str) -> Pair:
    """Return bytes used of bytes; each ``why`` is shown if its number is None."""
    return Pair(figure_of(used, gibibytes, why), figure_of(whole, gibibytes, why_whole), "GiB")


def compute_pair(used: float | None, why: str, whole: float | None, why_whole: str) -> Pair:
    """Return shares of a physical GPU; each ``why`` is shown if its number is None."""
    return Pair(figure_of(used, hundredths, why), figure_of(whole, hundredths, why_whole), "GPU")


# A small use stays visible.
_LEAST_WIDTH = 0.6
_FULL = 100.0


class BarPart(NamedTuple):
    """A part of a bar."""

    look: str  # a state, ``unattributed``, ``held`` or ``unmeasured``
    size: float
    title: str
    label: str = ""  # a short mark
    name: str = ""  # a longer one, if the part is wide enough


class Segment(NamedTuple):
    """A part at its place; ``x`` and ``width`` are percent of the track."""

    part: BarPart
    x: float
    width: float


class Threshold(NamedTuple):
    """A limit on a bar, at ``x`` percent of the track."""

    look: str  # ``soft`` or ``hard``
    x: float


class Bar(NamedTuple):
    """A track with segments."""

    text: str  # all of it in words
    segments: tuple[Segment, ...]
    tick: float | None = None  # the entitlement, if the use or a limit exceeds it
    dashed: bool = False  # whether the track is the device's size, not an entitlement
    size: float = 0.0  # amount at the end of the track; 0 if it is unknown
    thresholds: tuple[Threshold, ...] = ()


def bar(
    text: str,
    parts: Iterable[BarPart],
    track: float | None,
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
    return Bar(text, tuple(segments), _FULL * track / full if used > track else None, dashed, full)


def with_limits(drawn: Bar, limits: Mapping[str, float]) -> Bar:
    """Return a bar with limits (by look) marked on it; one beyond the track's end shrinks the track."""
    if not drawn.size or not limits:
        return drawn
    full = max(drawn.size, *limits.values())
    part = drawn.size / full
    end = _FULL * part if part < 1 else None
    return drawn._replace(
        segments=tuple(each._replace(x=each.x * part, width=each.width * part) for each in drawn.segments),
        tick=end if drawn.tick is None else drawn.tick * part,
        size=full,
        # Quotients of floats may exceed 1 by rounding.
        thresholds=tuple(Threshold(look, min(_FULL * size / full, _FULL)) for look, size in limits.items()),
    )


def _segment(part: BarPart, x: float, end: float) -> Segment:
    # Sums of floats may exceed the track by rounding.
    return Segment(part, min(x, _FULL - _LEAST_WIDTH), min(max(end - x, _LEAST_WIDTH), _FULL))


def _unmeasured(x: float, text: str) -> Segment:
    return _segment(BarPart("unmeasured", 0, text), x, _FULL)


class Mark(NamedTuple):
    """A replica, or a run of them; ``width`` is relative to that of the other marks."""

    look: str
    label: str
    name: str
    title: str
    width: int


class PoolKey(NamedTuple):
    """A line of the list under a pool."""

    number: int  # of the holder, as on marks and bars
    holder: ContainerRef
    named: bool  # whether to show the container: its pod has another one here
    state: str
    held: str
    memory: Pair
    compute: Pair


class Finding(NamedTuple):
    """Something that needs attention."""

    look: str  # of its state
    text: str
    href: str  # its place on the page
    holders: tuple[ContainerRef, ...] = ()  # the first ones affected
    more: int = 0  # number of the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A total."""

    name: str
    figure: Figure  # in large letters
    of: str = ""  # next to the figure
    waste: str = ""  # what is held but not used
    detail: str = ""
    bars: tuple[tuple[Bar, str], ...] = ()
    findings: tuple[Finding, ...] = ()


class Notice(NamedTuple):
    """A notice on the page."""

    look: str  # ``bad`` or ``note``
    title: str
    text: str
    href: str = ""  # address of more details, "" if there are none
    link: str = "What to do"
