"""The poll: every source once, joined into one snapshot that all readers share.

Readers never wait and never lock: they take ``Poller.snapshot``, the whole of the last finished poll.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from exporter.accounting import Coverage, Ledger
from exporter.attribution import Attribution, attribute
from exporter.collector import Collector
from exporter.hardware import without_values
from exporter.model import (
    Allocations,
    GpuReading,
    HardwareReading,
    NodeRow,
    PodIdentity,
    ProcessPlace,
    Snapshot,
    Workloads,
)
from exporter.settings import Settings
from exporter.sharing import resolve_holdings
from exporter.sources import Sources, source_deadline

log = logging.getLogger(__name__)
# A kubelet that comes back is noticed at this pace, whatever the interval between polls.
RETRY_SECONDS = 0.5
MAX_JITTER = 1.0
NO_LISTS = "the driver lists the processes of no device: see gpuslice_nvml_errors_total, and doctor"
BROKEN = "the exporter's own poll fails: see its log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a snapshot was made of; None is a source that has not answered."""

    hardware: HardwareReading | None = None
    allocations: Allocations | None = None
    workloads: Workloads | None = None


class Poller:
    """Polls the sources of one node; ``demo`` marks snapshots whose numbers are made up.

    ``deadline`` is how long each source may take, by default about the interval between polls. ``clock``
    (seconds) measures what is integrated, ``wall`` (Unix time) dates it.
    """

    def __init__(  # noqa: PLR0913 - what differs between the daemon, one poll, and a test of them
        self,
        settings: Settings,
        sources: Sources,
        *,
        demo: bool = False,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._sources = sources
        self._demo = demo
        self._clock = clock
        self._wall = wall
        deadline = deadline or source_deadline(settings.poll_interval)
        self._nvml: Collector[HardwareReading] = Collector("nvml", sources.nvml.read, deadline)
        self._allocations: Collector[Allocations] = Collector(
            "podresources", sources.pod_resources.read, deadline
        )
        self._names: Collector[Mapping[str, PodIdentity]] = Collector(
            "identity", sources.names.read, deadline
        )
        self._processes: Collector[Mapping[int, ProcessPlace]] = Collector(
            "processes", self._read_processes, deadline
        )
        self._collectors: tuple[Collector[Any], ...] = (
            self._nvml,
            self._allocations,
            self._processes,
            self._names,
        )
        self._coverage = Coverage()
        self._ledger = Ledger(longest_gap=settings.stale_after)
        self._inconsistent: Counter[tuple[str, str, str]] = Counter()
        self.evidence = Evidence()
        self._sequence = 0
        self._broken = False
        self.snapshot = Snapshot(
            timestamp=wall(), sequence=0, node=NodeRow(name=settings.node_name), demo=demo
        )

    async def first(self) -> None:
        """Poll for the first time; a node where this fails is served all the same."""
        await self._guarded_poll()

    async def run(self) -> None:
        """Poll until cancelled, in a rhythm that keeps its phase and is not that of other nodes."""
        interval = self.settings.poll_interval
        due = time.monotonic() + interval + random.uniform(0, min(interval, MAX_JITTER))  # noqa: S311
        while True:
            # After an early poll the one that is due keeps its time.
            while await self._wait(due):
                await self._guarded_poll(early=True)
            await self._guarded_poll()
            due = max(due + interval, time.monotonic())

    async def poll(self, devices: bool = True) -> Snapshot:
        """Read every source once, each within its deadline, and publish what is known.

        Without ``devices`` the GPUs are not asked: the last reading of them still stands.
        """
        now = self._clock()
        device_reads = [self._nvml.collect()] if devices else []
        await asyncio.gather(*device_reads, self._allocations.collect(), self._names.collect())
        await self._processes.collect()
        self._sequence += 1
        self.snapshot = self._join(now)
        return self.snapshot

    async def close(self) -> None:
        """Leave reads that are still under way behind and shut the driver down."""
        for collector in self._collectors:
            await collector.cancel()
        await self._sources.close()

    @property
    def restart_reason(self) -> str | None:
        """Why only a restart of this process can help, None while it is not needed."""
        return self._sources.nvml.restart_reason

    async def _guarded_poll(self, early: bool = False) -> None:
        try:
            # Asked twice within a moment, a driver has no newer samples, which would look like idleness.
            await self.poll(devices=not early)
        except Exception:
            if not self._broken:
                log.exception("the poll fails; the page keeps the one before until it is stale")
            self._broken = True
            self._expire()
        else:
            self._broken = False

    def _expire(self) -> None:
        """Empty a page that is too old, and no longer claim that anything on it is well."""
        if self._wall() - self.snapshot.timestamp <= self.settings.stale_after:
            return
        self.snapshot = Snapshot(
            timestamp=self.snapshot.timestamp,
            sequence=self._sequence,
            node=NodeRow(name=self.settings.node_name, process_view_reason=BROKEN),
            collectors=tuple(
                replace(collector.health, success=False, message=BROKEN) for collector in self._collectors
            ),
            demo=self._demo,
        )

    async def _wait(self, due: float) -> bool:
        """Sleep until the next poll, or until a kubelet that was away answers again: then return True."""
        while not self._kubelet_answers() and (left := due - time.monotonic()) > RETRY_SECONDS:
            await asyncio.sleep(RETRY_SECONDS)
            await self._allocations.collect(left - RETRY_SECONDS)
            if self._kubelet_answers():
                return True
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        return False

    def _kubelet_answers(self) -> bool:
        return self._allocations.health.success

    async def _read_processes(self) -> Mapping[int, ProcessPlace]:
        return await self._sources.processes.read(_pids(self._gpus()))

    def _gpus(self) -> tuple[GpuReading, ...]:
        """Return every known GPU; of one that was not read for too long only what it is."""
        latest = self._sources.nvml.latest
        oldest = time.monotonic() - self.settings.stale_after
        return tuple(
            gpu if gpu.read_monotonic >= oldest else without_values(gpu)
            for gpu in (latest.gpus if latest is not None else ())
        )

    def _join(self, now: float) -> Snapshot:
        settings = self.settings
        gpus = self._gpus()
        allocations = self._fresh_allocations()
        holdings = resolve_holdings(gpus, allocations, settings.resource_pattern)
        workloads = self._workloads(gpus)
        elapsed, covered = self._coverage.advance(gpus, now)
        stale = frozenset(gpu.identity.uuid for gpu in gpus) - covered.keys()
        attribution = attribute(gpus, holdings, workloads, stale)
        self.evidence = Evidence(
            hardware=self._sources.nvml.latest, allocations=allocations, workloads=workloads
        )
        self._count_inconsistent(attribution)
        timestamp = self._wall()
        unsure = holdings.unresolved_holders if holdings.known else None
        attribution = self._ledger.advance(attribution, elapsed, covered, timestamp, unsure)
        return Snapshot(
            timestamp=timestamp,
            sequence=self._sequence,
            node=replace(self._node(workloads, allocations), unresolved=holdings.unresolved),
            gpus=attribution.gpus,
            migs=attribution.migs,
            containers=attribution.containers,
            collectors=tuple(collector.health for collector in self._collectors),
            demo=self._demo,
        )

    def _count_inconsistent(self, attribution: Attribution) -> None:
        """Count contradictions, and forget those of devices that are gone."""
        self._inconsistent.update(attribution.inconsistent)
        present = {(row.identity.uuid, "") for row in attribution.gpus} | {
            row.device for row in attribution.migs
        }
        for gone in [key for key in self._inconsistent if key[:2] not in present]:
            del self._inconsistent[gone]

    def _fresh_allocations(self) -> Allocations | None:
        """Return the mapping unless it is stale by its own age.

        A kubelet that has just started may list nothing, and the mapping from before then stands in.
        """
        found = self._allocations.fresh_value(self.settings.stale_after)
        if found is None or self._wall() - found.read_at > self.settings.stale_after:
            return None
        return found

    def _workloads(self, gpus: tuple[GpuReading, ...]) -> Workloads:
        places = self._processes
        listed = _lists_processes(gpus)
        return Workloads(
            places=places.value or {},
            pods=self._names.fresh_value(self.settings.stale_after),
            process_view=places.health.success and listed,
            process_view_reason=places.health.message or ("" if listed else NO_LISTS),
        )

    def _node(self, workloads: Workloads, allocations: Allocations | None) -> NodeRow:
        latest = self._sources.nvml.latest
        current = self._nvml.fresh_value(self.settings.stale_after) is not None
        return NodeRow(
            name=self.settings.node_name,
            driver=latest.driver if latest is not None and current else None,
            gpu_count=latest.gpu_count if latest is not None and current else None,
            process_view=workloads.process_view,
            process_view_reason=workloads.process_view_reason,
            allocations_read_at=allocations.read_at if allocations is not None else None,
            nvml_errors=dict(latest.errors) if latest is not None else {},
            inconsistent=dict(self._inconsistent),
        )


def _lists_processes(gpus: tuple[GpuReading, ...]) -> bool:
    """Whether any device tells its processes; without devices there is nothing to tell."""
    devices = [device for gpu in gpus if gpu.up for device in (gpu.mig or ()) or (gpu,)]
    return not devices or any(device.processes is not None for device in devices)


def _pids(gpus: tuple[GpuReading, ...]) -> dict[int, float | None]:
    """Collect the pids on all devices, each with the boot clock when its GPU was read."""
    pids: dict[int, float | None] = {}
    for gpu in gpus:
        of_instances = [mig.processes for mig in gpu.mig or ()]
        for processes in (gpu.processes, *of_instances):
            for process in processes or ():
                pids[process.pid] = _earlier(pids.get(process.pid), gpu.boot_seconds)
    return pids


def _earlier(one: float | None, other: float | None) -> float | None:
    """Return the stricter of two moments; None is no moment at all."""
    return min((moment for moment in (one, other) if moment is not None), default=None)
