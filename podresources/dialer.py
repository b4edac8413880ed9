"""Connections to a Unix socket of the kubelet.

A connection is kept while its calls succeed and the socket's file stays the same. After a failure the next
read opens a new one: a channel kept over an outage would back off for up to two minutes.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio

from podresources.channel import OPTIONS, Connection, reachable, target


def stat_of(path: Path) -> os.stat_result | None:
    """Return the status of a socket's file, None without one."""
    try:
        return path.stat()
    except OSError:
        return None


class Dialer:
    """Connects to the socket ``path``; for one event loop, and for one caller at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: _Channel | None = None

    @asynccontextmanager
    async def connect(self, *, within: float) -> AsyncIterator[Connection]:
        """Yield a connection for calls that end ``within`` this many seconds; raises KubeletError."""
        deadline = asyncio.get_running_loop().time() + within
        opened = await self._take() or _Channel(self._path, within)
        connection = Connection(opened.channel, self._path, deadline)
        try:
            yield connection
        except BaseException:
            connection.failed = True
            raise
        finally:
            if connection.failed:
                await opened.close()
            else:
                self._kept = opened

    async def close(self) -> None:
        """Close the connection that is kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()

    async def _take(self) -> "_Channel | None":
        """Return the connection that is kept; None if it is lost, or the socket has another file."""
        if self._kept is not None and self._kept.is_current():
            kept, self._kept = self._kept, None
            return kept
        await self.close()
        return None


class _Channel:
    """A channel, with the file of its socket."""

    def __init__(self, path: Path, within: float) -> None:
        self._path = path
        self._version = _version(path)
        # A short form of a long path is valid as long as the channel may use it.
        self._address = ExitStack()
        address = self._address.enter_context(reachable(path))
        # Also grpc's limit for a connection that never completes; by default 20 s.
        patience = ("grpc.min_reconnect_backoff_ms", int(within * 1000))
        self.channel = grpc.aio.insecure_channel(target(address), (*OPTIONS, patience))

    def is_current(self) -> bool:
        """Return whether the channel is connected to the socket that has the path now."""
        connected = self.channel.get_state() is grpc.ChannelConnectivity.READY
        return connected and self._version is not None and self._version == _version(self._path)

    async def close(self) -> None:
        """Close the channel."""
        await self.channel.close()
        self._address.close()


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with the socket's file, its owner or its permissions; None without a file."""
    status = stat_of(path)
    return None if status is None else (status.st_dev, status.st_ino, status.st_ctime_ns)
