"""Clients of the exporter while it runs: servers that scrape, a page that stays open, and programs."""

import asyncio
import contextlib
import gzip
import itertools
from collections.abc import Iterator

from aiohttp import ClientSession, ClientTimeout

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TEXT = "text/plain; version=0.0.4"
# Polls from one reading of a page to the next.
_PAGE_EVERY = 7
# What a page of metrics is asked for as, beside the one that is looked into.
_FORMS = (
    (TEXT, "gzip"),
    (OPENMETRICS, "identity"),
    (OPENMETRICS, "gzip"),
    ("application/openmetrics-text; version=0.0.1", "gzip"),
)
# ``{all}`` is the whole history.
_PAGES = (
    "",
    "figures/node?range={all}",
    "api/v1/snapshot",
    "api/v1/history?range={all}&points=360",
    "api/v1/snapshot?format=csv",
    "figures/node?range=5m",
    "-/ready",
    "api/v1/history?range=5m&points=60",
    "api/v1/snapshot?format=text",
    "doctor",
)


class Visitors:
    """Clients of ``url`` (with a slash at its end), which keeps ``history`` seconds."""

    def __init__(self, client: ClientSession, url: str, history: int) -> None:
        self.requests = 0
        self.refused: dict[str, int] = {}
        self._client = client
        self._url = url
        self._pages = itertools.cycle(page.replace("{all}", f"{history // 60}m") for page in _PAGES)
        self._forms = itertools.cycle(_FORMS)
        self._stream: asyncio.Task[None] | None = None
        self.events = 0

    def follow(self) -> None:
        """Open the page of the node, and keep it open."""
        self._stream = asyncio.create_task(self._follow())

    async def leave(self) -> None:
        """Close the page; raises what ended its stream before."""
        assert self._stream is not None
        self._stream.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._stream

    async def scrape(self) -> str:
        """Scrape as two servers would, one of them in another form each time; return the text."""
        text, _ = await asyncio.gather(self._metrics(TEXT, "identity"), self._metrics(*next(self._forms)))
        return text

    async def look(self, poll: int, devices: Iterator[str]) -> None:
        """Read a page or ask for something now and then."""
        if poll % _PAGE_EVERY == 0:
            path = next(self._pages)
            await self._get(path, {"Accept": "text/html, */*;q=0.1", "Accept-Encoding": "gzip"})
            for device in devices:
                await self._get(f"gpu/{device}", {"Accept": "text/html", "Accept-Encoding": "gzip"})

    async def _metrics(self, accept: str, encoding: str) -> str:
        body = await self._get("metrics", {"Accept": accept, "Accept-Encoding": encoding})
        return (gzip.decompress(body) if encoding == "gzip" else body).decode()

    async def _get(self, path: str, headers: dict[str, str]) -> bytes:
        async with self._client.get(self._url + path, headers=headers) as answer:
            body = await answer.read()
            self.requests += 1
            if answer.status != 200:
                self.refused[f"{path} {answer.status}"] = self.refused.get(f"{path} {answer.status}", 0) + 1
            return body

    async def _follow(self) -> None:
        headers, endless = {"Accept": "text/event-stream"}, ClientTimeout(total=None)
        async with self._client.get(f"{self._url}live/", headers=headers, timeout=endless) as events:
            events.raise_for_status()
            async for chunk in events.content.iter_any():
                self.events += chunk.count(b"\n\n")
        raise EOFError("the stream of the page has ended")
