"""Streams of events that many clients follow: what is told is made once per snapshot for all of them.

A client that is behind has no queue. It is told the step from the snapshot before where that is what it has,
and else everything at once, as soon as it can take it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import web

from exporter.concurrency import in_thread
from exporter.exposition.page import accepts_gzip
from exporter.web.http.errors import short_text
from exporter.web.live.sse import HEADERS, START, Message, event


class Subject(Protocol):
    """Something that changes from snapshot to snapshot; subjects that are equal are followed together."""

    @property
    def beat(self) -> Message:
        """What is sent when nothing else has been for a while."""

    @property
    def tag(self) -> str:
        """The name of the snapshot that is shown now."""

    async def look(self) -> tuple[str, Any] | None:
        """Give the state with the name of its snapshot, None where the subject is not there."""

    def greeting(self, now: float) -> Message:
        """Write what each stream begins with, at Unix time ``now``."""

    def whole(self, tag: str, state: Any) -> Message:
        """Write a state for those who know nothing of it."""

    def change(self, old: Any, tag: str, new: Any) -> Message:
        """Write what leads from one state to the next."""


class Moment:
    """A state by the name of its snapshot, and the step to it from the one named ``before``."""

    def __init__(self, tag: str, state: Any, make_whole: Callable[[], Message]) -> None:
        self.tag = tag
        self.state = state
        self.before = ""
        self.change: Message | None = None
        self._make_whole = make_whole
        self._whole: asyncio.Task[Message] | None = None

    async def whole(self) -> Message:
        """Give the event that tells everything, which is made when the first client needs it."""
        if self._whole is None:
            self._whole = asyncio.ensure_future(in_thread(self._make_whole))
        # One reader that goes away must not take it from the others.
        return await asyncio.shield(self._whole)

    def step_from(self, tag: str) -> Message | None:
        """Give the event for a client that knows the snapshot of that name, None where there is none."""
        return self.change if self.before == tag else None


class Channel:
    """One subject; ``newest`` is None until it is looked at, and when the subject is not there."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.followers = 0
        self.failing = False
        self.made = 0
        self.newest: Moment | None = None
        self.bell = asyncio.Event()
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Look at the subject unless this snapshot is known, and wake those who follow it."""
        async with self._lock:
            if self.newest is None or self.newest.tag != self.subject.tag:
                self.newest = await self._look()
                self.ring()

    def ring(self) -> None:
        """Wake those who follow."""
        bell, self.bell = self.bell, asyncio.Event()
        bell.set()

    async def _look(self) -> Moment | None:
        old, found = self.newest, await self.subject.look()
        if found is None:
            return None
        tag, state = found
        new = Moment(tag, state, lambda: self.subject.whole(tag, state))
        if old is not None:
            new.change = await in_thread(self.subject.change, old.state, tag, state)
            new.before = old.tag
            self.made += 1
        return new


class Ticker:
    """Counts the snapshots that are published; whoever waits compares with the last that it has seen."""

    def __init__(self) -> None:
        self.count = 0
        self._bell = asyncio.Event()

    def tick(self, _news: object = None) -> None:
        """Take note of something new, on the event loop."""
        self.count += 1
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def after(self, count: int) -> int:
        """Wait until there are more than ``count``, and return how many."""
        while self.count <= count:
            await self._bell.wait()
        return self.count


log = logging.getLogger(__name__)
MOST_STREAMS = 500
# Each of them is drawn anew with each snapshot.
MOST_SUBJECTS = 100
# Proxies close what is silent for a minute, some for half of one.
BEAT_SECONDS = 15.0
# A client that takes longer for one event is not there any more, or cannot keep up.
PATIENCE_SECONDS = 30.0
RETRY_AFTER_SECONDS = 30
# More than this is never handed to a connection before the client has taken what was before.
PORTION = 64 * 1024
LONGEST_ID = 100
"""Characters of the name of a snapshot that a client may say it knows."""
GONE = event("gone", {})
"""What is sent before the end when the subject is not there any more."""

Send = Callable[[Message], Awaitable[None]]


class Broadcaster:
    """Keeps up to ``most`` streams about ``subjects``, and hands to each what is new about its own."""

    def __init__(
        self,
        ticker: Ticker,
        *,
        most: int = MOST_STREAMS,
        subjects: int = MOST_SUBJECTS,
        beat: float = BEAT_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._ticker = ticker
        self._most = most
        self._subjects = subjects
        self._beat = beat
        self._patience = patience
        self._channels: dict[Subject, Channel] = {}
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self.streams = 0
        """How many clients follow now."""

    async def answer(self, request: web.Request, subject: Subject) -> web.StreamResponse:
        """Stream what happens to a subject until the client or the subject goes, or the server stops."""
        if self._closed or self.streams >= self._most or self._is_one_too_many(subject):
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS), "Cache-Control": "no-store"}
            raise web.HTTPServiceUnavailable(text="too many streams are open here\n", headers=retry)
        since = _known(request)
        self.streams += 1
        channel = self._channels.setdefault(subject, Channel(subject))
        channel.followers += 1
        try:
            await channel.refresh()
            if channel.newest is None:
                raise web.HTTPNotFound(text="what this stream would be about is not there\n")
            if request.method == "HEAD":
                return web.Response(headers=HEADERS)
            return await self._stream(request, channel, since)
        finally:
            self._leave(channel)

    def _is_one_too_many(self, subject: Subject) -> bool:
        """Whether to follow this would be to make one thing more with each snapshot than is made at most."""
        return subject not in self._channels and len(self._channels) >= self._subjects

    async def close(self, _app: web.Application) -> None:
        """End all streams at once, so that nobody waits for them when the server stops."""
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()
        for channel in self._channels.values():
            channel.ring()

    def _leave(self, channel: Channel) -> None:
        self.streams -= 1
        channel.followers -= 1
        if not channel.followers and self._channels.get(channel.subject) is channel:
            del self._channels[channel.subject]

    async def _stream(self, request: web.Request, channel: Channel, since: str) -> web.StreamResponse:
        zipped = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        response = web.StreamResponse(headers=HEADERS)
        if zipped:
            response.headers["Content-Encoding"] = "gzip"
        if self._pump is None:
            self._pump = asyncio.create_task(self._run(), name="streams")
        send = self._sender(request, response, zipped)
        try:
            await response.prepare(request)
            await send(START)
            await self._follow(channel, send, since)
        except TimeoutError:
            # What it has not taken goes with the connection.
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            log.debug("event stream client disconnected")
        return response

    async def _follow(self, channel: Channel, send: Send, at: str) -> None:
        await send(channel.subject.greeting(time.time()))
        while not self._closed:
            bell, newest = channel.bell, channel.newest
            if newest is None:
                await send(GONE)
                return
            if newest.tag != at:
                await send(newest.step_from(at) or await newest.whole())
                at = newest.tag
                continue
            await bell.wait()
            if channel.newest is newest and not self._closed:
                await send(channel.subject.beat)

    def _sender(self, request: web.Request, response: web.StreamResponse, zipped: bool) -> Send:
        async def send(message: Message) -> None:
            body = memoryview(message.zipped if zipped else message.plain)
            async with asyncio.timeout(self._patience):
                for start in range(0, len(body), PORTION):
                    await response.write(body[start : start + PORTION])
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError

        return send

    async def _run(self) -> None:
        """Bring every channel up to date with each snapshot, and let them be heard in between."""
        # What was published while the first stream began is new to it.
        seen = 0
        while True:
            try:
                async with asyncio.timeout(self._beat):
                    seen = await self._ticker.after(seen)
            except TimeoutError:
                for channel in tuple(self._channels.values()):
                    channel.ring()
                continue
            for channel in tuple(self._channels.values()):
                await self._refresh(channel)

    async def _refresh(self, channel: Channel) -> None:
        """Bring a channel up to date; where that fails its pages grow old, and all others go on."""
        try:
            await channel.refresh()
        except Exception:
            if not channel.failing:
                log.exception("page could not be drawn; open pages get no updates until it can")
            channel.failing = True
        else:
            channel.failing = False


def _known(request: web.Request) -> str:
    """Return the name of the snapshot that the client has, "" if it names none."""
    asked = short_text(request.query, "since", LONGEST_ID)
    return request.headers.get("Last-Event-ID", "") or asked or ""
