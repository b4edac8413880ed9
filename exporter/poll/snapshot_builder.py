"""Builds a snapshot from the results of one poll, and keeps the state between polls.

``exporter/attribution/`` is the join.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from exporter.attribution import NOT_KNOWN, Attribution, CgroupIndex, HoldingsIndex, attribute
from exporter.attribution.charges import without_own_limit
from exporter.config import Settings
from exporter.model import (
    ADVICE_LABEL,
    CollectorHealth,
    ContainerRef,
    ContainerRow,
    DeviceEvent,
    DriverInfo,
    EventRow,
    GpuReading,
    GpuRow,
    Holdings,
    HostDevices,
    JobFiles,
    NodeRow,
    PodIdentity,
    PodRow,
    Snapshot,
    Workloads,
)
from exporter.model.mig_geometry import profiles_of_models
from exporter.model.poll_result import JOBS, POLL_FAILED, SHARING, PollResult
from exporter.model.snapshot import largest_processes
from exporter.poll.accounting import Coverage, Ledger
from exporter.poll.balance_ledger import BalanceLedger
from exporter.poll.condition_tracker import ConditionTracker
from exporter.poll.gpu_counters import NodeCounters
from exporter.poll.several_readings import ClockEvents, NvlinkRates
from exporter.sharing import resolve_holdings
from exporter.sharing.base.holdings import KeptHoldings
from exporter.sharing.base.view import NodeFacts, Objections
from exporter.sharing.kubevirt import vgpu_rows
from exporter.workloads.jobs import gpus_with_jobs, migs_with_jobs
from exporter.workloads.places import place_by_files, place_by_pods

# Polls jitter: up to this many intervals after the previous one, a poll is not a missed one.
LATE = 1.5


def node_facts(
    result: PollResult,
    patterns: tuple[re.Pattern[str], ...],
    ignored_drivers: tuple[re.Pattern[str], ...] = (),
) -> NodeFacts:
    """Return the input of the sharing systems; resources that match ``patterns`` are NVIDIA's."""
    return NodeFacts(
        pods=result.workloads.pods if result.workloads is not None else None,
        node=result.node,
        files=result.files,
        host=result.host_devices or HostDevices(),
        own_uid=result.own_uid,
        patterns=patterns,
        ignored_drivers=ignored_drivers,
        all_listed=result.covered,
    )


