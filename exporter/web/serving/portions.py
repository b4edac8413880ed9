"""Bodies that are handed over bit by bit, so that a client that does not read holds no copy of them."""

from pathlib import Path
from typing import Any

from aiohttp import Payload, web
from aiohttp.abc import AbstractStreamWriter

from exporter.threads import in_thread

PORTION = 32 * 1024
"""More than this is never handed to a connection before the client has taken what was before, in bytes."""
ROOM = 96 * 1024
"""As much may be handed to one of the first connections at once: a page of metrics as a rule, compressed."""


class Portions(Payload):
    """A body of bytes, which all its readers share."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)

    @property
    def size(self) -> int:
        """Its length."""
        return len(self._value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Give it as text."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> Any:
        """Write it, each portion once the client has taken those before."""
        for start in range(0, len(self._value), PORTION):
            await writer.write(self._value[start : start + PORTION])
            await writer.drain()


class FilePortions(Payload):
    """The body of a file of ``size`` bytes, which nobody keeps; it is read in a thread."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path)
        self._size = size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Give it as text."""
        return Path(self._value).read_text(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> Any:
        """Write it, each portion once the client has taken those before."""
        file = await in_thread(Path(self._value).open, "rb")
        try:
            while part := await in_thread(file.read, PORTION):
                await writer.write(part)
                await writer.drain()
        finally:
            file.close()


def portioned(response: web.StreamResponse, room: int = PORTION) -> None:
    """Have the body of an answer handed over in portions, where it is more than there is room for."""
    if isinstance(response, web.Response) and isinstance(response.body, bytes) and len(response.body) > room:
        response.body = Portions(response.body)
