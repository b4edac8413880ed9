"""A fleet: the pages of so many nodes, served on 127.0.0.1 as each of their exporters would."""

import asyncio
import resource
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmarks.simulated.frames import DRIVER, LABEL, NODE, PODS, TEAM, Frame

_TEAMS = 20
_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"
    "Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n"
)


@dataclass(slots=True)
class Fleet:
    """So many nodes which all show a frame for ``step`` seconds, and then the next.

    ``pods``, ``label`` and ``driver`` tell how often all pods were replaced, a label of theirs changed, and
    the driver was upgraded.
    """

    frames: Sequence[Frame]
    count: int
    step: float
    pods: int = 0
    label: int = 0
    driver: int = 0
    _start: float = field(default_factory=time.monotonic)
    _made: tuple[tuple[int, ...], str] = ((), "")

    def page(self, node: int) -> str:
        """Make the page of a node as it is now."""
        turn = min(int((time.monotonic() - self._start) / self.step), len(self.frames) - 1)
        state = (turn, self.pods, self.label, self.driver)
        if self._made[0] != state:
            text = self.frames[turn].at(time.time())
            for token, value in ((PODS, self.pods), (LABEL, self.label), (DRIVER, self.driver)):
                text = text.replace(token, str(value))
            self._made = state, text
        return self._made[1].replace(NODE, f"{node:06d}").replace(TEAM, str(node % _TEAMS))


class _Serving(asyncio.Protocol):
    """Answers requests for /0, /1, ... with the pages of these nodes, one after the other."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._asked = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP is one
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while b"\r\n\r\n" in self._asked:
            asked, _, self._asked = self._asked.partition(b"\r\n\r\n")
            body = packed(self._fleet.page(int(asked.split()[1][1:])))
            self._transport.write(_HEAD.format(len(body)).encode() + body)


def packed(page: str) -> bytes:
    """Compress as the exporter does."""
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(page.encode()) + packer.flush()


@asynccontextmanager
async def served(fleet: Fleet) -> AsyncIterator[int]:
    """Serve the pages as /0, /1, ... and give the port."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Each target keeps its connection open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = await asyncio.get_running_loop().create_server(lambda: _Serving(fleet), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
