"""The poll: every source once, joined into one snapshot that all readers share.

Readers never wait and never lock: they take ``Poller.snapshot``, the whole of the last finished poll.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from exporter.concurrency import wait_for
from exporter.config.settings import Settings
from exporter.model import (
    Allocations,
    CollectorHealth,
    GpuReading,
    HostDevices,
    ProcessPlace,
    Snapshot,
    SystemFiles,
    Workloads,
)
from exporter.model.poll_result import JOBS, NO_PROCESS_LISTS, PollResult
from exporter.poll.collector import Collector
from exporter.poll.gpu_sources import Devices, lists_processes
from exporter.poll.join_thread import Joiner, JoinLateError
from exporter.poll.kubelet_restart import Judged, KubeletRestart, evidence_of
from exporter.poll.pod_names import cause_to_list
from exporter.poll.snapshot_builder import SnapshotBuilder
from exporter.poll.sources import Sources
from exporter.sharing import without_use
from exporter.workloads.running import Placed, is_container_unclear

log = logging.getLogger(__name__)
# A kubelet that comes back is noticed at this pace, whatever the interval between polls.
RETRY_SECONDS = 0.5
MAX_JITTER = 1.0
NO_LISTS = "the driver lists the processes of no device: see gpuslice_nvml_errors_total, and doctor"
BROKEN = "the exporter's own poll fails: see its log"


class Poller:
    """Polls the sources of one node; ``demo`` marks snapshots whose numbers are made up.

    ``clock`` (seconds) measures what is integrated, ``wall`` (Unix time) dates it. How long a poll may take:
    the budget of ``sources``.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Sources,
        *,
        demo: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self._sources = sources
        self._clock = clock
        self._wall = wall
        self._budget = sources.budget
        self._devices = Devices(sources, settings.stale_after, sources.clock)
        self._allocations = Collector("podresources", sources.pod_resources.read)
        self._names = Collector("identity", lambda: sources.names.read(self._cause()))
        self._restart = KubeletRestart(settings.stale_after)
        self._raw: Allocations | None = None
        self._processes: Collector[Placed] = Collector("processes", self._read_processes, accept_late=False)
        self._host_devices = Collector("host_devices", self._read_host_devices)
        self._module = Collector("kernel_module", sources.host_devices.nvidia_module)
        self._files: Collector[Mapping[str, SystemFiles]] = Collector("sharing", sources.files.read)
        jobs = sources.jobs
        self._jobs = None if jobs is None else Collector(JOBS, jobs.read)
        self._builder = SnapshotBuilder(settings, demo=demo)
        self._joiner = Joiner(self._publish)
        self._broken = False
        self._readers: list[Callable[[Snapshot], None]] = []
        self._failing: set[Callable[[Snapshot], None]] = set()
        self.evidence = PollResult()
        self.snapshot = self._builder.first(wall())

    def subscribe(self, reader: Callable[[Snapshot], None]) -> None:
        """Hand each snapshot to ``reader`` on the event loop."""
        self._readers.append(reader)

    async def first(self) -> None:
        """Poll for the first time; a node where this fails is served all the same."""
        await self._sources.start()
        await self._guarded_poll()

    async def run(self) -> None:
        """Poll until cancelled, in a rhythm that keeps its phase and is not that of other nodes."""
        interval = self.settings.poll_interval
        due = time.monotonic() + interval + random.uniform(0, min(interval, MAX_JITTER))  # noqa: S311
        while True:
            # After an early poll the one that is due keeps its time.
            while await self._wait(due):
                await self._guarded_poll()
            await self._guarded_poll()
            due = max(due + interval, time.monotonic())

    async def poll(self) -> Snapshot:
        """Read every source once, join what is known, and publish it; raises JoinLateError."""
        now, left = self._clock(), self._budget.start()
        await self._read_devices_and_holders(left)
        await asyncio.gather(*(each.collect(left(self._budget.dependents)) for each in self._later()))
        self.evidence = self._gather()
        evidence, health, wall = self.evidence, self._health(), self._wall()
        # A node may offer so many ids that pages would wait for them: not on the event loop.
        await self._joiner.run(
            lambda: self._builder.snapshot(evidence, health, now, wall), lambda: left(self._budget.join)
        )
        return self.snapshot

    async def _read_devices_and_holders(self, left: Callable[[float], float]) -> None:
        """Read the devices, then who holds them, but do not wait for a slow driver."""
        devices = asyncio.ensure_future(self._devices.collect(left(self._budget.devices)))
        try:
            await asyncio.wait({devices}, timeout=self._budget.head_start)
            await asyncio.gather(devices, self._read_holders(left))
        finally:
            devices.cancel()

    async def _read_holders(self, left: Callable[[float], float]) -> None:
        """Read the kubelet's list, then names, which are asked for again if the list is another one."""
        end = self._budget.devices
        allocations = asyncio.ensure_future(self._allocations.collect(left(end)))
        try:
            await asyncio.wait({allocations}, timeout=self._budget.head_start)
            await asyncio.gather(allocations, self._names.collect(left(end)))
        finally:
            allocations.cancel()

    def _publish(self, snapshot: Snapshot) -> None:
        """Show a snapshot. A reader that fails keeps it from nobody else."""
        self.snapshot = snapshot
        for reader in self._readers:
            try:
                reader(snapshot)
            except Exception:
                if reader not in self._failing:
                    log.exception("snapshot subscriber raised; it still gets the next snapshot")
                self._failing.add(reader)
            else:
                self._failing.discard(reader)

    async def close(self) -> None:
        """Leave reads that are still under way behind and shut the driver down."""
        for collector in self._others():
            await collector.cancel()
        await self._devices.cancel()
        self._joiner.stop()
        await self._sources.close()

    @property
    def restart_reason(self) -> str | None:
        """Why only a restart of this process can help, None while it is not needed."""
        return self._sources.nvml.restart_reason

    async def _guarded_poll(self) -> None:
        try:
            await self.poll()
        except JoinLateError as error:
            self._fail("poll has no snapshot: %s; the page keeps the last one until it is stale", error)
        except Exception as error:  # noqa: BLE001 - it is logged with its trace
            self._fail("poll failed: %r; the page keeps the last one until it is stale", error, trace=True)
        else:
            self._broken = False

    def _fail(self, message: str, error: Exception, *, trace: bool = False) -> None:
        """Report a poll that failed, once until one succeeds."""
        if not self._broken:
            level = logging.ERROR if trace else logging.WARNING
            log.log(level, message, error, exc_info=error if trace else None)
        self._broken = True
        self._expire()

    def _expire(self) -> None:
        """Empty a page that is too old, and no longer claim that anything on it is well."""
        # A clock that is set back must not keep what is old for ever.
        if abs(self._wall() - self.snapshot.timestamp) > self.settings.stale_after:
            self._publish(self._builder.empty(self.snapshot.timestamp, self._health(), BROKEN))

    async def _wait(self, due: float) -> bool:
        """Sleep until the next poll; return True when something has happened that cannot wait for it.

        That is a kubelet that was away and answers again, a GPU that reports to have been cut anew, and the
        driver to be given up or taken again.
        """
        wake = self._sources.wake
        while (left := due - time.monotonic()) > 0:
            if await wait_for(wake, left if self._kubelet_answers() else min(left, RETRY_SECONDS)):
                wake.clear()
                return True
            left = due - time.monotonic()
            if not self._kubelet_answers() and left > RETRY_SECONDS:
                await self._allocations.collect(left - RETRY_SECONDS)
                if self._kubelet_answers():
                    return True
        return False

    def _kubelet_answers(self) -> bool:
        return self._allocations.health.success

    def _cause(self) -> Hashable:
        places = self._placed().places.values()
        return cause_to_list(self._allocations.value, places, self._names.value or {})

    def _placed(self) -> Placed:
        return self._processes.value or Placed({})

    async def _read_processes(self) -> Placed:
        listed, pods = self._fresh_list(), self._names.fresh_value(self.settings.stale_after) or {}
        filling = listed is not None and not self._restart.is_complete(listed)

        def search(places: Mapping[int, ProcessPlace]) -> bool:
            return filling or is_container_unclear(places.values(), pods)

        return await self._sources.processes.read(self._devices.pids(), search)

    async def _read_host_devices(self) -> HostDevices:
        return await self._sources.host_devices.read(self._restart.known(self._fresh_list()))

    def _others(self) -> tuple[Collector[Any], ...]:
        return self._allocations, self._names, *self._later()

    def _later(self) -> tuple[Collector[Any], ...]:
        """List those that wait until devices and holders are known, or that need not come before."""
        always = self._processes, self._host_devices, self._files, self._module
        return always if self._jobs is None else (*always, self._jobs)

    def _health(self) -> tuple[CollectorHealth, ...]:
        listed = (
            self._allocations.health,
            self._processes.health,
            self._names.health,
            self._files.health,
            *(() if self._jobs is None else (self._jobs.health,)),
        )
        devices = self._host_devices.health
        return (*self._devices.health(), *listed, *(() if devices.success else (devices,)))

    def _gather(self) -> PollResult:
        gpus, judged = self._devices.gpus(), self._judged()
        return PollResult(
            gpus=gpus,
            hardware=self._devices.latest(),
            allocations=judged.allocations,
            unlisted=None if judged.allocations is None else judged.unlisted,
            covered=judged.covered,
            confirmed=self._is_confirmed(),
            late=self._devices.late(),
            workloads=self._workloads(gpus),
            host_devices=self._host_devices.fresh_value(self.settings.stale_after),
            node=self._sources.node,
            files=self._shown_files(),
            own_uid=self._sources.own_uid,
            objects_from=self._sources.names.objects_from,
            unfollowed=self._sources.cluster.failures,
            jobs=self._jobs.fresh_value(self.settings.stale_after) if self._jobs is not None else None,
            nvidia_module=self._module.fresh_value(self.settings.stale_after),
        )

    def _shown_files(self) -> Mapping[str, SystemFiles]:
        """Return what the files say: limits for as long as they are fresh, and use of this poll only."""
        found = self._files.fresh_value(self.settings.stale_after) or {}
        return without_use(found) if self._files.failure or self._files.late else found

    def _fresh_list(self) -> Allocations | None:
        """Return the kubelet's last list unless it is stale."""
        return self._allocations.fresh_value(self.settings.stale_after)

    def _judged(self) -> Judged:
        """Judge whether the kubelet's list is complete, and add what is missing in it after a restart."""
        pods = self._names.fresh_value(self.settings.stale_after)
        placed, names = self._placed(), self._sources.names
        running = placed.running if self._processes.health.success else None
        evidence = evidence_of(pods, running, self._sources.own_uid, starting=names.starting)
        return self._restart.judge(self._fresh_list(), evidence)

    def _is_confirmed(self) -> bool:
        """Return True if the kubelet has answered in this poll: one list is not of two polls."""
        before, self._raw = self._raw, self._allocations.value
        return self._kubelet_answers() and not self._allocations.late and self._raw is not before

    def _workloads(self, gpus: tuple[GpuReading, ...]) -> Workloads:
        placed, health = self._placed(), self._processes.health
        listed = lists_processes(gpus)
        return Workloads(
            places=placed.places,
            pods=self._names.fresh_value(self.settings.stale_after),
            process_view=health.success and listed,
            process_view_reason=health.message or ("" if listed else NO_LISTS),
            process_view_code=health.reason or ("" if listed else NO_PROCESS_LISTS),
            superseded=self._sources.names.superseded,
            running=placed.containers,
        )
