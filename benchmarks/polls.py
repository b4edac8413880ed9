"""What a poll costs, and the page that is made of it, beside what cannot be done without."""

import statistics
from typing import Any

from benchmarks.effort import Effort
from benchmarks.running import subject

# The first polls fill what is kept from one to the next.
_WARM = 3


async def measure(name: str, effort: Effort) -> dict[str, Any]:
    """Measure the polls of a node; times are seconds of a processor.

    The machine may have other work: work is done in turns of several, whose mean is taken, and each time is
    the least of all turns. Polls are not all alike, so that the quickest of them would tell little.
    """
    least: dict[str, float] = {}
    async with subject("by-hand", name) as program:
        await program.ask("poll", times=_WARM)
        for _ in range(effort.turns):
            polled = await program.ask("poll", times=effort.polls)
            bare = await program.ask("bare", times=effort.polls)
            rendered = await program.ask("render", times=effort.polls)
            _take(least, "poll", statistics.mean(polled["poll"]))
            _take(least, "calls", bare.pop("calls"))
            for what, times in bare.items():
                _take(least, f"bare_{what}", statistics.mean(times))
            for what in ("page", "gzip", "native", "client"):
                _take(least, what, statistics.mean(rendered[what]))
    return least | {key: value for key, value in rendered.items() if not isinstance(value, list)}


def _take(least: dict[str, float], what: str, seconds: float) -> None:
    least[what] = min(seconds, least.get(what, seconds))
