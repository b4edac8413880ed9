"""What all who follow one subject share: its newest state, and the events that lead to it."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from exporter.threads import in_thread
from exporter.web.streams.sse import Message


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
