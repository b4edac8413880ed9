"""The page of usage: a bar for each day, both balances, and a table of the groups."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from exporter.fleet.usage.grouping import GROUPS
from exporter.fleet.usage.model import Balance, Usage
from exporter.fleet.usage.period import HOUR
from exporter.fleet.usage.prices import Prices
from exporter.fleet.usage.text import (
    ALLOCATION_WORDS,
    NOT_OBSERVED,
    USE_WORDS,
    digits_of,
    group_rows,
    notes_of,
    parts_of,
    remainder_of,
    rounded,
)
from exporter.web.kit.html import Drawing, piece
from exporter.wording import plural

_PIECES = "pieces/usage.html"
_MONTHS = 6
_FULL = 100.0


class Link(NamedTuple):
    """A choice."""

    name: str
    href: str
    chosen: bool


class Part(NamedTuple):
    """A class of a balance, with its share in percent."""

    name: str
    look: str
    hours: str
    share: float


class Slab(NamedTuple):
    """A part of the bar of a day, from the top; in percent."""

    look: str
    top: float
    height: float


class Day(NamedTuple):
    """The bar of a day."""

    place: int
    title: str
    slabs: Sequence[Slab]


def usage_drawing(usage: Usage, prices: Prices | None, month: str, now: float) -> Drawing:
    """Return the page of usage of ``month``, or of the last 30 days if it is empty."""
    days = [_day(place, day) for place, day in enumerate(usage.days)]
    ends = [_written("%d %b", at) for at in (usage.period.start, usage.period.end - 1)]
    rows = list(group_rows(usage, prices)) if usage.groups is not None else []
    notes = [note.removeprefix("! ") for note in (remainder_of(usage), *notes_of(usage, prices))]
    size = (
        f"{plural(usage.gpus, 'known GPU')} for {usage.period.hours:,.0f} hours: "
        f"{usage.balance.capacity / HOUR:,.0f} GPU-hours"
    )
    query = f"month={month}&by={usage.by}" if month else f"by={usage.by}"
    return Drawing(
        layout="usage.html",
        title=f"GPU usage of {usage.period.name}",
        pieces={
            "name": piece(_PIECES, "name_of", usage.period.name, size),
            "status": piece(_PIECES, "status_of", _written("%Y-%m-%d %H:%M", usage.at)),
            "choices": piece(
                _PIECES, "choices_of", list(_months(usage, month, now)), list(_groups(usage, month))
            ),
            "problems": piece(
                _PIECES, "problems_of", [f"Not known: {problem}." for problem in usage.problems]
            ),
            "balances": piece(_PIECES, "balances_of", list(_parts(usage, 0)), list(_parts(usage, 1))),
            "days": piece(_PIECES, "days_of", days, *ends),
            "groups": piece(_PIECES, "groups_of", rows, [f"{note[0].upper()}{note[1:]}" for note in notes]),
        },
        facts={"demo": False, "query": query, "billable": prices is not None and bool(prices.account)},
    )


def _months(usage: Usage, chosen: str, now: float) -> Iterator[Link]:
    yield Link("30 days", f"?by={usage.by}", not chosen)
    year, month = datetime.fromtimestamp(now, UTC).year, datetime.fromtimestamp(now, UTC).month
    names = []
    for _ in range(_MONTHS):
        names.append(f"{year:04d}-{month:02d}")
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    if chosen and chosen not in names:
        names.append(chosen)
    for name in names:
        yield Link(name, f"?month={name}&by={usage.by}", name == chosen)


def _groups(usage: Usage, month: str) -> Iterator[Link]:
    if usage.only:
        return
    names = GROUPS if usage.by in GROUPS else (*GROUPS, usage.by)
    for name in names:
        href = f"?month={month}&by={name}" if month else f"?by={name}"
        yield Link(name.replace(":", " "), href, name == usage.by)


def _parts(usage: Usage, which: int) -> Iterator[Part]:
    balance, words = usage.balance, (ALLOCATION_WORDS, USE_WORDS)[which]
    classes = (balance.allocation, balance.use)[which]
    if not classes:
        return
    hours = rounded(parts_of(classes, words, balance.not_observed), digits_of(balance.capacity))
    looks = {word: name for name, word in words.items()} | {NOT_OBSERVED: "not_observed"}
    for word, value in hours.items():
        share = _FULL * float(value) * HOUR / balance.capacity if balance.capacity else 0.0
        yield Part(word, looks[word], f"{value:,}", share)


def _day(place: int, day: Balance) -> Day:
    hours = parts_of(day.allocation, ALLOCATION_WORDS, day.not_observed)
    looks = {word: name for name, word in ALLOCATION_WORDS.items()} | {NOT_OBSERVED: "not_observed"}
    slabs, top = [], _FULL
    for word, value in hours.items():
        height = _FULL * value * HOUR / day.capacity if day.capacity else 0.0
        if height > 0:
            top -= height
            slabs.append(Slab(looks[word], max(top, 0.0), height))
    listed = ", ".join(f"{word} {value:,.1f}" for word, value in hours.items() if value)
    return Day(place, f"{_written('%Y-%m-%d', day.start)}: {listed} GPU-hours", slabs)


def _written(form: str, at: float) -> str:
    return time.strftime(form, time.gmtime(at))
