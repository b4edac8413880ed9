"""Samples that the driver keeps in a buffer: those that are newer than at the last read, of each GPU."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from exporter.nvml.driver.calls import Calls

CLOCK_SLACK_SECONDS = 1.0
# A driver may count from elsewhere, but what is further in the future than this is no time at all.
MOST_AHEAD_SECONDS = 86400.0
# So often, by what is known of drivers, new samples come into the buffer.
SAMPLING_SECONDS = 1.0


class SampleReader:
    """Asks for what is new, with one time stamp for each GPU: a shared one would lose samples of laggards.

    Once the wall clock was set back, the driver's buffer still has samples stamped later than now: they are
    ignored for good, or the stamp would wait for a time that is long to come.
    Who asks again too soon, by ``clock`` (seconds), is given the same samples again: the driver has no newer
    ones yet, which would look as if everyone had become idle.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._read: dict[str, tuple[float, list[Any]]] = {}
        self._last_seen: dict[str, int] = {}
        self._clock_offset = _clock_offset()
        self._set_back = False
        self._ignored: dict[str, set[int]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any, name: str) -> list[Any] | None:
        """Return the samples that the call ``name`` has since the last read, oldest first.

        None when the driver cannot tell, empty when nobody was active. The first read of a GPU covers the
        driver's own buffer (some seconds), each later one the time since the read before.
        """
        now = self._clock()
        if uuid in self._read:
            at, before = self._read[uuid]
            if now - at < SAMPLING_SECONDS:
                return before
        fresh = self._ask(calls, uuid, handle, name)
        if fresh is not None:
            self._read[uuid] = now, fresh
        return fresh

    def _ask(self, calls: Calls, uuid: str, handle: Any, name: str) -> list[Any] | None:
        self._note_clock()
        since = self._last_seen.get(uuid, 0)
        samples = calls.ask(uuid, name, handle, since=since, none=())
        if samples is None:
            return None
        ignored = self._ignore(uuid, {sample.timeStamp for sample in samples})
        fresh = [each for each in samples if each.timeStamp >= since and each.timeStamp not in ignored]
        # After a stamp that is none, every sample would look like one that was seen.
        latest = latest_time()
        self._last_seen[uuid] = max(
            (each.timeStamp for each in fresh if each.timeStamp <= latest), default=since
        )
        return sorted(fresh, key=lambda each: (each.timeStamp <= latest, each.timeStamp))

    def forget(self, known: Iterable[str]) -> None:
        """Keep the time stamps of these GPUs only."""
        keep = set(known)
        self._last_seen = {uuid: seen for uuid, seen in self._last_seen.items() if uuid in keep}
        self._ignored = {uuid: stamps for uuid, stamps in self._ignored.items() if uuid in keep}
        self._read = {uuid: read for uuid, read in self._read.items() if uuid in keep}

    def _note_clock(self) -> None:
        """Start over when the wall clock was set back: new samples would look older than the last."""
        before, self._clock_offset = self._clock_offset, _clock_offset()
        if self._clock_offset < before - CLOCK_SLACK_SECONDS:
            self._last_seen.clear()
            self._set_back = True

    def _ignore(self, uuid: str, stamps: set[int]) -> set[int]:
        """Return those of these stamps that are from before a step back, also when now has reached them."""
        if not self._set_back:
            return set()
        latest = _in_microseconds(CLOCK_SLACK_SECONDS)
        before = self._ignored.get(uuid, set())
        self._ignored[uuid] = {stamp for stamp in stamps if stamp > latest or stamp in before}
        return self._ignored[uuid]


def latest_time() -> int:
    """Return the latest stamp that is a time.

    What a sample with a later one tells is unknown, and older than all else.
    """
    return _in_microseconds(MOST_AHEAD_SECONDS)


def _in_microseconds(ahead: float) -> int:
    """Return the time so many seconds from now as a sample would be stamped."""
    return int((time.time() + ahead) * 1e6)


def _clock_offset() -> float:
    return time.time() - time.monotonic()
