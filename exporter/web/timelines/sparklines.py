"""Sparklines: what a holder has computed in the last hour, as a small picture in its row of the table.

A step in which nothing is known stays empty. A picture lasts until its newest step is over; not those of all
holders are over at the same moment, so that no page has to draw all of them. Its size is in the styles, and
its numbers are whole pixels: a page has hundreds of them.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from markupsafe import Markup

from exporter.formats.wording import decimal, duration
from exporter.history.past import Key, key_of
from exporter.history.ring import History
from exporter.model import ContainerRow

SPAN = 3600.0
STEPS = 20
_WIDTH, _HEIGHT = 100, 20
_FIELD = "compute_used_ratio"
# Less than a hundredth of a GPU looks like nothing.
_LEAST_TOP = 0.01
# More than any node has holders.
_MOST_KEPT = 4096
_NOTHING = Markup()


class _Picture(NamedTuple):
    """A drawing, which shows all there is until Unix time ``until``, at most ``step`` seconds away."""

    markup: Markup
    entitled: float | None
    until: float
    step: float


class Sparklines:
    """Draws the holders of a history; a drawing is kept until it would look different."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._kept: OrderedDict[Key, _Picture] = OrderedDict()

    def of(self, row: ContainerRow) -> Markup:
        """Draw a holder; empty where nothing of the hour is known."""
        key, now = key_of(row), self._history.now()
        kept = self._kept.get(key)
        if kept and kept.entitled == row.compute_entitled and kept.until - kept.step <= now < kept.until:
            return kept.markup
        # Text has another hash in each process.
        shift = crc32("/".join(key.values).encode("utf-8", "replace"))
        steps = self._history.over(now=now, span=SPAN, points=STEPS, shift=shift)
        values = self._history.values(key, _FIELD, steps)
        drawn = _Picture(
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
    """Draw shares of a GPU as a line in steps, and below or above it what the holder is entitled to.

    Each is the mean of so many ``seconds``: what the holder has reached within them is not known.

    Empty where nothing is known.
    """
    known = [value for value in values if value is not None]
    if not known:
        return _NOTHING
    top = max(*known, entitled or 0.0, _LEAST_TOP)
    means = f"means of {duration(seconds)}"
    said = f"compute of the last hour: {means}, at most {decimal(max(known), 2)} GPU"
    share = ""
    if entitled is not None:
        said += f", entitled to {decimal(entitled, 2)}"
        share = f'<path class="spark-share" d="M0 {_height(entitled, top)}H{_WIDTH}"/>'
    line = "".join(_line(values, top))
    drawn = f'<title>{said}</title>{share}<path class="spark-used" d="{line}"/>'
    return Markup(f'<svg class="spark" role="img">{drawn}</svg>')  # noqa: S704 - numbers only


def _line(values: Sequence[float | None], top: float) -> Iterator[str]:
    wide = _WIDTH / len(values)
    before: int | None = None
    for index, value in enumerate(values):
        height = None if value is None else _height(value, top)
        if height is not None:
            if before is None:
                yield f"M{index * wide:g} {height}"
            elif height != before:
                yield f"V{height}"
            yield f"h{wide:g}"
        before = height


def _height(value: float, top: float) -> int:
    """Return how many pixels below the upper edge a value lies; a little is seen to be more than nothing."""
    up = round(value / top * (_HEIGHT - 2))
    return _HEIGHT - 1 - (up or (1 if value else 0))
