"""Bars as they are drawn, and what they should look like."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar, in percent of it."""

    look: str
    x: float
    width: float
    title: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar as it is drawn."""

    segments: tuple[Segment, ...]
    tick: float | None
    dashed: bool
    limits: dict[str, float]

    @property
    def parts(self) -> tuple[Segment, ...]:
        """What is filled."""
        return tuple(segment for segment in self.segments if segment.look != "unmeasured")

    @property
    def hatched(self) -> tuple[Segment, ...]:
        """What is hatched, because it is not known."""
        return tuple(segment for segment in self.segments if segment.look == "unmeasured")

    @property
    def end(self) -> float:
        """Where what is filled ends."""
        return max((segment.x + segment.width for segment in self.parts), default=0.0)


def bar_of(svg) -> Bar:
    """Return the bar of a drawing."""
    segments = []
    for child in svg.children:
        if child.tag == "svg":
            rect = child.one("rect", of="fill")
            segments.append(_segment(child.attributes, rect, child.one("title")))
        elif "fill" in child.classes:
            segments.append(_segment(child.attributes, child, next(iter(child.all("title")), None)))
    ticks = [_percent(tick.attributes["x"]) for tick in svg.all("rect", of="tick")]
    assert len(ticks) < 2
    limits = {
        look: _percent(mark.attributes["x"])
        for look in ("soft", "hard")
        for mark in svg.all("rect", of=f"limit-{look}")
    }
    return Bar(tuple(segments), ticks[0] if ticks else None, "dashed" in svg.classes, limits)


def _segment(place, rect, title) -> Segment:
    (look,) = (each.removeprefix("f-") for each in rect.classes if each.startswith("f-"))
    text = "".join(title.children) if title else ""
    return Segment(look, _percent(place.get("x", "0%")), _percent(place["width"]), text)


def _percent(text) -> float:
    assert text.endswith("%")
    return float(text.removesuffix("%"))


def misdrawn(bar, parts, track, *, known=True, limits=None) -> str:
    """Return what is wrong with a bar, "" if nothing is.

    ``parts`` lie next to each other on a ``track``; if they or ``limits`` exceed it, the scale shrinks and a
    tick marks its end. If the sum is not ``known`` the rest is hatched; without a track all of it is.
    """
    sizes = [size for size in parts if size] if track else []
    marks = (limits or {}) if track else {}
    full = max(track or 0, sum(sizes), *marks.values()) or 1
    wanted = {look: min(100 * size / full, 99) for look, size in marks.items()}
    if bar.limits.keys() != wanted.keys() or any(
        abs(bar.limits[look] - wanted[look]) > 0.2 for look in wanted
    ):
        return f"limits at {wanted}? {bar}"
    return _misplaced(bar, [100 * size / full for size in sizes]) or _mismarked(
        bar,
        100 * sum(sizes) / full,
        known=known and bool(track),
        end=100 * track / full if track and full > track * 1.0005 else None,
    )


def _misplaced(bar, widths) -> str:
    """Return which part is in the wrong place or has the wrong width, or ""."""
    if len(bar.parts) != len(widths):
        return f"{len(widths)} parts? {bar}"
    begin = 0.0
    for part, width in zip(bar.parts, widths, strict=True):
        # A little use is still seen, and stands inside.
        if abs(part.x - min(begin, 99.4)) > 0.11 or abs(part.width - max(width, 0.6)) > 0.11:
            return f"from {begin:.2f} as wide as {width:.2f}? {part}"
        begin += width
    return ""


def _mismarked(bar, filled, *, known, end) -> str:
    """Return how the tick differs from ``end``, or the hatching from ``known``, or ""."""
    if (end is None) != (bar.tick is None) or (end is not None and abs(bar.tick - end) > 0.11):
        return f"a tick at {end}? {bar}"
    if bool(bar.hatched) == (known or filled >= 100):
        return f"known? {known} {bar}"
    # The least that is seen stands inside.
    ends = [hatched.x + hatched.width for hatched in bar.hatched]
    begins = [hatched.x for hatched in bar.hatched]
    right = all(abs(each - 100) < 0.7 for each in ends) and all(abs(each - filled) < 0.7 for each in begins)
    return "" if right else f"from {filled:.2f} to the end? {bar}"
