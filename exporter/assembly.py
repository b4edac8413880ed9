"""One poll's parts put together to a snapshot, with what is kept from poll to poll."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from exporter.accounting import Coverage, Ledger
from exporter.attribution import Attribution, attribute
from exporter.event_rows import event_rows
from exporter.model import (
    Allocations,
    CollectorHealth,
    ContainerRow,
    DriverInfo,
    EventRow,
    GpuReading,
    GpuRow,
    HardwareReading,
    NodeObject,
    NodeRow,
    Snapshot,
    SystemFiles,
    Workloads,
)
from exporter.rates import ClockEvents, NvlinkRates
from exporter.settings import Settings
from exporter.sharing import HostDevices, NodeFacts, Objections, resolve_holdings, vgpu_rows

# The collector that reads the files of sharing systems.
SHARING = "sharing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a snapshot is made of; None is a source that has not answered.

    ``gpus`` are those that can be shown, ``hardware`` is what the drivers say of the node as a whole.
    ``files`` are those of sharing systems, by system; ``own_uid`` is the uid of our own pod, "" in none.
    """

    gpus: tuple[GpuReading, ...] = ()
    hardware: HardwareReading | None = None
    allocations: Allocations | None = None
    workloads: Workloads | None = None
    host_devices: HostDevices | None = None
    node: NodeObject | None = None
    files: Mapping[str, SystemFiles] = field(default_factory=dict)
    own_uid: str = ""


class Assembly:
    """Makes the snapshots of one node; ``demo`` marks those whose numbers are made up."""

    def __init__(self, settings: Settings, *, demo: bool) -> None:
        self._settings = settings
        self._demo = demo
        self._coverage = Coverage()
        self._ledger = Ledger(longest_gap=settings.stale_after)
        self._inconsistent: Counter[tuple[str, str, str]] = Counter()
        self._objections = Objections()
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
            collectors=tuple(replace(health, success=False, message=reason) for health in collectors),
            demo=self._demo,
        )

    def snapshot(
        self, found: Evidence, collectors: Iterable[CollectorHealth], now: float, timestamp: float
    ) -> Snapshot:
        """Join one poll's evidence; ``now`` is the clock of what is integrated, ``timestamp`` Unix time."""
        self._sequence += 1
        workloads = found.workloads or Workloads(places={}, pods=None, process_view=False)
        holdings = resolve_holdings(found.gpus, found.allocations, self._facts(found), self._objections)
        elapsed, covered = self._coverage.advance(found.gpus, now)
        stale = frozenset(gpu.identity.uuid for gpu in found.gpus) - covered.keys()
        attribution = attribute(found.gpus, holdings, workloads, stale)
        self._count_inconsistent(attribution)
        unsure = holdings.unresolved_holders if holdings.known else None
        attribution = self._ledger.advance(attribution, elapsed, covered, timestamp, unsure)
        recent = found.hardware.recent if found.hardware is not None else ()
        self._events = event_rows(recent, self._events, (*self._containers, *attribution.containers))
        self._containers = attribution.containers
        return Snapshot(
            timestamp=timestamp,
            sequence=self._sequence,
            node=replace(self._node(found, workloads), unresolved=holdings.unresolved, blind=holdings.blind),
            gpus=self._gpu_rows(attribution.gpus, found),
            migs=attribution.migs,
            vgpus=vgpu_rows(found.gpus, found.allocations, found.host_devices),
            containers=attribution.containers,
            events=self._events,
            collectors=tuple(map(self._with_objections, collectors)),
            demo=self._demo,
        )

    def _facts(self, found: Evidence) -> NodeFacts:
        return NodeFacts(
            pods=found.workloads.pods if found.workloads is not None else None,
            node=found.node,
            files=found.files,
            host=found.host_devices or HostDevices(),
            own_uid=found.own_uid,
            patterns=self._settings.resource_pattern,
        )

    def _with_objections(self, health: CollectorHealth) -> CollectorHealth:
        """Count what could not be read of annotations and files with the collector of the files."""
        if health.name != SHARING:
            return health
        return replace(health, errors={**health.errors, **self._objections.counts})

    def _gpu_rows(self, rows: Iterable[GpuRow], found: Evidence) -> tuple[GpuRow, ...]:
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

    def _node(self, found: Evidence, workloads: Workloads) -> NodeRow:
        hardware, allocations = found.hardware, found.allocations
        driver = hardware.driver if hardware is not None else DriverInfo()
        return NodeRow(
            name=self._settings.node_name,
            driver=driver if driver != DriverInfo() else None,
            gpu_count=hardware.gpu_count if hardware is not None else None,
            process_view=workloads.process_view,
            process_view_reason=workloads.process_view_reason,
            allocations_read_at=allocations.read_at if allocations is not None else None,
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
