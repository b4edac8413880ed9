"""Reads new samples from the driver's buffers, by GPU."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.records import Call
from exporter.nvml.readings.answers import keep_only

CLOCK_SLACK_SECONDS = 1.0
# The name under which an impossible sample is counted.
IMPOSSIBLE_SAMPLE = "ImpossibleSample"
# The driver's clock may differ, but a timestamp further in the future is garbage.
MOST_AHEAD_SECONDS = 86400.0
# Observed interval between new samples in the buffers.
SAMPLING_SECONDS = 1.0


class SampleReader:
    """Reads new samples, with a separate last timestamp for each GPU: a shared one would lose samples.

    After the wall clock was set back, samples with a later timestamp remain in the driver's buffer. They are
    ignored, or no new sample would count until that time. Reads within SAMPLING_SECONDS, by ``clock``
    (seconds), return the same samples again: without new samples, all processes would look idle.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Time and samples of the last read, by GPU uuid.
        self._read: dict[str, tuple[float, list[Any]]] = {}
        # Timestamp of the newest sample, by GPU uuid, in microseconds.
        self._newest: dict[str, int] = {}
        self._clock_offset = _clock_offset()
        # Seconds from the newest sample to the last read, and those of the read before, by GPU uuid.
        self._behind: dict[str, float] = {}
        self._overlap: dict[str, float] = {}
        self._set_back = False
        self._ignored: dict[str, set[int]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any, forms: Sequence[Call]) -> list[Any] | None:
        """Return the samples since the last read, oldest first, from the first call that is supported.

        None if unknown, empty without activity. The first read of a GPU covers the driver's buffer (some
        seconds). Raises as ``Calls.ask`` does.
        """
        now = self._clock()
        if uuid in self._read:
            read_at, last_samples = self._read[uuid]
            if now - read_at < SAMPLING_SECONDS:
                return last_samples
        samples = self._ask(calls, uuid, handle, forms)
        if samples is not None:
            self._read[uuid] = now, samples
        return samples

    def _ask(self, calls: Calls, uuid: str, handle: Any, forms: Sequence[Call]) -> list[Any] | None:
        self._check_clock()
        since = self._newest.get(uuid, 0)
        samples = calls.first(uuid, handle, forms, since=since, none=())
        if samples is None:
            return None
        ignored = self._ignore(uuid, {sample.timeStamp for sample in samples})
        fresh = [
            sample for sample in samples if sample.timeStamp >= since and sample.timeStamp not in ignored
        ]
        # A garbage timestamp must not become the newest one: all later samples would look old.
        latest = latest_time()
        plausible = (sample.timeStamp for sample in fresh if sample.timeStamp <= latest)
        self._newest[uuid] = max(plausible, default=since)
        self._overlap[uuid] = self._behind.get(uuid, 0.0)
        self._behind[uuid] = max(time.time() - self._newest[uuid] / 1e6, 0.0)
        return sorted(fresh, key=lambda sample: (sample.timeStamp <= latest, sample.timeStamp))

    def overlap(self, uuid: str) -> float:
        """Return how many seconds of the last read were before the read before it.

        Only a sample with activity has a timestamp. Of the time after it, the next read is a mean, too.
        """
        return self._overlap.get(uuid, 0.0)

    def keep_only(self, gpus: Collection[str]) -> None:
        """Drop the state of all other GPUs."""
        keep_only(gpus, self._newest, self._ignored, self._read, self._behind, self._overlap)

    def _check_clock(self) -> None:
        """Start over if the wall clock was set back: new samples would look older than the last ones."""
        last_offset, self._clock_offset = self._clock_offset, _clock_offset()
        if self._clock_offset < last_offset - CLOCK_SLACK_SECONDS:
            self._newest.clear()
            self._set_back = True

    def _ignore(self, uuid: str, stamps: set[int]) -> set[int]:
        """Return the timestamps from before the clock was set back, even if the clock has reached them."""
        if not self._set_back:
            return set()
        latest = _microseconds_from_now(CLOCK_SLACK_SECONDS)
        ignored = self._ignored.get(uuid, set())
        self._ignored[uuid] = {stamp for stamp in stamps if stamp > latest or stamp in ignored}
        return self._ignored[uuid]


def latest_time() -> int:
    """Return the latest plausible timestamp in microseconds; a sample with a later one is unknown."""
    return _microseconds_from_now(MOST_AHEAD_SECONDS)


def _microseconds_from_now(seconds: float) -> int:
    return int((time.time() + seconds) * 1e6)


def _clock_offset() -> float:
    return time.time() - time.monotonic()