class SnapshotBuilder:
    """Builds the snapshots of one node; ``demo`` marks those of a simulated node."""

    def __init__(self, settings: Settings, *, demo: bool) -> None:
        self._settings = settings
        self._demo = demo
        self._coverage = Coverage()
        # ``stale_after`` may be as short as the interval.
        self._ledger = Ledger(longest_gap=max(settings.stale_after, LATE * settings.poll_interval))
        self._balances = BalanceLedger(self._ledger.longest_gap)
        self._inconsistent: Counter[tuple[str, str, str]] = Counter()
        self._objections = Objections()
        self._job_objections = Objections()
        self._holdings = KeptHoldings(
            lambda gpus, allocations, facts: resolve_holdings(gpus, allocations, facts, self._objections)
        )
        self._held = NOT_KNOWN
        # The holdings of the previous poll, and by GPU those of the poll in which it was read.
        self._previous = NOT_KNOWN
        self._held_at_reading: dict[str, HoldingsIndex] = {}
        self._nvlink = NvlinkRates()
        self._clocks = ClockEvents()
        self._counters = NodeCounters()
        self._conditions = ConditionTracker(self._counters)
        self._events: tuple[EventRow, ...] = ()
        self._containers: tuple[ContainerRow, ...] = ()
        self._sequence = 0
        # Directories of the cgroups that the driver is to be asked about, by UUID of the GPU.
        self.limited_cgroups: Mapping[str, Sequence[str]] = {}

    def empty(
        self, timestamp: float, collectors: Iterable[CollectorHealth] = (), reason: str = ""
    ) -> Snapshot:
        """Return a snapshot without rows, in which all collectors fail for ``reason``."""
        return Snapshot(
            timestamp=timestamp,
            sequence=self._sequence,
            node=NodeRow(name=self._settings.node_name, process_view_reason=reason),
            collectors=tuple(
                replace(health, success=False, message=reason, reason=POLL_FAILED) for health in collectors
            ),
            demo=self._demo,
        )

    def snapshot(
        self, result: PollResult, collectors: Iterable[CollectorHealth], now: float, timestamp: float
    ) -> Snapshot:
        """Join one poll's results; ``now`` is on a monotonic clock (seconds), ``timestamp`` is Unix time."""
        self._sequence += 1
        elapsed, covered = self._coverage.advance(result.gpus, now)
        try:
            workloads = result.workloads or Workloads(places={}, pods=None, process_view=False)
            workloads = place_by_files(place_by_pods(workloads, result.own_uid), result.files)
            cgroups = CgroupIndex(workloads, result.gpus)
            result = replace(result, gpus=tuple(without_own_limit(gpu, cgroups) for gpu in result.gpus))
            holdings, attribution = self._joined(result, workloads, cgroups, covered)
            self.limited_cgroups = {gpu.identity.uuid: cgroups.to_ask(gpu, self._held) for gpu in result.gpus}
        except Exception:
            # The time has passed all the same; the energy of it stays unattributed.
            self._ledger.skip(elapsed)
            raise
        self._count_inconsistent(attribution)
        unsure = holdings.unresolved_holders if holdings.known and not result.unlisted else None
        attribution = self._ledger.advance(attribution, elapsed, covered, timestamp, unsure)
        attribution = self._balances.add(
            attribution, self._held, elapsed, covered, confirmed=result.confirmed
        )
        attribution = self._with_believed_counters(attribution, result.gpus)
        job_files = result.jobs or JobFiles()
        self._job_objections.turn(job_files.problems)
        processes, left_out = largest_processes(attribution.processes)
        self._events = event_rows(
            result.hardware.recent, self._events, (*self._containers, *attribution.containers)
        )
        self._containers = attribution.containers
        return Snapshot(
            timestamp=timestamp,
            sequence=self._sequence,
            node=replace(
                self._node(result, workloads),
                unresolved=holdings.unresolved,
                unknown_drivers=holdings.unknown_drivers,
                contested=holdings.contested,
                blind=holdings.blind,
            ),
            gpus=gpus_with_jobs(self._gpu_rows(attribution.gpus, result, timestamp), job_files.jobs),
            migs=migs_with_jobs(attribution.migs, attribution.gpus, job_files.jobs),
            vgpus=vgpu_rows(result.gpus, result.allocations, result.host_devices),
            containers=attribution.containers,
            pods=pod_rows(attribution.containers, workloads, self._settings.pod_labels),
            processes=processes,
            processes_left_out=left_out,
            events=self._events,
            collectors=tuple(map(self._with_objections, collectors)),
            demo=self._demo,
        )

    def _joined(
        self, result: PollResult, workloads: Workloads, cgroups: CgroupIndex, covered: Collection[str]
    ) -> tuple[Holdings, Attribution]:
        settings = self._settings
        facts = node_facts(result, settings.resource_pattern, settings.dra_ignore_driver)
        holdings = self._holdings.of(result.gpus, result.allocations, facts)
        if holdings is not self._held.holdings:
            self._held = HoldingsIndex(holdings)
        current = self._held if result.confirmed else NOT_KNOWN
        listed = [gpu.identity.uuid for gpu in result.gpus]
        stale = {uuid: self._held_at_reading.get(uuid, NOT_KNOWN) for uuid in listed if uuid not in covered}
        # During a late reading, the previous holders still held the device only if the kubelet confirms it.
        previous = self._previous if result.confirmed else NOT_KNOWN
        stale |= dict.fromkeys(result.late.intersection(covered), previous)
        self._held_at_reading = {uuid: stale.get(uuid, current) for uuid in listed}
        self._previous = current
        confirmed = result.confirmed
        return holdings, attribute(
            result.gpus, self._held, workloads, stale, cgroups=cgroups, confirmed=confirmed
        )

    def _with_objections(self, health: CollectorHealth) -> CollectorHealth:
        """Add the counts of unreadable annotations and files to the collector of the files."""
        of_collector = {SHARING: self._objections, JOBS: self._job_objections}
        if health.name not in of_collector:
            return health
        return replace(health, errors={**health.errors, **of_collector[health.name].counts})

    def _with_believed_counters(self, attribution: Attribution, gpus: Iterable[GpuReading]) -> Attribution:
        """Leave out the counters that are not believed; the ledger has its own of energy."""
        believed = self._counters.advance(gpus)
        devices = {(uuid, mig.uuid): mig for uuid, gpu in believed.items() for mig in gpu.mig or ()}
        return replace(
            attribution,
            gpus=tuple(
                row if row.reading is None else replace(row, reading=believed[row.identity.uuid])
                for row in attribution.gpus
            ),
            migs=tuple(replace(row, reading=devices[row.device]) for row in attribution.migs),
        )

    def _gpu_rows(self, rows: Iterable[GpuRow], result: PollResult, timestamp: float) -> tuple[GpuRow, ...]:
        """Add the GPU's events, its conditions, and the values that need more than one reading."""
        known = tuple(rows)
        readings = [row.reading for row in known if row.reading is not None]
        rates, clocks = self._nvlink.advance(readings), self._clocks.advance(readings)
        hardware = result.hardware
        with_events = (
            replace(
                row,
                watched=row.identity.uuid in hardware.watched,
                events=tuple(event for event in hardware.events if event.uuid == row.identity.uuid),
                clock_events=clocks.get(row.identity.uuid, {}),
                nvlink_bytes_per_second=rates.get(row.identity.uuid),
            )
            for row in known
        )
        return self._conditions.advance(with_events, hardware, timestamp, module_loaded=result.nvidia_module)

    def _node(self, result: PollResult, workloads: Workloads) -> NodeRow:
        hardware, allocations = result.hardware, result.allocations
        return NodeRow(
            name=self._settings.node_name,
            driver=hardware.driver if hardware.driver != DriverInfo() else None,
            gpu_count=hardware.gpu_count,
            process_view=workloads.process_view,
            process_view_reason=workloads.process_view_reason,
            allocations_read_at=allocations.read_at if allocations is not None else None,
            unlisted_pods=None if result.unlisted is None else len(result.unlisted),
            nvml_errors=dict(hardware.errors),
            inconsistent=dict(self._inconsistent),
            mig_profiles=profiles_of_models(result.gpus),
            costs=hardware.costs,
            released=hardware.released,
        )

    def _count_inconsistent(self, attribution: Attribution) -> None:
        """Count contradictory readings, and drop the counts of devices that are gone."""
        self._inconsistent.update(attribution.inconsistent)
        present = {(row.identity.uuid, "") for row in attribution.gpus} | {
            row.device for row in attribution.migs
        }
        for gone in [key for key in self._inconsistent if key[:2] not in present]:
            del self._inconsistent[gone]


