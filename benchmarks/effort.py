"""How much is measured: all of it takes half an hour, the least a few seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """``turns`` of ``polls`` polls each, ``hour`` polls without a page and ``opened`` with some open.

    Each of ``scrapers`` (how many at a time) scrapes for ``scrape_seconds`` in each of ``scrape_turns``. The
    program is started ``starts`` times, and put on nodes of so many ``holders``.
    """

    turns: int = 20
    polls: int = 5
    hour: int = 720
    # What is in memory goes up and down within some hundred polls.
    opened: int = 120
    scrapers: tuple[int, ...] = (1, 10, 100)
    scrape_turns: int = 4
    scrape_seconds: float = 1.0
    starts: int = 5
    holders: tuple[int, ...] = (10, 30, 100, 300, 1000, 2000, 5000)


FULL = Effort()
LEAST = Effort(
    turns=1,
    polls=1,
    hour=6,
    opened=2,
    scrapers=(1, 3),
    scrape_turns=1,
    scrape_seconds=0.1,
    starts=1,
    holders=(2, 4, 6),
)
