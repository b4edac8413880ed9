"""Replacements of the kubelet's socket: other files, other servers, servers that break off."""

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import grpc.aio

from exporter.demo.node import FakeNode
from podresources.channel import target

SETTINGS: Final = bytes.fromhex("000000040000000000")
ACKNOWLEDGED: Final = bytes.fromhex("000000040100000000")
HEADERS: Final = 1
# ":status: 200" from HPACK's static table, and a literal "content-type: application/grpc".
_HEAD: Final = b"\x88\x0f\x10\x10application/grpc"
ANSWER_BEGINS: Final = (
    len(_HEAD).to_bytes(3, "big")
    + b"\x01\x04\x00\x00\x00\x01"
    + _HEAD
    # A message of 1000 bytes of which 3 come.
    + b"\x00\x00\x08\x00\x00\x00\x00\x00\x01"
    + b"\x00\x00\x00\x03\xe8"
    + b"abc"
)
GOAWAY: Final = bytes.fromhex("0000080700000000000000000000000002")
NOBODY: Final = 65534

Place = Callable[[Path], contextlib.AbstractAsyncContextManager[None]]


@contextlib.contextmanager
def aside(path: Path) -> Iterator[None]:
    """Take what is at ``path`` away; it comes back afterwards, whatever is there then."""
    kept = path.with_name(f"{path.name}.aside")
    path.rename(kept)
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        elif kept.is_dir():
            path.unlink(missing_ok=True)
        kept.rename(path)


def made(make: Callable[[Path], object]) -> Place:
    """Have something made at the path."""

    @contextlib.asynccontextmanager
    async def place(path: Path) -> AsyncIterator[None]:
        with aside(path):
            make(path)
            yield

    return place


def make_dead(path: Path) -> None:
    """Leave the socket of a server that is gone."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))


def saying(*parts: bytes, ends: bool = False) -> Place:
    """Have a server that says the first part at once, the others when it is asked, and then waits or ends."""
    talks: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            for place, part in enumerate(parts):
                if place:
                    await _asked(reader)
                writer.write(part)
                await writer.drain()
            if not ends:
                await reader.read()
        writer.close()

    @contextlib.asynccontextmanager
    async def place(path: Path) -> AsyncIterator[None]:
        with aside(path):
            talks.clear()
            server = await asyncio.start_unix_server(talk, path)
            try:
                yield
            finally:
                server.close()
                for writer in talks:
                    writer.close()

    return place


async def _asked(reader: asyncio.StreamReader) -> None:
    """Read on until the headers of a request have come."""
    await reader.readexactly(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    kind = -1
    while kind != HEADERS:
        head = await reader.readexactly(9)
        kind = head[3]
        await reader.readexactly(int.from_bytes(head[:3], "big"))


def noise(seed: int) -> bytes:
    """Return random bytes."""
    return random.Random(seed).randbytes(4096)  # noqa: S311 - garbage is no secret


@contextlib.asynccontextmanager
async def other_service(path: Path) -> AsyncIterator[None]:
    """Have a gRPC server that knows none of the kubelet's methods."""
    with aside(path):
        server = grpc.aio.server()
        server.add_insecure_port(target(str(path)))
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Do what follows without the rights of root, which no mode of a file keeps out."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def let_in(node: FakeNode) -> None:
    """Let any user use the sockets, so that only a fault can forbid it."""
    for path in (node.kubelet.socket, node.kubelet.pods_socket):
        path.chmod(0o777)
        folder = path.parent
        while folder != node._root.parent:
            folder.chmod(0o755)
            folder = folder.parent


def resting(change: Callable[[Path], contextlib.AbstractContextManager[None]]) -> Place:
    """Have a change at the path that takes no loop."""

    @contextlib.asynccontextmanager
    async def place(path: Path) -> AsyncIterator[None]:
        with change(path):
            yield

    return place


@contextlib.contextmanager
def forbidden(path: Path) -> Iterator[None]:
    """Take away the right to use what is at the path."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with as_nobody():
            yield
    finally:
        path.chmod(mode)
