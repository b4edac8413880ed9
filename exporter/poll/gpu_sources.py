"""The GPUs of the node from all of their sources: NVML, AMD's sysfs, a dcgm-exporter."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from exporter.dcgm_scrape import DcgmReading, with_dcgm
from exporter.model import CollectorHealth, DriverInfo, GpuReading, HardwareReading
from exporter.model.lost_gpu import without_values
from exporter.model.poll_result import CONFIDENTIAL_LISTS
from exporter.model.sums import total
from exporter.poll.collector import Collector
from exporter.poll.sources import Sources

# Failures of NVML's collector on a node without NVIDIA GPUs.
NO_DRIVER = frozenset({"LibraryNotFound", "DriverNotLoaded"})
NO_LISTS = "the driver reports no process lists; see gpuslice_nvml_errors_total, and doctor"
NO_READING = HardwareReading(driver=DriverInfo(), gpus=(), gpu_count=None)


class Devices:
    """Reads the GPUs of the node, each source within its deadline.

    Readings older than ``stale_after`` seconds, by ``clock``, are dropped.
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
        # A sweep that hangs has read some GPUs: these are in ``latest`` of its source only.
        # On a node that only has AMD GPUs, a missing NVIDIA driver is not logged.
        self._nvml = Collector("nvml", _published(sources.nvml.read), logs_failures=False)
        self._amd = Collector("amd", _published(sources.amd.read))
        self._dcgm: Collector[DcgmReading] | None = (
            None if sources.dcgm is None else Collector("dcgm", sources.dcgm.read)
        )

    async def collect(self, within: float) -> None:
        """Read every source once, waiting ``within`` seconds."""
        self._began = self._clock()
        await asyncio.gather(*(collector.collect(within) for collector in self._collectors()))
        if self._concerns(self._nvml):
            self._nvml.log_failure()

    async def cancel(self) -> None:
        """Stop waiting for reads that are still running."""
        for collector in self._collectors():
            await collector.cancel()

    def health(self) -> tuple[CollectorHealth, ...]:
        """Return the health of each source, except those of hardware that this node does not have."""
        return tuple(collector.health for collector in self._collectors() if self._concerns(collector))

    def gpus(self) -> tuple[GpuReading, ...]:
        """Return every known GPU; one with a stale reading has its identity only."""
        oldest = self._clock() - self._stale_after
        gpus = tuple(
            gpu if gpu.read_monotonic >= oldest else without_values(gpu)
            for latest in self._latest()
            for gpu in latest.gpus
        )
        # After a failed read the last values are not used again: shares of time would be integrated twice.
        dcgm = None if self._dcgm is None or self._dcgm.failure else self._dcgm.fresh_value(self._stale_after)
        return gpus if dcgm is None else with_dcgm(gpus, dcgm)

    def pids(self) -> dict[int, float | None]:
        """Return the pids on all devices, each with the boot clock (seconds) of its first reading."""
        pids: dict[int, float | None] = {}
        for gpu in self.gpus():
            of_instances = (mig.processes for mig in gpu.mig or ())
            for processes in (gpu.processes, *of_instances):
                for process in processes or ():
                    times = pids.get(process.pid), gpu.boot_seconds
                    pids[process.pid] = min((time for time in times if time is not None), default=None)
        return pids

    def late(self) -> frozenset[str]:
        """Return the uuids of the GPUs that were last read before this poll began."""
        readings = (gpu for latest in self._latest() for gpu in latest.gpus)
        return frozenset(gpu.identity.uuid for gpu in readings if gpu.read_monotonic < self._began)

    def latest(self) -> HardwareReading | None:
        """Return the readings of all drivers as one; None before any has answered.

        On a node of two vendors the versions are those of NVIDIA's driver. They are unknown while its answer
        is stale; the GPU count is unknown while either answer is.
        """
        readings = list(self._latest())
        if not readings:
            return None
        nvml = self._sources.nvml.latest
        fresh = list(self._fresh())
        return HardwareReading(
            driver=fresh[0].driver,
            gpus=tuple(gpu for reading in readings for gpu in reading.gpus),
            gpu_count=total([reading.gpu_count for reading in fresh]),
            errors=sum((Counter(reading.errors) for reading in readings), Counter()),
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

    def _fresh(self) -> Iterator[HardwareReading]:
        """Yield the last reading of each driver that has GPUs here, NO_READING if it is stale."""
        if self._concerns(self._nvml):
            yield self._unless_stale(self._nvml, self._sources.nvml.latest)
        if self._has_amd():
            yield self._unless_stale(self._amd, self._sources.amd.latest)

    def _unless_stale(self, collector: Collector[None], latest: HardwareReading | None) -> HardwareReading:
        return latest if collector.is_fresh(self._stale_after) and latest is not None else NO_READING

    def _collectors(self) -> tuple[Collector[Any], ...]:
        return (self._nvml, self._amd, *(() if self._dcgm is None else (self._dcgm,)))

    def _concerns(self, collector: Collector[Any]) -> bool:
        """Return False for AMD on a node without AMD GPUs, and for NVML on a node with AMD GPUs only.

        An NVIDIA GPU without its driver is reported as missing, even next to an AMD processor's graphics.
        """
        if collector is self._amd:
            return self._has_amd() or not collector.health.success
        only_amd = self._has_amd() and not self._sources.amd.beside_nvidia
        return not (collector is self._nvml and only_amd and collector.failure in NO_DRIVER)

    def _has_amd(self) -> bool:
        return bool(self._sources.amd.latest is not None and self._sources.amd.latest.gpus)


def _published(read: Callable[[], Awaitable[HardwareReading]]) -> Callable[[], Awaitable[None]]:
    """Return ``read`` without its result, which the source publishes itself GPU by GPU."""

    async def read_only() -> None:
        await read()

    return read_only


def why_no_lists(gpus: Iterable[GpuReading]) -> str:
    """Return why no device reports its processes; "" if one does, or if there is no device to report any."""
    answering = [gpu for gpu in gpus if gpu.up]
    devices = [device for gpu in answering for device in (gpu.mig or ()) or (gpu,)]
    if not devices or any(device.processes is not None for device in devices):
        return ""
    reasons = {gpu.withheld.get("processes") for gpu in answering}
    return CONFIDENTIAL_LISTS if reasons == {CONFIDENTIAL_LISTS} else NO_LISTS
