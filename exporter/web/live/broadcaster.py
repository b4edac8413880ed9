"""Streams of server-sent events for many clients: each event is made once per snapshot, for all of them.

There are no queues. A client that has the previous snapshot gets the changes; one that is further behind gets
the whole state as soon as it can take it. A compressed stream is a gzip header and then one part per event.
Each part is compressed on its own and ends at a whole byte, so the same bytes fit into the stream of every
client.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import json
import logging
import time
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from exporter.concurrency import in_thread
from exporter.exposition import accepts_gzip
from exporter.web.parameters import short_text

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "Vary": "Accept-Encoding",
    # Without this nginx buffers the stream.
    "X-Accel-Buffering": "no",
}
# Magic number, deflate, no flags, no time, no extra flags, unknown system: RFC 1952, 2.3.
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW = -zlib.MAX_WBITS
# Higher levels cost more time than they save for events that come with every poll.
_LEVEL = 2


class Message(NamedTuple):
    """One or more events as they are sent."""

    plain: bytes
    zipped: bytes  # as a part of a compressed stream


START = Message(b"", _GZIP_HEAD)
"""The start of a stream."""


def event(name: str, data: Any, tag: str = "") -> Message:
    """Return an event with its data as JSON; ``tag`` is its id, which clients send when they reconnect."""
    lines = [f"id: {tag}"] if tag else []
    return text("\n".join([*lines, f"event: {name}", f"data: {_dumps(data)}", "", ""]))


def text(lines: str) -> Message:
    """Return a message of lines in the format of server-sent events."""
    plain = lines.encode()
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    return Message(plain, packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH))


# JSON on one line, as events need it.
_dumps = json.JSONEncoder(separators=(",", ":")).encode


class Subject(Protocol):
    """Something that changes with each snapshot; equal subjects share a channel."""

    @property
    def beat(self) -> Message:
        """The message sent if there was no other for a while."""

    @property
    def tag(self) -> str:
        """The name of the snapshot that is shown now."""

    async def look(self) -> tuple[str, Any] | None:
        """Return the state with the name of its snapshot, None if the subject does not exist."""

    def greeting(self, now: float) -> Message:
        """Return the first message of a stream, at Unix time ``now``."""

    def whole(self, tag: str, state: Any) -> Message:
        """Return the message with the whole state."""

    def change(self, old: Any, tag: str, new: Any) -> Message:
        """Return the message with the changes from one state to the next."""


class Moment:
    """The state of a subject in one snapshot."""

    def __init__(self, subject: Subject, tag: str, state: Any) -> None:
        self.tag = tag
        self.state = state
        self.previous_tag = ""
        self.change: Message | None = None  # since the previous snapshot
        self._subject = subject
        self._whole: asyncio.Task[Message] | None = None

    async def whole(self) -> Message:
        """Return the message with the whole state, made when the first client needs it."""
        if self._whole is None:
            self._whole = asyncio.ensure_future(in_thread(self._subject.whole, self.tag, self.state))
        # Shielded: a client that disconnects must not cancel it for the others.
        return await asyncio.shield(self._whole)


class Channel:
    """One subject with its clients."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.followers = 0
        self.failing = False
        self.newest: Moment | None = None  # None before the first refresh, and if there is no such subject
        self.bell = asyncio.Event()
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Update the state if there is a new snapshot, and wake the clients."""
        async with self._lock:
            if self.newest is None or self.newest.tag != self.subject.tag:
                self.newest = await self._look()
                self.ring()

    def ring(self) -> None:
        """Wake the clients."""
        bell, self.bell = self.bell, asyncio.Event()
        bell.set()

    async def _look(self) -> Moment | None:
        old, tagged_state = self.newest, await self.subject.look()
        if tagged_state is None:
            return None
        new = Moment(self.subject, *tagged_state)
        if old is not None:
            new.change = await in_thread(self.subject.change, old.state, *tagged_state)
            new.previous_tag = old.tag
        return new


class Ticker:
    """Counts published snapshots, for tasks that wait for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._bell = asyncio.Event()

    def tick(self, _news: object = None) -> None:
        """Count a snapshot; to be called on the event loop."""
        self.count += 1
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def after(self, count: int) -> int:
        """Return the number of snapshots once it is more than ``count``."""
        while self.count <= count:
            await self._bell.wait()
        return self.count


