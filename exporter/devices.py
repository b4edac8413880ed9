"""The GPUs of the node as all of their sources tell of them: NVML, AMD's sysfs, a dcgm-exporter."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

from exporter.collector import Collector
from exporter.dcgm_scrape import DcgmReading, with_dcgm
from exporter.hardware import without_values
from exporter.model import CollectorHealth, DriverInfo, GpuReading, HardwareReading
from exporter.sources import Sources

# What NVML's collector says on a node that has none of its GPUs.
NO_DRIVER = frozenset({"LibraryNotFound", "DriverNotLoaded"})


class Devices:
    """Reads the GPUs of the node, each source within its deadline.

    What was read longer ago than ``stale_after`` seconds, by ``clock``, is not shown any more.
    """

    def __init__(
        self,
        sources: Sources,
        deadline: float,
        stale_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = sources
        self._stale_after = stale_after
        self._clock = clock
        self._nvml: Collector[HardwareReading] = Collector("nvml", sources.nvml.read, deadline)
        self._amd: Collector[HardwareReading] = Collector("amd", sources.amd.read, deadline)
        self._dcgm: Collector[DcgmReading] | None = (
            None if sources.dcgm is None else Collector("dcgm", sources.dcgm.read, deadline)
        )

    async def collect(self) -> None:
        """Read every source once."""
        await asyncio.gather(*(collector.collect() for collector in self._collectors()))

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
        told = self._dcgm.fresh_value(self._stale_after) if self._dcgm is not None else None
        return gpus if told is None else with_dcgm(gpus, told)

    def latest(self) -> HardwareReading | None:
        """Return what the drivers said of the node as a whole; None before any has answered.

        The driver's versions and the count are not known while its answer is too old.
        """
        found = list(self._latest())
        if not found:
            return None
        nvml = self._sources.nvml.latest
        fresh = [
            reading
            for collector in (self._nvml, self._amd)
            if (reading := collector.fresh_value(self._stale_after)) is not None
        ]
        counted = [reading for reading in fresh if reading is not self._amd.value or reading.gpus]
        return HardwareReading(
            driver=next((reading.driver for reading in counted), DriverInfo()),
            gpus=tuple(gpu for reading in found for gpu in reading.gpus),
            gpu_count=sum(reading.gpu_count or 0 for reading in counted) if counted else None,
            errors={key: count for reading in found for key, count in reading.errors.items()},
            costs=nvml.costs if nvml is not None else {},
            watched=nvml.watched if nvml is not None else frozenset(),
            events=nvml.events if nvml is not None else (),
            recent=nvml.recent if nvml is not None else (),
            released=nvml.released if nvml is not None else "",
        )

    def _latest(self) -> Iterator[HardwareReading]:
        for source in (self._sources.nvml, self._sources.amd):
            if source.latest is not None:
                yield source.latest

    def _collectors(self) -> tuple[Collector[Any], ...]:
        return (self._nvml, self._amd, *(() if self._dcgm is None else (self._dcgm,)))

    def _concerns(self, collector: Collector[Any]) -> bool:
        """Leave out AMD where there is none, and NVML on a node that has only AMD."""
        amd = self._sources.amd.latest
        has_amd = bool(amd is not None and amd.gpus)
        if collector is self._amd:
            return has_amd or not collector.health.success
        if collector is self._nvml and has_amd:
            return collector.health.success or not set(collector.health.errors) <= NO_DRIVER
        return True
