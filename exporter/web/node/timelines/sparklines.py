"""Sparklines: a holder's compute in the last hour, as a small picture in its row of the table.

Unknown steps stay empty. A picture is kept until its newest step is over, which differs between holders, so
that no page has to draw all of them. Coordinates are whole pixels, because a page has hundreds of pictures.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from markupsafe import Markup

from exporter.history import SeriesKey, key_of
from exporter.history.ring import History
from exporter.model import ContainerRow
from exporter.wording import decimal, duration

SPAN = 3600.0
STEPS = 20
_WIDTH, _HEIGHT = 100, 20
_FIELD = "compute_used_ratio"
# In GPUs. The scale reaches at least this far, so that tiny use looks tiny.
_LEAST_TOP = 0.01
# More than the holders of any node.
_MOST_KEPT = 4096
_NOTHING = Markup()


class _Sparkline(NamedTuple):
    """A drawn sparkline, with all that decides whether it is still current."""

    markup: Markup
    entitled: float | None
    until: float  # Unix time until which it is current
    step: float  # seconds per step


class Sparklines:
    """The sparklines of holders in a history, each kept while it is current."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._kept: OrderedDict[SeriesKey, _Sparkline] = OrderedDict()

    def of(self, row: ContainerRow) -> Markup:
        """Return the sparkline of a holder, empty if nothing of the last hour is known."""
        key, now = key_of(row), self._history.wall()
        kept = self._kept.get(key)
        if kept and kept.entitled == row.compute_entitled and kept.until - kept.step <= now < kept.until:
            return kept.markup
        # crc32, because hash() of text differs between processes.
        shift = crc32("/".join(key.values).encode("utf-8", "replace"))
        steps = self._history.over(now=now, span=SPAN, points=STEPS, shift=shift)
        values = self._history.values(key, _FIELD, steps)
        drawn = _Sparkline(
            draw(values, row.compute_entitled, steps.step),
            row.compute_entitled,
            steps.end + steps.step,
            steps.step,
        )
        self._kept[key] = drawn
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return drawn.markup


def draw(values: Sequence[float | None], entitled: float | None, seconds: float = SPAN / STEPS) -> Markup:
    """Return shares of a GPU, each the mean of ``seconds`` seconds, as a stepped line with the entitlement.

    Empty if nothing is known.
    """
    known = [value for value in values if value is not None]
    if not known:
        return _NOTHING
    top = max(*known, entitled or 0.0, _LEAST_TOP)
    means = f"means of {duration(seconds)}"
    title = f"compute of the last hour: {means}, at most {decimal(max(known), 2)} GPU"
    share = ""
    if entitled is not None:
        title += f", entitled to {decimal(entitled, 2)}"
        share = f'<path class="spark-share" d="M0 {_height(entitled, top)}H{_WIDTH}"/>'
    line = "".join(_line(values, top))
    drawn = f'<title>{title}</title>{share}<path class="spark-used" d="{line}"/>'
    return Markup(f'<svg class="spark" role="img">{drawn}</svg>')  # noqa: S704 - numbers only


def _line(values: Sequence[float | None], top: float) -> Iterator[str]:
    width = _WIDTH / len(values)
    previous: int | None = None
    for index, value in enumerate(values):
        height = None if value is None else _height(value, top)
        if height is not None:
            if previous is None:
                yield f"M{index * width:g} {height}"
            elif height != previous:
                yield f"V{height}"
            yield f"h{width:g}"
        previous = height


def _height(value: float, top: float) -> int:
    """Return the distance of a value from the upper edge in pixels; a small value is visibly above 0."""
    up = round(value / top * (_HEIGHT - 2))
    return _HEIGHT - 1 - (up or (1 if value else 0))
