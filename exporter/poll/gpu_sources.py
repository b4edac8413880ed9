"""The GPUs of the node as all of their sources tell of them: NVML, AMD's sysfs, a dcgm-exporter."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from exporter.dcgm_scrape import DcgmReading, with_dcgm
from exporter.model import CollectorHealth, DriverInfo, GpuReading, HardwareReading
from exporter.model.lost_gpu import without_values
from exporter.model.sums import total
from exporter.poll.collector import Collector
from exporter.poll.sources import Sources

# What NVML's collector says on a node that has none of its GPUs.
NO_DRIVER = frozenset({"LibraryNotFound", "DriverNotLoaded"})
NOTHING_TOLD = HardwareReading(driver=DriverInfo(), gpus=(), gpu_count=None)


class Devices:
    """Reads the GPUs of the node, each source within its deadline.

    What was read longer ago than ``stale_after`` seconds, by ``clock``, is not shown any more.
    """

    def __init__(
        self,
        sources: Sources,
        stale_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = sources
        self._stale_after = stale_after
        self._clock = clock
        self._began = 0.0
        # A sweep that hangs has read some GPUs: ``latest`` of its source has them, and nothing else has.
        # That there is no NVIDIA driver is not logged on a node that only has AMD GPUs.
        self._nvml = Collector("nvml", _published(sources.nvml.read), tells=False)
        self._amd = Collector("amd", _published(sources.amd.read))
        self._dcgm: Collector[DcgmReading] | None = (
            None if sources.dcgm is None else Collector("dcgm", sources.dcgm.read)
        )

    async def collect(self, within: float) -> None:
        """Read every source once, waiting ``within`` seconds."""
        self._began = self._clock()
        await asyncio.gather(*(collector.collect(within) for collector in self._collectors()))
        if self._concerns(self._nvml):
            self._nvml.tell()

    async def cancel(self) -> None:
        """Stop waiting for reads that are still under way."""
        for collector in self._collectors():
            await collector.cancel()

    def health(self) -> tuple[CollectorHealth, ...]:
        """Tell how the sources are doing, without those of hardware that this node does not have."""
        return tuple(collector.health for collector in self._collectors() if self._concerns(collector))

    def gpus(self) -> tuple[GpuReading, ...]:
        """Return every known GPU; of one that was not read for too long only what it is."""
        oldest = self._clock() - self._stale_after
        gpus = tuple(
            gpu if gpu.read_monotonic >= oldest else without_values(gpu)
            for latest in self._latest()
            for gpu in latest.gpus
        )
        told = self._told_by_dcgm()
        return gpus if told is None else with_dcgm(gpus, told)

    def pids(self) -> dict[int, float | None]:
        """Return the pids on all devices, each with the boot clock when its GPU was read."""
        pids: dict[int, float | None] = {}
        for gpu in self.gpus():
            of_instances = [mig.processes for mig in gpu.mig or ()]
            for processes in (gpu.processes, *of_instances):
                for process in processes or ():
                    pids[process.pid] = _earlier(pids.get(process.pid), gpu.boot_seconds)
        return pids

    def late(self) -> frozenset[str]:
        """Return the uuids of the GPUs that were last read before they were asked for last."""
        readings = (gpu for latest in self._latest() for gpu in latest.gpus)
        return frozenset(gpu.identity.uuid for gpu in readings if gpu.read_monotonic < self._began)

    def latest(self) -> HardwareReading | None:
        """Return what the drivers said of the node as a whole; None before any has answered.

        On a node of two vendors the versions are those of NVIDIA's driver. They are not known while its
        answer is too old, nor is the count while that of one of the two is.
        """
        found = list(self._latest())
        if not found:
            return None
        nvml = self._sources.nvml.latest
        told = list(self._told())
        return HardwareReading(
            driver=told[0].driver,
            gpus=tuple(gpu for reading in found for gpu in reading.gpus),
            gpu_count=total([reading.gpu_count for reading in told]),
            errors=sum((Counter(reading.errors) for reading in found), Counter()),
            costs=nvml.costs if nvml is not None else {},
            watched=nvml.watched if nvml is not None else frozenset(),
            events=nvml.events if nvml is not None else (),
            recent=nvml.recent if nvml is not None else (),
            released=nvml.released if nvml is not None else "",
        )

    def _told_by_dcgm(self) -> DcgmReading | None:
        """Return what was read last, unless that read failed: shares of time are integrated as new ones."""
        if self._dcgm is None or self._dcgm.failure:
            return None
        return self._dcgm.fresh_value(self._stale_after)

    def _latest(self) -> Iterator[HardwareReading]:
        for source in (self._sources.nvml, self._sources.amd):
            if source.latest is not None:
                yield source.latest

    def _told(self) -> Iterator[HardwareReading]:
        """Give what the drivers that have GPUs here said last: nothing, where that is too old."""
        if self._concerns(self._nvml):
            yield self._unless_stale(self._nvml, self._sources.nvml.latest)
        if self._has_amd():
            yield self._unless_stale(self._amd, self._sources.amd.latest)

    def _unless_stale(self, collector: Collector[None], latest: HardwareReading | None) -> HardwareReading:
        return latest if collector.is_fresh(self._stale_after) and latest is not None else NOTHING_TOLD

    def _collectors(self) -> tuple[Collector[Any], ...]:
        return (self._nvml, self._amd, *(() if self._dcgm is None else (self._dcgm,)))

    def _concerns(self, collector: Collector[Any]) -> bool:
        """Leave out AMD where there is none, and NVML on a node that has only AMD.

        A GPU of NVIDIA's without its driver is missed, even beside the graphics of an AMD processor.
        """
        if collector is self._amd:
            return self._has_amd() or not collector.health.success
        only_amd = self._has_amd() and not self._sources.amd.beside_nvidia
        return not (collector is self._nvml and only_amd and collector.failure in NO_DRIVER)

    def _has_amd(self) -> bool:
        return bool(self._sources.amd.latest is not None and self._sources.amd.latest.gpus)


def _published(read: Callable[[], Awaitable[HardwareReading]]) -> Callable[[], Awaitable[None]]:
    """Return ``read`` without its result, which the source publishes itself, GPU by GPU."""

    async def read_only() -> None:
        await read()

    return read_only


def _earlier(one: float | None, other: float | None) -> float | None:
    """Return the stricter of two moments; None is no moment at all."""
    return min((moment for moment in (one, other) if moment is not None), default=None)


def lists_processes(gpus: Iterable[GpuReading]) -> bool:
    """Return True if any device reports its processes, or if there is no device to report any."""
    devices = [device for gpu in gpus if gpu.up for device in (gpu.mig or ()) or (gpu,)]
    return not devices or any(device.processes is not None for device in devices)
