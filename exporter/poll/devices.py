"""The GPUs of a node, as all sources of GPUs report them."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from exporter.dcgm_scrape import DcgmReading, with_dcgm
from exporter.model import CollectorHealth, GpuReading, HardwareReading, ProcessPlace, total
from exporter.model.lost_gpu import without_values
from exporter.model.poll_result import CONFIDENTIAL_LISTS
from exporter.poll.collector import Collector
from exporter.poll.sources import Sources

# Failures of NVML's collector on a node without NVIDIA GPUs.
NO_DRIVER = frozenset({"LibraryNotFound", "DriverNotLoaded"})
# The branch of the driver with memory limits of cgroups.
FIRST_WITH_MEMORY_LIMITS = 615
NO_LISTS = "the driver reports no process lists; see gpuslice_nvml_errors_total, and doctor"


class Devices:
    """Reads the GPUs of the node, each source within its deadline.

    Readings older than ``stale_after`` seconds are dropped.
    """

    def __init__(self, sources: Sources, stale_after: float) -> None:
        self._sources = sources
        self._stale_after = stale_after
        self._clock = sources.clock
        self._began = 0.0
        # A sweep that hangs has read some GPUs: these are in ``latest`` of its source only.
        # On a node that only has AMD GPUs, a missing NVIDIA driver is not logged.
        self._nvml = Collector("nvml", sources.nvml.read, sources.clock, logs_failures=False)
        self._amd = Collector("amd", sources.amd.read, sources.clock)
        self._dcgm: Collector[DcgmReading] | None = (
            None if sources.dcgm is None else Collector("dcgm", sources.dcgm.read, sources.clock)
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
        gpus = tuple(gpu if gpu.read_monotonic >= oldest else without_values(gpu) for gpu in self._read())
        # After a failed read the last values are not used again: shares of time would be integrated twice.
        dcgm = None if self._dcgm is None or self._dcgm.failure else self._dcgm.fresh_value(self._stale_after)
        return gpus if dcgm is None else with_dcgm(gpus, dcgm)

    def pids(self) -> dict[int, float | None]:
        """Return the pids on all devices, each with the boot clock (seconds) of its first reading.

        Also those that computed since the last poll and are in no list any more.
        """
        pids: dict[int, float | None] = {}
        for gpu in self.gpus():
            computed = (pid for pid, percent in (gpu.process_utilization or {}).items() if percent)
            for pid in (*_listed(gpu), *computed, *_accounted(gpu)):
                times = pids.get(pid), gpu.boot_seconds
                pids[pid] = min((time for time in times if time is not None), default=None)
        return pids

    async def gone(self, places: Mapping[int, ProcessPlace]) -> frozenset[int]:
        """Return the pids that ended before their places were read: second lists of their GPUs lack them."""
        ended = {pid for pid, place in places.items() if place.ended and not place.known}
        listed = {gpu.identity.uuid: ended.intersection(_listed(gpu)) for gpu in self.gpus()}
        whole = [
            gpu.identity.uuid for gpu in self.gpus() if listed[gpu.identity.uuid] and not gpu.mig_enabled
        ]
        if not whole or self._nvml.failure or self._nvml.late:
            return frozenset()
        lists = await self._sources.nvml.list_again(whole, self._sources.budget.head_start)
        # A list that has not answered may still have them.
        still = [pids & lists.get(uuid, pids) for uuid, pids in listed.items()]
        return frozenset().union(*listed.values()).difference(*still)

    def asked_about_cgroups(self) -> frozenset[str]:
        """Return the PCI addresses of the GPUs whose driver can be asked about memory limits of cgroups."""
        branch = (self.latest().driver.driver_version or "").partition(".")[0]
        if not branch.isdecimal() or int(branch[:9]) < FIRST_WITH_MEMORY_LIMITS:
            return frozenset()
        gpus = (gpu for gpu in self._read() if gpu.identity.vendor == "nvidia" and not gpu.mig_enabled)
        return frozenset(gpu.identity.pci_bus_id for gpu in gpus)

    def late(self) -> frozenset[str]:
        """Return the uuids of the GPUs that were last read before this poll began."""
        return frozenset(gpu.identity.uuid for gpu in self._read() if gpu.read_monotonic < self._began)

    def latest(self) -> HardwareReading:
        """Return the readings of all drivers as one.

        On a node of two vendors the versions are those of NVIDIA's driver. They are unknown while its answer
        is stale; the GPU count is unknown while either answer is.
        """
        nvml, amd = self._sources.nvml.latest, self._sources.amd.latest
        # Of each driver that has GPUs here.
        of_drivers = [(self._nvml, nvml)] if self._concerns(self._nvml) else []
        of_drivers += [(self._amd, amd)] if self._has_amd() else []
        fresh = [
            reading if collector.is_fresh(self._stale_after) else HardwareReading()
            for collector, reading in of_drivers
        ]
        return replace(
            nvml,
            driver=fresh[0].driver,
            gpus=nvml.gpus + amd.gpus,
            gpu_count=total([reading.gpu_count for reading in fresh]),
            errors=Counter(nvml.errors) + Counter(amd.errors),
        )

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
        return bool(self._sources.amd.latest.gpus)

    def _read(self) -> tuple[GpuReading, ...]:
        return self._sources.nvml.latest.gpus + self._sources.amd.latest.gpus


def _listed(gpu: GpuReading) -> Iterator[int]:
    """Yield the pids in the process lists of a GPU and of its MIG devices."""
    for processes in (gpu.processes, *(mig.processes for mig in gpu.mig or ())):
        yield from (process.pid for process in processes or ())


def _accounted(gpu: GpuReading) -> Iterator[int]:
    """Yield the pids that have computed by the driver's accounting."""
    accounts = gpu.process_accounts
    yield from (pid for pid, account in (accounts.by_pid if accounts else {}).items() if account.gpu_seconds)


def why_no_lists(gpus: Iterable[GpuReading]) -> str:
    """Return why no device reports its processes; "" if one does, or if there is no device to report any."""
    answering = [gpu for gpu in gpus if gpu.up]
    devices = [device for gpu in answering for device in (gpu.mig or ()) or (gpu,)]
    if not devices or any(device.processes is not None for device in devices):
        return ""
    reasons = {gpu.withheld.get("processes") for gpu in answering}
    return CONFIDENTIAL_LISTS if reasons == {CONFIDENTIAL_LISTS} else NO_LISTS
