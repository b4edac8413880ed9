"""Reading the server's events over HTTP."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientResponse, ClientSession

from tests.waiting import LIMIT_SECONDS


@dataclass(frozen=True, slots=True)
class Event:
    """One event; ``raw`` are its bytes as they came."""

    name: str
    id: str
    data: Any
    raw: bytes


@dataclass(slots=True)
class Follower:
    """Reads one stream."""

    response: ClientResponse
    _unpack: Any = None
    _rest: bytes = b""

    async def next(self) -> Event:
        """Wait for an event; raises EOFError at the end of the stream."""
        block = await asyncio.wait_for(self._block(), LIMIT_SECONDS)
        fields = dict(line.split(": ", 1) for line in block.decode().splitlines())
        return Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]), block)

    async def change(self) -> Event:
        """Wait for the next event other than hello and beat."""
        while (event := await self.next()).name in ("hello", "beat"):
            pass
        return event

    async def ended(self) -> bool:
        """Read to the end, and return True."""
        try:
            while True:
                await self.next()
        except EOFError:
            return True

    async def _block(self) -> bytes:
        while b"\n\n" not in self._rest:
            chunk = await self.response.content.readany()
            if not chunk:
                raise EOFError
            self._rest += self._unpack.decompress(chunk) if self._unpack else chunk
        block, _, self._rest = self._rest.partition(b"\n\n")
        return block


@asynccontextmanager
async def following(client: ClientSession, url: str, **headers: str) -> AsyncIterator[Follower]:
    """Open a stream with these headers (``_`` for ``-``)."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.get(url, headers=sent) as response:
        assert response.status == 200, await response.text()
        zipped = response.headers.get("Content-Encoding") == "gzip"
        yield Follower(response, _unpack=zlib.decompressobj(31) if zipped else None)
