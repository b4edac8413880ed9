"""Connections over gRPC to a Unix socket of the kubelet, their calls, and what failures mean.

A connection is kept while its calls succeed and the socket's file stays the same. After a failure the next
read opens a new one: a channel kept over an outage would back off for up to two minutes.
"""

import asyncio
import errno
import os
import random
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from socket import AF_UNIX
from socket import socket as open_socket
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote_from_bytes

import grpc
import grpc.aio

from podresources.messages import DECODE_ERRORS

Reason = Literal[
    "absent",
    "permission",
    "unavailable",
    "deadline",
    "rate_limited",
    "too_large",
    "unimplemented",
    "malformed",
    "not_ready",
    "internal",
]

REMEDIES: Final[dict[Reason, str]] = {
    "absent": "check the kubelet's root directory and mount the socket's directory, not the socket itself",
    "permission": "run the exporter as uid 0 (it needs no capability) and let SELinux or AppArmor permit it",
    "unavailable": "check that the kubelet runs; retried at the next poll",
    "deadline": "the kubelet is overloaded or hangs; retried at the next poll",
    "rate_limited": "another client of this socket calls too often; retried at the next poll",
    "too_large": "look for a pod with thousands of devices or resource claims on this node",
    "unimplemented": "check that this is the right socket and that the kubelet has this API enabled",
    "malformed": "check that this is the right socket; the kubelet may be newer than the exporter",
    "not_ready": "the kubelet is still starting; retried at the next poll",
    "internal": "check the kubelet's log",
}

