"""Rates out of two readings of a counter, for those who must be told a rate."""

from collections.abc import Iterable, Mapping

from exporter.model import GpuReading


def nvlink_bytes_per_second(before: GpuReading, now: GpuReading) -> float | None:
    """Give the mean traffic over all NVLinks, both directions, between two readings of one GPU.

    None where a reading lacks a counter, where no time has passed, and where a counter fell, because the
    driver was loaded again in between.
    """
    seconds = now.read_monotonic - before.read_monotonic
    old, new = before.traffic_bytes, now.traffic_bytes
    if seconds <= 0:
        return None
    moved = 0
    for direction in ("nvlink_transmit", "nvlink_receive"):
        if direction not in old or direction not in new or new[direction] < old[direction]:
            return None
        moved += new[direction] - old[direction]
    return moved / seconds


class NvlinkRates:
    """The rate of each GPU from sweep to sweep; one that was not read again keeps the rate it had."""

    def __init__(self) -> None:
        self._readings: dict[str, GpuReading] = {}
        self._rates: dict[str, float | None] = {}

    def advance(self, gpus: Iterable[GpuReading]) -> Mapping[str, float]:
        """Take the GPUs of a poll and give bytes per second by uuid; those that are gone are forgotten."""
        latest = {gpu.identity.uuid: gpu for gpu in gpus if gpu.up}
        self._rates = {uuid: self._rate(uuid, gpu) for uuid, gpu in latest.items()}
        self._readings = latest
        return {uuid: rate for uuid, rate in self._rates.items() if rate is not None}

    def _rate(self, uuid: str, now: GpuReading) -> float | None:
        before = self._readings.get(uuid)
        if before is None:
            return None
        if before.read_monotonic == now.read_monotonic:
            return self._rates.get(uuid)
        return nvlink_bytes_per_second(before, now)
