"""Scrapers that keep their connections open and ask again as soon as they are answered."""

import asyncio
import time
from functools import partial
from urllib.parse import urlsplit

# What Prometheus says that it accepts, in short.
_REQUEST = (
    "GET /metrics HTTP/1.1\r\nHost: {host}\r\nUser-Agent: Prometheus\r\n"
    "Accept: text/plain;version=0.0.4\r\nAccept-Encoding: gzip\r\n\r\n"
)
_LENGTH = b"content-length:"
_END = b"\r\n\r\n"
_GOOD = b"HTTP/1.1 200 "


class _Scraper(asyncio.Protocol):
    def __init__(self, request: bytes, until: float, done: "asyncio.Future[None]") -> None:
        self.latencies: list[float] = []
        self._request = request
        self._until = until
        self._done = done
        self._asked = 0.0
        self._received = bytearray()
        self._whole = 0
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - a connection can be written to
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._whole:
            self._whole = _whole(self._received)
        if not self._whole or len(self._received) < self._whole:
            return
        now = time.perf_counter()
        self.latencies.append(now - self._asked)
        if not self._received.startswith(_GOOD):
            self._end(RuntimeError(f"a scrape is answered by {bytes(self._received[:40])!r}"))
        elif now < self._until:
            self._ask()
        else:
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or RuntimeError("the server has closed the connection of a scraper"))

    def _ask(self) -> None:
        self._received.clear()
        self._whole = 0
        self._asked = time.perf_counter()
        self._transport.write(self._request)

    def _end(self, error: Exception | None) -> None:
        self._transport.close()
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)


def _whole(received: bytearray) -> int:
    """Return how long the answer is with its head, 0 while that has not come."""
    head = received.find(_END)
    if head < 0:
        return 0
    lines = bytes(received[:head]).lower().split(b"\r\n")
    length = next(int(line[len(_LENGTH) :]) for line in lines if line.startswith(_LENGTH))
    return head + len(_END) + length


async def scrape(url: str, count: int, seconds: float) -> list[float]:
    """Have so many scrapers at work for so long; return how long each scrape took, in seconds.

    RuntimeError where a scrape is not answered with 200.
    """
    where = urlsplit(url)
    loop, until = asyncio.get_running_loop(), time.perf_counter() + seconds
    request = _REQUEST.format(host=where.netloc).encode()
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in range(count)]
    connecting = [
        loop.create_connection(
            partial(_Scraper, request, until, end), host=where.hostname or "", port=where.port or 80
        )
        for end in ends
    ]
    scrapers = [protocol for _, protocol in await asyncio.gather(*connecting)]
    await asyncio.gather(*ends)
    return [latency for scraper in scrapers for latency in scraper.latencies]