_REASONS: Final[dict[Any, Reason]] = {
    grpc.StatusCode.CANCELLED: "unavailable",
    grpc.StatusCode.UNAVAILABLE: "unavailable",
    grpc.StatusCode.DEADLINE_EXCEEDED: "deadline",
    grpc.StatusCode.UNIMPLEMENTED: "unimplemented",
    grpc.StatusCode.FAILED_PRECONDITION: "not_ready",
    grpc.StatusCode.PERMISSION_DENIED: "permission",
    grpc.StatusCode.UNAUTHENTICATED: "permission",
}
# A rejected call and a response over the size limit have the same code, RESOURCE_EXHAUSTED. Messages: grpc's
# C core and grpc-go "message larger than max", grpc-java "exceeds maximum size", tonic "message length too
# large".
_TOO_LARGE = re.compile(r"larger than max|exceeds maximum|too large", re.IGNORECASE)
_LONGEST_DETAIL = 200
_LONGEST_ADDRESS: Final = 107  # bytes of sockaddr_un.sun_path without its NUL
_PAUSES: Final = (0.1, 0.3)  # seconds; the kubelet's bucket refills at 100 calls per second
# Bytes; decoding less takes no longer than handing it to a thread.
_DECODED_AT_ONCE: Final = 16 << 10
OPTIONS: Final = (
    # By default grpc sends the socket's path, which strict HTTP/2 servers reject.
    ("grpc.default_authority", "localhost"),
    # Bytes; responses of 17.8 MB have been seen. Decoding takes several times as much memory, and anyone who
    # may annotate pods can enlarge the response of the Pods API.
    ("grpc.max_receive_message_length", 32 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_OS_REASONS: Final[dict[int | None, Reason]] = {
    errno.ENOENT: "absent",
    errno.ENOTDIR: "absent",
    errno.ELOOP: "absent",
    errno.ENAMETOOLONG: "absent",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
}
# Not the loop's default pool, which hanging name lookups may fill.
_DECODER: Final = ThreadPoolExecutor(1, thread_name_prefix="decode")
_Answer = TypeVar("_Answer")
FileVersion = tuple[int, int, int]


class KubeletError(Exception):
    """The kubelet gave no usable response; the message has the socket and the remedy.

    ``reason`` is one of a few stable words, usable as a label value. ``unreachable``: no process can be
    reached by the socket's file until it is replaced or its permissions are changed.
    """

    def __init__(self, reason: Reason, socket: Path, detail: str, *, unreachable: bool = False) -> None:
        super().__init__(f"{socket}: {detail} ({reason}): {REMEDIES[reason]}")
        self.reason: Reason = reason
        self.unreachable = unreachable


class KubeletConnection:
    """An open channel to the socket ``path``, with the file that the socket has; calls end by a deadline."""

    def __init__(self, path: Path, within: float) -> None:
        self.deadline = 0.0  # of all calls, in the loop's time
        self.failed = False  # whether a call has failed
        self._path = path
        self._version = version_of(path, "st_ctime_ns")
        # A short form of a long path is valid as long as the channel may use it.
        self._address = ExitStack()
        address = target(self._address.enter_context(reachable(path)))
        # Also grpc's limit for a connection that never completes; by default 20 s.
        backoff = ("grpc.min_reconnect_backoff_ms", int(within * 1000))
        self._channel = grpc.aio.insecure_channel(address, (*OPTIONS, backoff))

    def is_current(self) -> bool:
        """Return whether the channel is connected to the socket that has the path now."""
        connected = self._channel.get_state() is grpc.ChannelConnectivity.READY
        current = version_of(self._path, "st_ctime_ns")
        return connected and current is not None and current == self._version

    async def close(self) -> None:
        await self._channel.close()
        self._address.close()

    async def call(self, method: str, decode: Callable[[bytes], _Answer]) -> _Answer:
        """Return a decoded response, called without arguments; KubeletError if the call or ``decode`` fails.

        A rate-limited call is retried before the deadline.
        """
        answer = await self._with_retries(method)
        try:
            if len(answer) <= _DECODED_AT_ONCE:
                return decode(answer)
            # In a thread, because decoding many megabytes would block the loop.
            return await asyncio.get_running_loop().run_in_executor(_DECODER, decode, answer)
        except DECODE_ERRORS as error:
            text = f"the response of {method} is not valid protobuf"
            raise KubeletError("malformed", self._path, text) from error

    async def _with_retries(self, method: str) -> bytes:
        for pause in _PAUSES:
            wait = pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter is no secret
            try:
                return await self._once(method)
            except KubeletError as error:
                if error.reason != "rate_limited" or self._remaining() <= wait:
                    raise
            await asyncio.sleep(wait)
        return await self._once(method)

    async def _once(self, method: str) -> bytes:
        remaining = self._remaining()
        if remaining <= 0:
            raise KubeletError("deadline", self._path, f"no time left for {method}")
        try:
            answer: bytes = await self._channel.unary_unary(method)(b"", timeout=remaining)
        except grpc.aio.AioRpcError as error:
            self.failed = True
            status = error.with_traceback(None)
        else:
            return answer
        # Not chained, and in no cycle: grpc's error references the call and with it the channel, which
        # connects again and again, although closed, until it is freed.
        try:
            raise _explained(status, self._path)
        finally:
            del status

    def _remaining(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield an absolute form of ``path`` that fits into a socket address, valid inside the block.

    Raises KubeletError if there is none.
    """
    address = path.absolute()
    if len(bytes(address)) <= _LONGEST_ADDRESS:
        yield str(address)
        return
    with _translated(path):
        directory = os.open(address.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        short = Path(f"/proc/self/fd/{directory}/{address.name}")
        if len(bytes(short)) > _LONGEST_ADDRESS:
            raise KubeletError("absent", path, "the name is too long for a socket", unreachable=True)
        yield str(short)
    finally:
        os.close(directory)


def target(address: str) -> str:
    """Return a socket's address as the target of a gRPC channel or server."""
    return f"unix:{quote_from_bytes(os.fsencode(address))}"


def _explained(error: grpc.aio.AioRpcError, path: Path) -> KubeletError:
    """Return the KubeletError for the status that ended a call."""
    code, details = error.code(), " ".join((error.details() or "").split())[:_LONGEST_DETAIL]
    if code is grpc.StatusCode.UNAVAILABLE:
        try:
            probe(path)
        except KubeletError as cause:
            return cause.with_traceback(None)
    reason = _REASONS.get(code, "internal")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        reason = "too_large" if _TOO_LARGE.search(details) else "rate_limited"
    return KubeletError(reason, path, f"{code.name} {details}".rstrip())


def probe(path: Path) -> None:
    """Connect to ``path`` without grpc, which costs little and tells the cause; raises KubeletError."""
    with _translated(path), reachable(path) as address, open_socket(AF_UNIX) as client:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise KubeletError("absent", path, "this is not a socket", unreachable=True)
        client.setblocking(False)
        client.connect(address)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = _OS_REASONS.get(error.errno, "unavailable")
        unreachable = error.errno in (*_OS_REASONS, errno.ECONNREFUSED)
        raise KubeletError(reason, path, error.strerror or str(error), unreachable=unreachable) from error


class Dialer:
    """Connects to the socket ``path``; for one event loop, and for one caller at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: KubeletConnection | None = None

    @asynccontextmanager
    async def connect(self, *, within: float) -> AsyncIterator[KubeletConnection]:
        """Yield a connection for calls that end ``within`` this many seconds; raises KubeletError."""
        deadline = asyncio.get_running_loop().time() + within
        connection = await self._take() or KubeletConnection(self._path, within)
        connection.deadline = deadline
        try:
            yield connection
        except BaseException:
            connection.failed = True
            raise
        finally:
            if connection.failed:
                await connection.close()
            else:
                self._kept = connection

    async def close(self) -> None:
        """Close the connection that is kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()

    async def _take(self) -> KubeletConnection | None:
        """Return the connection that is kept; None if it is lost, or the socket has another file."""
        if self._kept is not None and self._kept.is_current():
            kept, self._kept = self._kept, None
            return kept
        await self.close()
        return None


def version_of(path: Path, changed: Literal["st_mtime_ns", "st_ctime_ns"]) -> FileVersion | None:
    """Return what identifies a socket's file, which reuses inode numbers; None without a file.

    The mtime of a socket is that of its creation; the ctime also changes with its owner and permissions.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, getattr(status, changed)