log = logging.getLogger(__name__)
RETRY_AFTER_SECONDS = 30
# Bytes passed to a connection at a time; the next portion follows when the client has read them.
PORTION = 64 * 1024
LONGEST_ID = 100
"""Maximum length of the name of a snapshot in a request."""
GONE = event("gone", {})
"""The last message of a stream if its subject no longer exists."""

Send = Callable[[Message], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Broadcaster:
    """Serves up to ``most`` streams of up to ``subjects`` different subjects."""

    ticker: Ticker
    _: KW_ONLY
    most: int = 200
    subjects: int = 100  # each is drawn with each snapshot
    # Seconds of silence until a stream gets a message: proxies close silent connections, some after 30 s.
    beat: float = 15.0
    # Seconds to read a message: a client that takes longer has disconnected or cannot keep up.
    patience: float = 30.0
    streams: int = field(default=0, init=False)  # number of open streams
    _channels: dict[Subject, Channel] = field(default_factory=dict, init=False)
    _pump: "asyncio.Task[None] | None" = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    async def answer(self, request: web.Request, subject: Subject) -> web.StreamResponse:
        """Stream the changes of a subject until the client, the subject or the server is gone."""
        new_one_too_many = subject not in self._channels and len(self._channels) >= self.subjects
        if self._closed or self.streams >= self.most or new_one_too_many:
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS), "Cache-Control": "no-store"}
            raise web.HTTPServiceUnavailable(text="too many streams are open\n", headers=retry)
        since = short_text(request.query, "since", LONGEST_ID)
        client_tag = request.headers.get("Last-Event-ID", "") or since or ""
        self.streams += 1
        channel = self._channels.setdefault(subject, Channel(subject))
        channel.followers += 1
        try:
            await channel.refresh()
            if channel.newest is None:
                raise web.HTTPNotFound(text="the subject of this stream does not exist\n")
            if request.method == "HEAD":
                return web.Response(headers=HEADERS)
            return await self._stream(request, channel, client_tag)
        finally:
            self.streams -= 1
            channel.followers -= 1
            if not channel.followers and self._channels.get(subject) is channel:
                del self._channels[subject]

    async def close(self, _app: web.Application) -> None:
        """End all streams, so that the server need not wait for them when it stops."""
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()
        for channel in self._channels.values():
            channel.ring()

    async def _stream(self, request: web.Request, channel: Channel, client_tag: str) -> web.StreamResponse:
        zipped = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        response = web.StreamResponse(headers=HEADERS | ({"Content-Encoding": "gzip"} if zipped else {}))
        if self._pump is None:
            self._pump = asyncio.create_task(self._run(), name="streams")
        send = self._sender(request, response, zipped)
        try:
            await response.prepare(request)
            await send(START)
            await self._follow(channel, send, client_tag)
        except TimeoutError:
            # Drop the connection with all unread data.
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            log.debug("event stream client disconnected")
        return response

    async def _follow(self, channel: Channel, send: Send, client_tag: str) -> None:
        await send(channel.subject.greeting(time.time()))
        while not self._closed:
            bell, newest = channel.bell, channel.newest
            if newest is None:
                await send(GONE)
                return
            if newest.tag != client_tag:
                step = newest.change if newest.previous_tag == client_tag else None
                await send(step or await newest.whole())
                client_tag = newest.tag
                continue
            await bell.wait()
            if channel.newest is newest and not self._closed:
                await send(channel.subject.beat)

    def _sender(self, request: web.Request, response: web.StreamResponse, zipped: bool) -> Send:
        async def send(message: Message) -> None:
            body = memoryview(message.zipped if zipped else message.plain)
            async with asyncio.timeout(self.patience):
                for start in range(0, len(body), PORTION):
                    await response.write(body[start : start + PORTION])
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError

        return send

    async def _run(self) -> None:
        """Refresh all channels with each snapshot, and wake them for a beat in between."""
        # From 0, because a snapshot published while the first stream began is new to it.
        seen = 0
        while True:
            try:
                async with asyncio.timeout(self.beat):
                    seen = await self.ticker.after(seen)
            except TimeoutError:
                for channel in tuple(self._channels.values()):
                    channel.ring()
                continue
            for channel in tuple(self._channels.values()):
                await self._refresh(channel)

    async def _refresh(self, channel: Channel) -> None:
        """Refresh a channel; if that fails, only its own pages get no updates."""
        try:
            await channel.refresh()
        except Exception:
            if not channel.failing:
                log.exception("page could not be drawn; open pages get no updates until it can")
            channel.failing = True
        else:
            channel.failing = False
