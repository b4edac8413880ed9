"""Values that need two readings of a GPU: NVLink rates, and counts of clock events."""

from collections.abc import Iterable, Mapping

from exporter.model import GpuReading
from exporter.model.readings import CLOCK_EVENT_BITS, ClockEvent


def nvlink_bytes_per_second(earlier: GpuReading, later: GpuReading) -> float | None:
    """Return the mean traffic over all NVLinks, both directions, between two readings of one GPU.

    None if a reading lacks a counter, if no time has passed, and if a counter fell because the driver was
    reloaded in between.
    """
    seconds = later.read_monotonic - earlier.read_monotonic
    old, new = earlier.traffic_bytes, later.traffic_bytes
    if seconds <= 0:
        return None
    moved = 0
    for direction in ("nvlink_transmit", "nvlink_receive"):
        if direction not in old or direction not in new or new[direction] < old[direction]:
            return None
        moved += new[direction] - old[direction]
    return moved / seconds


class NvlinkRates:
    """The rate of each GPU from sweep to sweep; a GPU that was not read again keeps its rate."""

    def __init__(self) -> None:
        self._readings: dict[str, GpuReading] = {}
        self._rates: dict[str, float | None] = {}

    def advance(self, gpus: Iterable[GpuReading]) -> Mapping[str, float]:
        """Take the GPUs of a poll and return bytes per second by uuid; a GPU that is gone is dropped."""
        latest = {gpu.identity.uuid: gpu for gpu in gpus if gpu.up}
        self._rates = {uuid: self._rate(uuid, gpu) for uuid, gpu in latest.items()}
        self._readings = latest
        return {uuid: rate for uuid, rate in self._rates.items() if rate is not None}

    def _rate(self, uuid: str, reading: GpuReading) -> float | None:
        previous = self._readings.get(uuid)
        if previous is None:
            return None
        if previous.read_monotonic == reading.read_monotonic:
            return self._rates.get(uuid)
        return nvlink_bytes_per_second(previous, reading)


class ClockEvents:
    """Counts how often each reason began to limit the clocks of a GPU, from sweep to sweep."""

    def __init__(self) -> None:
        self._masks: dict[str, int] = {}
        self._counts: dict[str, dict[ClockEvent, int]] = {}

    def advance(self, gpus: Iterable[GpuReading]) -> Mapping[str, Mapping[ClockEvent, int]]:
        """Take the GPUs of a poll and return the counts by uuid; a silent GPU keeps its counts."""
        present = set()
        for gpu in gpus:
            present.add(gpu.identity.uuid)
            if gpu.clock_events is not None:
                self._note(gpu.identity.uuid, gpu.clock_events)
        self._masks = {uuid: mask for uuid, mask in self._masks.items() if uuid in present}
        self._counts = {uuid: counts for uuid, counts in self._counts.items() if uuid in present}
        return {uuid: dict(counts) for uuid, counts in self._counts.items()}

    def _note(self, uuid: str, mask: int) -> None:
        # A reason that is active at the first reading began earlier, at an unknown time.
        begun = mask & ~self._masks.get(uuid, mask)
        counts = self._counts.setdefault(uuid, dict.fromkeys(CLOCK_EVENT_BITS.values(), 0))
        for bit, reason in CLOCK_EVENT_BITS.items():
            counts[reason] += int(bool(begun & bit))
        self._masks[uuid] = mask
