"""Streams of open pages for many clients: each event is made once per snapshot, for all of them.

There are no queues. A client that has the previous snapshot gets the changes; one that is further behind gets
the whole page as soon as it can take it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

from aiohttp import web

from exporter.concurrency import in_thread
from exporter.exposition.negotiation import accepts_gzip
from exporter.web.kit.html import Drawing
from exporter.web.kit.live.events import BEAT, GONE, START, Drawn, Message, change, hello
from exporter.web.kit.parameters import short_text

log = logging.getLogger(__name__)

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "Vary": "Accept-Encoding",
    # Without this nginx buffers the stream.
    "X-Accel-Buffering": "no",
}
RETRY_AFTER_SECONDS = 30
# Bytes passed to a connection at a time; the next portion follows when the client has read them.
PORTION = 64 * 1024
# Maximum length of the name of a snapshot in a request.
LONGEST_TAG = 100

Send = Callable[[Message], Awaitable[None]]


class Pages(Protocol):
    """The pages of the newest snapshot of a node, or of the newest answer about a cluster."""

    @property
    def tag(self) -> str:
        """The name of the snapshot that is shown now."""

    @property
    def timestamp(self) -> float:
        """Unix time of this snapshot."""

    async def drawing(self, place: Any) -> Drawing | None:
        """Return a page, None if its subject does not exist."""


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page that clients follow; equal ones share a channel."""

    pages: Pages
    place: Hashable  # what ``pages`` draws the page by

    async def drawn(self) -> Drawn | None:
        """Return the page as it is now, None if its subject does not exist."""
        tag, timestamp = self.pages.tag, self.pages.timestamp
        drawing = await self.pages.drawing(self.place)
        return None if drawing is None else Drawn(tag, timestamp, drawing)


class Moment:
    """A page in one snapshot."""

    def __init__(self, drawn: Drawn) -> None:
        self.drawn = drawn
        self.previous_tag = ""
        self.change: Message | None = None  # since the previous snapshot
        self._whole: asyncio.Task[Message] | None = None

    async def whole(self) -> Message:
        """Return the event with the whole page, made when the first client needs it."""
        if self._whole is None:
            self._whole = asyncio.ensure_future(in_thread(change, None, self.drawn))
        # Shielded: a client that disconnects must not cancel it for the others.
        return await asyncio.shield(self._whole)


class Channel:
    """One page with its clients."""

    def __init__(self, page: OpenPage) -> None:
        self.followers = 0
        self.failing = False
        self.newest: Moment | None = None  # None before the first refresh, and if there is no such page
        self.bell = asyncio.Event()
        self._page = page
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Draw the page if there is a new snapshot, and wake the clients."""
        async with self._lock:
            if self.newest is None or self.newest.drawn.tag != self._page.pages.tag:
                self.newest = await self._next()
                self.ring()

    def ring(self) -> None:
        """Wake the clients."""
        bell, self.bell = self.bell, asyncio.Event()
        bell.set()

    async def _next(self) -> Moment | None:
        old, drawn = self.newest, await self._page.drawn()
        if drawn is None:
            return None
        new = Moment(drawn)
        if old is not None:
            new.change = await in_thread(change, old.drawn.drawing, drawn)
            new.previous_tag = old.drawn.tag
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


@dataclass(slots=True, eq=False)
class Broadcaster:
    """Serves up to ``most`` streams of up to ``subjects`` different pages."""

    ticker: Ticker
    _: KW_ONLY
    most: int = 200
    subjects: int = 100  # each is drawn with each snapshot
    # Seconds of silence until a stream gets a message: proxies close silent connections, some after 30 s.
    beat: float = 15.0
    # Seconds to read a message: a client that takes longer has disconnected or cannot keep up.
    patience: float = 30.0
    streams: int = field(default=0, init=False)  # number of open streams
    _channels: dict[OpenPage, Channel] = field(default_factory=dict, init=False)
    _pump: "asyncio.Task[None] | None" = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    async def answer(self, request: web.Request, pages: Pages, place: Hashable) -> web.StreamResponse:
        """Stream the changes of a page until the client, the subject or the server is gone."""
        page = OpenPage(pages, place)
        new_one_too_many = page not in self._channels and len(self._channels) >= self.subjects
        if self._closed or self.streams >= self.most or new_one_too_many:
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS), "Cache-Control": "no-store"}
            raise web.HTTPServiceUnavailable(text="too many streams are open\n", headers=retry)
        since = short_text(request.query, "since", LONGEST_TAG)
        client_tag = request.headers.get("Last-Event-ID", "") or since or ""
        self.streams += 1
        channel = self._channels.setdefault(page, Channel(page))
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
            if not channel.followers and self._channels.get(page) is channel:
                del self._channels[page]

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
        await send(hello())
        while not self._closed:
            bell, newest = channel.bell, channel.newest
            if newest is None:
                await send(GONE)
                return
            if newest.drawn.tag != client_tag:
                step = newest.change if newest.previous_tag == client_tag else None
                await send(step or await newest.whole())
                client_tag = newest.drawn.tag
                continue
            await bell.wait()
            if channel.newest is newest and not self._closed:
                await send(BEAT)

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
