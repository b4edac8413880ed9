"""Samples that the driver keeps in a buffer: those that are newer than at the last read, of each GPU."""

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from exporter.hardware.calls import Calls

CLOCK_SLACK_SECONDS = 1.0
# A driver may count from elsewhere, but what is further in the future than this is no time at all.
MOST_AHEAD_SECONDS = 86400.0
# Of one that counts as we do nothing is stamped later than this.
SOON_SECONDS = 10.0
# So often, by what is known of drivers, new samples come into the buffer.
SAMPLING_SECONDS = 1.0


class Samples(NamedTuple):
    """Samples, oldest first. What one tells is unknown if its stamp is after ``latest`` (microseconds)."""

    records: list[Any]
    latest: int


class SampleReader:
    """Asks for what is new, with one time stamp for each GPU: a shared one would lose samples of laggards.

    Once the wall clock was set back, the driver's buffer still has samples stamped later than now: they are
    ignored for good, or the stamp would wait for a time that is long to come.
    Who asks again too soon, by ``clock`` (seconds), is given the same samples again: the driver has no newer
    ones yet, which would look as if everyone had become idle.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._read: dict[str, tuple[float, Samples]] = {}
        self._last_seen: dict[str, int] = {}
        self._clock_offset = _clock_offset()
        self._set_back = False
        self._ignored: dict[str, set[int]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any, name: str) -> Samples | None:
        """Return the samples that the call ``name`` has since the last read.

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

    def _ask(self, calls: Calls, uuid: str, handle: Any, name: str) -> Samples | None:
        self._note_clock()
        since = self._last_seen.get(uuid, 0)
        # Nothing is newer than a time that is yet to come: with one, everyone would seem idle until then.
        asked = since if since <= _in_microseconds(SOON_SECONDS) else 0
        records = calls.ask(uuid, name, handle, since=asked, none=())
        if records is None:
            return None
        stamps = {each.timeStamp for each in records}
        stamps -= self._ignore(uuid, stamps)
        latest = _latest(stamp for stamp in stamps if stamp > asked)
        if since > latest:
            since = asked
        first = since if since == asked else since + 1
        fresh = [each for each in records if each.timeStamp >= first and each.timeStamp in stamps]
        # After a stamp that is none, every sample would look like one that was seen.
        self._last_seen[uuid] = max(
            (each.timeStamp for each in fresh if each.timeStamp <= latest), default=since
        )
        return Samples(sorted(fresh, key=lambda each: (each.timeStamp <= latest, each.timeStamp)), latest)

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


def _latest(stamps: Iterable[int]) -> int:
    """Return the latest stamp that is a time: now, for a driver that is seen to stamp with our time."""
    soon, reach = _in_microseconds(SOON_SECONDS), int(MOST_AHEAD_SECONDS * 1e6)
    return soon if any(soon - reach <= stamp <= soon for stamp in stamps) else soon + reach


def _in_microseconds(ahead: float) -> int:
    """Give the time so many seconds from now as a sample would be stamped."""
    return int((time.time() + ahead) * 1e6)


def _clock_offset() -> float:
    return time.time() - time.monotonic()
