"""One poll's parts put together to a snapshot, with what is kept from poll to poll."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from exporter.attribution import NOT_KNOWN, Attribution, HoldingsIndex, attribute
from exporter.config.settings import Settings
from exporter.model import (
    CollectorHealth,
    ContainerRow,
    DriverInfo,
    EventRow,
    GpuRow,
    Holdings,
    HostDevices,
    JobFiles,
    NodeRow,
    Snapshot,
    Workloads,
)
from exporter.model.largest_processes import largest_processes
from exporter.model.poll_result import JOBS, POLL_FAILED, SHARING, PollResult
from exporter.poll.accounting import Coverage, Ledger
from exporter.poll.event_job_pod_rows import event_rows, gpus_with_jobs, migs_with_jobs, pod_rows
from exporter.poll.rates import ClockEvents, NvlinkRates
from exporter.sharing import NodeFacts, Objections, resolve_holdings, vgpu_rows, with_pids
from exporter.sharing.base.holdings_cache import KeptHoldings
from exporter.sharing.base.view import Problem
from exporter.workloads import settled

# Polls are not to the millisecond apart: one that comes by so much of the interval later is no missed one.
LATE = 1.5


class SnapshotBuilder:
    """Makes the snapshots of one node; ``demo`` marks those whose numbers are made up."""

    def __init__(self, settings: Settings, *, demo: bool) -> None:
        self._settings = settings
        self._demo = demo
        self._coverage = Coverage()
        # That may be as short as the interval.
        self._ledger = Ledger(longest_gap=max(settings.stale_after, LATE * settings.poll_interval))
        self._inconsistent: Counter[tuple[str, str, str]] = Counter()
        self._objections = Objections()
        self._job_objections = Objections()
        self._holdings = KeptHoldings(
            lambda gpus, allocations, facts: resolve_holdings(gpus, allocations, facts, self._objections)
        )
        self._held = NOT_KNOWN
        # Those that were told in the poll before, and of each GPU those of the poll in which it was read.
        self._told_before = NOT_KNOWN
        self._held_then: dict[str, HoldingsIndex] = {}
        self._nvlink = NvlinkRates()
        self._clocks = ClockEvents()
        self._events: tuple[EventRow, ...] = ()
        self._containers: tuple[ContainerRow, ...] = ()
        self._sequence = 0

    def first(self, timestamp: float) -> Snapshot:
        """Give the snapshot from before the first poll."""
        node = NodeRow(name=self._settings.node_name)
        return Snapshot(timestamp=timestamp, sequence=0, node=node, demo=self._demo)

    def empty(self, timestamp: float, collectors: Iterable[CollectorHealth], reason: str) -> Snapshot:
        """Give a snapshot that claims nothing, of the time of the last that did."""
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
        self, found: PollResult, collectors: Iterable[CollectorHealth], now: float, timestamp: float
    ) -> Snapshot:
        """Join one poll's evidence; ``now`` is the clock of what is integrated, ``timestamp`` Unix time."""
        self._sequence += 1
        elapsed, covered = self._coverage.advance(found.gpus, now)
        try:
            told = found.workloads or Workloads(places={}, pods=None, process_view=False)
            workloads = with_pids(settled(told, found.own_uid), found.files)
            holdings, attribution = self._joined(found, workloads, covered)
        except Exception:
            # The time has passed all the same, and what was drawn in it is nobody's.
            self._ledger.skip(elapsed)
            raise
        self._count_inconsistent(attribution)
        unsure = holdings.unresolved_holders if holdings.known and not found.unlisted else None
        attribution = self._ledger.advance(attribution, elapsed, covered, timestamp, unsure)
        recent = found.hardware.recent if found.hardware is not None else ()
        jobs = self._jobs(found)
        processes, left_out = largest_processes(attribution.processes)
        self._events = event_rows(recent, self._events, (*self._containers, *attribution.containers))
        self._containers = attribution.containers
        return Snapshot(
            timestamp=timestamp,
            sequence=self._sequence,
            node=replace(self._node(found, workloads), unresolved=holdings.unresolved, blind=holdings.blind),
            gpus=gpus_with_jobs(self._gpu_rows(attribution.gpus, found), jobs),
            migs=migs_with_jobs(attribution.migs, attribution.gpus, jobs),
            vgpus=vgpu_rows(found.gpus, found.allocations, found.host_devices),
            containers=attribution.containers,
            pods=pod_rows(attribution.containers, workloads, self._settings.pod_labels),
            processes=processes,
            processes_left_out=left_out,
            events=self._events,
            collectors=tuple(map(self._with_objections, collectors)),
            demo=self._demo,
        )

    def _joined(
        self, found: PollResult, workloads: Workloads, covered: Collection[str]
    ) -> tuple[Holdings, Attribution]:
        holdings = self._holdings.of(found.gpus, found.allocations, self._facts(found))
        if holdings is not self._held.holdings:
            self._held = HoldingsIndex(holdings)
        told = self._held if found.confirmed else NOT_KNOWN
        listed = [gpu.identity.uuid for gpu in found.gpus]
        stale = {uuid: self._held_then.get(uuid, NOT_KNOWN) for uuid in listed if uuid not in covered}
        # Who held a device before such a reading held it in it only if the kubelet has told the same since.
        before = self._told_before if found.confirmed else NOT_KNOWN
        stale |= dict.fromkeys(found.late.intersection(covered), before)
        self._held_then = {uuid: stale.get(uuid, told) for uuid in listed}
        self._told_before = told
        return holdings, attribute(found.gpus, self._held, workloads, stale, confirmed=found.confirmed)

    def _facts(self, found: PollResult) -> NodeFacts:
        return NodeFacts(
            pods=found.workloads.pods if found.workloads is not None else None,
            node=found.node,
            files=found.files,
            host=found.host_devices or HostDevices(),
            own_uid=found.own_uid,
            patterns=self._settings.resource_pattern,
            all_listed=found.covered,
        )

    def _with_objections(self, health: CollectorHealth) -> CollectorHealth:
        """Count what could not be read of annotations and files with the collector of the files."""
        of_collector = {SHARING: self._objections, JOBS: self._job_objections}
        if health.name not in of_collector:
            return health
        return replace(health, errors={**health.errors, **of_collector[health.name].counts})

    def _jobs(self, found: PollResult) -> Mapping[tuple[int, int | None], tuple[str, ...]]:
        """Return the jobs by device, and object to files that cannot be used."""
        files = found.jobs or JobFiles()
        self._job_objections.turn(Problem(each.reason, each.about, each.text) for each in files.problems)
        return files.jobs

    def _gpu_rows(self, rows: Iterable[GpuRow], found: PollResult) -> tuple[GpuRow, ...]:
        """Add what a GPU has reported, and what takes more than one reading to know."""
        rates, clocks = self._nvlink.advance(found.gpus), self._clocks.advance(found.gpus)
        hardware = found.hardware
        events = hardware.events if hardware is not None else ()
        return tuple(
            replace(
                row,
                watched=hardware is not None and row.identity.uuid in hardware.watched,
                events=tuple(event for event in events if event.uuid == row.identity.uuid),
                clock_events=clocks.get(row.identity.uuid, {}),
                nvlink_bytes_per_second=rates.get(row.identity.uuid),
            )
            for row in rows
        )

    def _node(self, found: PollResult, workloads: Workloads) -> NodeRow:
        hardware, allocations = found.hardware, found.allocations
        driver = hardware.driver if hardware is not None else DriverInfo()
        return NodeRow(
            name=self._settings.node_name,
            driver=driver if driver != DriverInfo() else None,
            gpu_count=hardware.gpu_count if hardware is not None else None,
            process_view=workloads.process_view,
            process_view_reason=workloads.process_view_reason,
            allocations_read_at=allocations.read_at if allocations is not None else None,
            unlisted_pods=None if found.unlisted is None else len(found.unlisted),
            nvml_errors=dict(hardware.errors) if hardware is not None else {},
            inconsistent=dict(self._inconsistent),
            costs=hardware.costs if hardware is not None else {},
            released=hardware.released if hardware is not None else "",
        )

    def _count_inconsistent(self, attribution: Attribution) -> None:
        """Count contradictions, and forget those of devices that are gone."""
        self._inconsistent.update(attribution.inconsistent)
        present = {(row.identity.uuid, "") for row in attribution.gpus} | {
            row.device for row in attribution.migs
        }
        for gone in [key for key in self._inconsistent if key[:2] not in present]:
            del self._inconsistent[gone]
