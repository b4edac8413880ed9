"""Scrapers that keep their connections open and scrape again as soon as they are answered."""

import asyncio
import re
import time
from functools import partial

_REQUEST = (
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Prometheus\r\n"
    b"Accept: text/plain;version=0.0.4\r\nAccept-Encoding: gzip\r\n\r\n"
)
_HEAD_END = b"\r\n\r\n"
# It matches once the whole head has come.
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)(?=.*?\r\n\r\n)", re.IGNORECASE | re.DOTALL)
_GOOD = b"HTTP/1.1 200 "


class _Scraper(asyncio.Protocol):
    """Scrapes until the time is ``until``; then ``done`` has the latencies in seconds, or the error."""

    def __init__(self, until: float, done: "asyncio.Future[list[float]]") -> None:
        self._until = until
        self._done = done
        self._latencies: list[float] = []
        self._asked = 0.0
        self._received = bytearray()
        self._size = 0  # bytes of the answer with its head, 0 until that has come
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - a connection can be written to
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._size and (length := _LENGTH.search(self._received)):
            self._size = self._received.find(_HEAD_END) + len(_HEAD_END) + int(length[1])
        if not self._size or len(self._received) < self._size:
            return
        now = time.perf_counter()
        self._latencies.append(now - self._asked)
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
        self._size = 0
        self._asked = time.perf_counter()
        self._transport.write(_REQUEST)

    def _end(self, error: Exception | None) -> None:
        self._transport.close()
        if self._done.done():
            return
        if error is None:
            self._done.set_result(self._latencies)
        else:
            self._done.set_exception(error)


def scrape(port: int, count: int, seconds: float) -> list[float]:
    """Have ``count`` scrapers scrape a port for ``seconds``; return the latencies of all scrapes in seconds.

    Raise RuntimeError if a scrape is not answered with 200.
    """
    return asyncio.run(_scraped(port, count, seconds))


async def _scraped(port: int, count: int, seconds: float) -> list[float]:
    loop, until = asyncio.get_running_loop(), time.perf_counter() + seconds
    ends: list[asyncio.Future[list[float]]] = [loop.create_future() for _ in range(count)]
    for end in ends:
        await loop.create_connection(partial(_Scraper, until, end), "127.0.0.1", port)
    return [latency for latencies in await asyncio.gather(*ends) for latency in latencies]