def event_rows(
    recent: Iterable[DeviceEvent], earlier: Iterable[EventRow], containers: Sequence[ContainerRow]
) -> tuple[EventRow, ...]:
    """Return a row for each recent event, in their order.

    An event among the ``earlier`` rows keeps its holders; a new one gets those among ``containers``, the rows
    of this poll and of the previous one: a container that the event ended is only in the latter. A container
    is a holder of a device if it has slices or processes on it; an event of a whole GPU also concerns the
    holders of its MIG devices.
    """
    known = {row.event: row for row in earlier}

    def holders(event: DeviceEvent) -> tuple[ContainerRef, ...]:
        return tuple(sorted({row.holder for row in containers if _concerns(event, row)}))

    return tuple(known.get(event) or EventRow(event=event, holders=holders(event)) for event in recent)


def _concerns(event: DeviceEvent, row: ContainerRow) -> bool:
    if row.device.uuid != event.uuid or not (row.slices or row.processes):
        return False
    return event.mig_uuid in ("", row.device.mig_uuid)


def pod_rows(
    containers: Iterable[ContainerRow], workloads: Workloads, patterns: Sequence[re.Pattern[str]]
) -> tuple[PodRow, ...]:
    """Return a sorted row for each pod of a container row with a label name that fully matches a pattern.

    The label that turns advice off always has a row. A pod with unknown labels has none.
    """
    uids = {row.pod_uid for row in containers}
    pods = (pod for uid, pod in (workloads.pods or {}).items() if uid in uids)
    rows = (
        _pod_row(pod, patterns) for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid))
    )
    return tuple(row for row in rows if row.labels)


def _pod_row(pod: PodIdentity, patterns: Sequence[re.Pattern[str]]) -> PodRow:
    labels = pod.details.labels if pod.details is not None else {}
    matching = (
        (name, value)
        for name, value in sorted(labels.items())
        if name == ADVICE_LABEL or any(pattern.fullmatch(name) for pattern in patterns)
    )
    return PodRow(namespace=pod.namespace, name=pod.name, uid=pod.uid, labels=tuple(matching))
