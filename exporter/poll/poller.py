"""The poll: every source is read once, and the results are joined into one snapshot that all readers share.

Readers never wait or lock: they take ``Poller.snapshot``, the result of the last finished poll.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, TypeVar

from exporter.config import Settings
from exporter.model import CollectorHealth, GpuReading, ProcessPlace, Snapshot, SystemFiles, Workloads
from exporter.model.memory_limits import CgroupTree
from exporter.model.poll_result import JOBS, NO_PROCESS_LISTS, PollResult
from exporter.poll.collector import Collector, Joiner, JoinLateError
from exporter.poll.devices import Devices, why_no_lists
from exporter.poll.kubelet_restart import Judged, KubeletRestart, KubeletRetry, running_pods
from exporter.poll.pod_names import cause_to_list
from exporter.poll.snapshot_builder import SnapshotBuilder
from exporter.poll.sources import Sources
from exporter.sharing import without_use
from exporter.workloads.places import Placed, is_container_unclear

log = logging.getLogger(__name__)
T = TypeVar("T")
MAX_JITTER = 1.0
BROKEN = "the exporter's own poll fails; see its log"


class Poller:
    """Polls the sources of one node; ``demo`` marks snapshots of a simulated node.

    ``clock`` (seconds) measures the time between polls and the age of answers, ``wall`` (Unix time) dates
    polls. The time limits are the budget of ``sources``.
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
        self._devices = Devices(sources, settings.stale_after)
        self._allocations = Collector("podresources", sources.pod_resources.read, clock)
        self._retry = KubeletRetry(
            self._allocations, sources.kubelet_socket, lambda: sources.pod_resources.unreachable, clock
        )
        self._names = Collector("identity", lambda: sources.names.read(self._cause()), clock)
        self._restart = KubeletRestart(settings.stale_after, clock)
        self._processes: Collector[Placed] = Collector(
            "processes", self._read_processes, clock, accept_late=False
        )
        self._host_devices = Collector(
            "host_devices",
            lambda: sources.host_devices.read(self._restart.known(self._fresh(self._allocations))),
            clock,
        )
        self._cgroups = Collector("cgroups", self._read_cgroups, clock, accept_late=False)
        self._module = Collector("kernel_module", sources.host_devices.nvidia_module, clock)
        self._files: Collector[Mapping[str, SystemFiles]] = Collector("sharing", sources.files.read, clock)
        jobs = sources.jobs
        self._jobs = None if jobs is None else Collector(JOBS, jobs.read, clock)
        self._builder = SnapshotBuilder(settings, demo=demo)
        self._joiner = Joiner(self._publish)
        self._broken = False
        self._readers: list[Callable[[Snapshot], None]] = []
        self._failing: set[Callable[[Snapshot], None]] = set()
        self.evidence = PollResult()
        self.snapshot = self._builder.empty(wall())

    def subscribe(self, reader: Callable[[Snapshot], None]) -> None:
        """Pass each snapshot to ``reader`` on the event loop."""
        self._readers.append(reader)

    async def first(self) -> None:
        """Poll for the first time; does not raise if that fails."""
        await self._sources.start()
        await self._guarded_poll()

    async def run(self) -> None:
        """Poll until cancelled, at a fixed interval with a random phase: nodes do not poll together."""
        interval = self.settings.poll_interval
        due = self._clock() + interval + random.uniform(0, min(interval, MAX_JITTER))  # noqa: S311
        while True:
            # An early poll does not move the next one.
            while await self._retry.wait(self._sources.wake, due):
                await self._guarded_poll()
            await self._guarded_poll()
            due = max(due + interval, self._clock())

    async def poll(self) -> Snapshot:
        """Read every source once, join the results, and publish the snapshot; raises JoinLateError."""
        now, seconds_until = self._clock(), self._budget.start()
        await self._read_devices_and_holders(seconds_until)
        await asyncio.gather(
            *(collector.collect(seconds_until(self._budget.dependents)) for collector in self._later())
        )
        self.evidence = self._gather()
        evidence, health, wall = self.evidence, self._health(), self._wall()
        # In a thread: with many device ids the join would delay pages on the event loop.
        await self._joiner.run(
            lambda: self._builder.snapshot(evidence, health, now, wall),
            lambda: seconds_until(self._budget.join),
        )
        self._sources.limited_cgroups = self._builder.limited_cgroups
        return self.snapshot

    async def _read_devices_and_holders(self, seconds_until: Callable[[float], float]) -> None:
        """Read the devices, the kubelet's list, and pod names, which are listed again if that has changed."""

        def collect(source: Devices | Collector[Any]) -> Awaitable[None]:
            return source.collect(seconds_until(self._budget.devices))

        def holders() -> Awaitable[None]:
            return self._staggered(lambda: collect(self._allocations), lambda: collect(self._names))

        await self._staggered(lambda: collect(self._devices), holders)

    async def _staggered(
        self, first: Callable[[], Awaitable[None]], then: Callable[[], Awaitable[None]]
    ) -> None:
        """Read one source and then another, but do not wait for a slow one."""
        started = asyncio.ensure_future(first())
        try:
            await asyncio.wait({started}, timeout=self._budget.head_start)
            await asyncio.gather(started, then())
        finally:
            started.cancel()

    def _publish(self, snapshot: Snapshot) -> None:
        """Publish a snapshot. A subscriber that raises does not keep it from the others."""
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
        """Stop waiting for reads that are still running, and shut the driver down."""
        collectors: tuple[Collector[Any], ...] = (self._allocations, self._names, *self._later())
        self._retry.close()
        for collector in collectors:
            await collector.cancel()
        await self._devices.cancel()
        self._joiner.stop()
        await self._sources.close()

    @property
    def restart_reason(self) -> str | None:
        """The reason why this process must be restarted, None if it need not be."""
        return self._sources.nvml.restart_reason

    async def _guarded_poll(self) -> None:
        try:
            await self.poll()
        except JoinLateError as error:
            self._fail("poll has no snapshot: %s; the page keeps the last one until it is stale", error)
        except Exception as error:  # noqa: BLE001 - logged with its traceback
            self._fail("poll failed: %r; the page keeps the last one until it is stale", error, trace=True)
        else:
            self._broken = False

    def _fail(self, message: str, error: Exception, *, trace: bool = False) -> None:
        """Log a failed poll, once until one succeeds; replace a stale snapshot."""
        if not self._broken:
            level = logging.ERROR if trace else logging.WARNING
            log.log(level, message, error, exc_info=error if trace else None)
        self._broken = True
        # An empty snapshot replaces a stale one. The wall clock may have been set back.
        if abs(self._wall() - self.snapshot.timestamp) > self.settings.stale_after:
            self._publish(self._builder.empty(self.snapshot.timestamp, self._health(), BROKEN))

    def _cause(self) -> Hashable:
        places = self._placed().places.values()
        return cause_to_list(self._allocations.value, places, self._names.value or {})

    def _placed(self) -> Placed:
        return self._processes.value or Placed({})

    async def _read_cgroups(self) -> CgroupTree:
        return await self._sources.cgroups.read(self._devices.asked_about_cgroups())

    async def _read_processes(self) -> Placed:
        listed, pods = self._fresh(self._allocations), self._fresh(self._names) or {}
        filling = listed is not None and not self._restart.is_complete(listed)

        def search(places: Mapping[int, ProcessPlace]) -> bool:
            return filling or is_container_unclear(places.values(), pods)

        placed = await self._sources.processes.read(self._devices.pids(), search)
        return placed._replace(gone=await self._devices.gone(placed.places))

    def _later(self) -> tuple[Collector[Any], ...]:
        """Return the collectors that depend on devices and holders, or that can be read after them."""
        always = self._processes, self._cgroups, self._host_devices, self._files, self._module
        return always if self._jobs is None else (*always, self._jobs)

    def _health(self) -> tuple[CollectorHealth, ...]:
        listed: list[Collector[Any]] = [self._allocations, self._processes, self._names, self._files]
        if self._jobs is not None:
            listed.append(self._jobs)
        listed += [each for each in (self._cgroups, self._host_devices) if not each.health.success]
        return (*self._devices.health(), *(collector.health for collector in listed))

    def _gather(self) -> PollResult:
        gpus, judged = self._devices.gpus(), self._judged()
        return PollResult(
            gpus=gpus,
            hardware=self._devices.latest(),
            allocations=judged.allocations,
            unlisted=None if judged.allocations is None else judged.unlisted,
            covered=judged.covered,
            confirmed=self._allocations.health.success and not self._allocations.late,
            late=self._devices.late(),
            workloads=self._workloads(gpus),
            host_devices=self._fresh(self._host_devices),
            node=self._sources.cluster.node,
            files=self._shown_files(),
            own_uid=self._sources.own_uid,
            objects_from=self._sources.names.objects_from,
            objects_pending=self._sources.cluster.pending or self._sources.names.starting,
            node_missing=self._sources.cluster.nameless,
            unfollowed=self._sources.cluster.failures,
            release_objection=self._sources.release.objection,
            jobs=None if self._jobs is None else self._fresh(self._jobs),
            nvidia_module=self._fresh(self._module),
        )

    def _shown_files(self) -> Mapping[str, SystemFiles]:
        """Return the files of sharing systems: limits while they are fresh, use of this poll only."""
        files = self._fresh(self._files) or {}
        return without_use(files) if self._files.failure or self._files.late else files

    def _fresh(self, collector: Collector[T]) -> T | None:
        """Return the last good answer of a source unless it is stale."""
        return collector.fresh_value(self.settings.stale_after)

    def _judged(self) -> Judged:
        """Return the kubelet's list, with the allocations that are missing in it after a restart."""
        pods = self._fresh(self._names)
        placed, names = self._placed(), self._sources.names
        running = placed.running if self._processes.health.success else None
        present = running_pods(pods, running, self._sources.own_uid, starting=names.starting)
        return self._restart.judge(self._fresh(self._allocations), present)

    def _workloads(self, gpus: tuple[GpuReading, ...]) -> Workloads:
        placed, health = self._placed(), self._processes.health
        unlisted = why_no_lists(gpus)
        return Workloads(
            places=placed.places,
            pods=self._fresh(self._names),
            process_view=health.success and not unlisted,
            process_view_reason=health.message or unlisted,
            process_view_code=health.reason or (NO_PROCESS_LISTS if unlisted else ""),
            superseded=self._sources.names.superseded,
            running=None if placed.running is None else placed.running.containers,
            gone=placed.gone,
            cgroups=self._cgroups.value if self._cgroups.health.success else None,
        )
