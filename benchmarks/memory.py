"""What the program has in memory after an hour of polls, and with pages open."""

import asyncio
import contextlib
import math
import statistics
from typing import Any

from aiohttp import ClientSession, ClientTimeout

from benchmarks.effort import Effort
from benchmarks.running import child, subject
from benchmarks.subject import POLL_SECONDS

# A scrape every 15 s.
_SCRAPE_EVERY = 3
_READINGS = 24
# The faked driver keeps the samples of no more polls, as a real one does.
_MOST_KEPT = 100
_PAGES = 5
# A page is drawn after each poll, beside the polls: on a real node there are 5 s for it.
_DRAW_SECONDS = 0.25
_METRICS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
_LOOKED_AT = "", "figures/node?range=1h", "api/v1/snapshot"


async def measure(name: str, effort: Effort) -> dict[str, Any]:
    """Measure the memory on a node, in bytes; what the faked driver has is left out, and told.

    It goes up and down by a fifth over some hundred polls, so that one reading says little: ``closed`` is the
    middle of the second half of those without a page, ``slope`` by how much it grew in an hour in them, and
    ``slope_error`` the standard error of that. ``opened`` is the middle of the second half with several pages
    open, ``peak`` the most at any time.
    """
    fake = await fake_memory(name, min(effort.hour, _MOST_KEPT))
    async with (
        subject("by-hand", name) as program,
        ClientSession(timeout=ClientTimeout(total=None)) as client,
    ):
        resident = []
        each = max(_SCRAPE_EVERY, effort.hour // _READINGS)
        for done in range(0, effort.hour, _SCRAPE_EVERY):
            await program.ask("poll", times=_SCRAPE_EVERY)
            await _get(client, f"{program.url}metrics", _METRICS)
            if (done + _SCRAPE_EVERY) % each < _SCRAPE_EVERY:
                resident.append((done, (await program.ask("usage"))["resident"]))
        readers = [asyncio.create_task(_read(client, program.url)) for _ in range(_PAGES)]
        opened = []
        for _ in range(effort.opened):
            await program.ask("poll", times=1)
            await asyncio.sleep(_DRAW_SECONDS)
            last = await program.ask("usage")
            opened.append(last["resident"])
        await _end(readers)
    half = resident[len(resident) // 2 :]
    slope, error = _slope(half)
    return {
        "fake": fake,
        "closed": statistics.median(bytes_ for _, bytes_ in half) - fake,
        "slope": slope,
        "slope_error": error,
        "opened": statistics.median(opened[len(opened) // 2 :]) - fake,
        "peak": last["peak"] - fake,
        "readings": [bytes_ for _, bytes_ in resident],
    }


async def fake_memory(name: str, polls: int) -> int:
    """Return how many bytes the faked driver has after so many polls, told by a process of its own."""
    async with child("benchmarks.subject", str(polls), name) as fake:
        traced: int = (await fake.told())["traced"]
        return traced


async def _get(client: ClientSession, url: str, headers: dict[str, str]) -> None:
    async with client.get(url, headers=headers) as answer:
        answer.raise_for_status()
        await answer.read()


async def _read(client: ClientSession, url: str) -> None:
    """Open the page of the node with its timelines and its snapshot, and keep it open."""
    for path in _LOOKED_AT:
        await _get(client, f"{url}{path}", {"Accept": "text/html"})
    async with client.get(f"{url}live/", headers={"Accept": "text/event-stream"}) as events:
        events.raise_for_status()
        async for _ in events.content.iter_any():
            pass


async def _end(readers: list["asyncio.Task[None]"]) -> None:
    """Stop reading; a reader that has ended before tells why."""
    for reader in readers:
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader


def _slope(readings: list[tuple[int, int]]) -> tuple[float, float]:
    """Return by how many bytes an hour memory grows, and the standard error of that.

    ``readings`` are bytes after so many polls; of fewer than three nothing can be told.
    """
    if len(readings) < 3:
        return 0.0, 0.0
    polls = [done for done, _ in readings]
    line = statistics.linear_regression(polls, [resident for _, resident in readings])
    rest = sum((resident - line.intercept - line.slope * done) ** 2 for done, resident in readings)
    middle = statistics.fmean(polls)
    error = math.sqrt(rest / (len(readings) - 2) / sum((done - middle) ** 2 for done in polls))
    an_hour = 3600 / POLL_SECONDS
    return line.slope * an_hour, error * an_hour
