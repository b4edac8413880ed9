"""The container and process rows of one device.

Figures of a sharing system that meters its containers itself replace sums (rule 9 of ``docs/join.md``).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.attribution.audit import Audit, audit, with_unseen, without_other_places
from exporter.attribution.cgroup_use import limited, with_charges
from exporter.attribution.closure import closure_of, related, with_unlisted
from exporter.attribution.holdings_index import HoldingsIndex
from exporter.attribution.owners import Owned, owners
from exporter.attribution.use import (
    NOTHING_KNOWN,
    DeviceReading,
    Use,
    percent_by_pid,
    use_by_process,
    use_without_processes,
)
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    Holding,
    Meter,
    PodName,
    ProcessPlace,
    ProcessRow,
    Workloads,
    unambiguous,
)
from exporter.model.snapshot import ProcessWhere


def process_rows(
    device: DeviceReading, percents: Mapping[int, float | None], owned: Owned, workloads: Workloads
) -> Iterator[ProcessRow]:
    """Yield a row for each process; an owner's rows add up to its use unless that is metered (rule 3)."""
    without_owner = (*owned.outside, *owned.unknown)
    for owner, processes in (*owned.by_owner.items(), (None, without_owner)):
        for process in processes:
            if not process.kinds:
                # It is in no list: it has no context any more.
                continue
            place, percent = workloads.places.get(process.pid), percents[process.pid]
            yield ProcessRow(
                device=device.key,
                pid=process.pid,
                command=place.command if place is not None and place.known else None,
                kinds=process.kinds,
                holder=owner,
                memory=process.memory,
                compute=None if percent is None else percent / 100,
                place=_where(place),
            )


def _where(place: ProcessPlace | None) -> ProcessWhere:
    if place is None or not place.known:
        return "unknown"
    return "host" if place.pod_uid is None else "pod"


@dataclass(slots=True, kw_only=True)
class DeviceJoin:
    """Joins one poll's holdings and processes, device by device."""

    held: HoldingsIndex
    workloads: Workloads
    unnamed: Collection[str]  # uids of pods that are not named by elimination
    # Without holdings of this poll, a container without one has an unknown number of slices, not 0.
    confirmed: bool
    # Rows of the containers on the devices joined so far.
    containers: list[ContainerRow] = field(default_factory=list)
    # Rows of the processes on them; empty without a view of processes.
    processes: list[ProcessRow] = field(default_factory=list)
    # Devices on which a container without a row has no process.
    proven: set[DeviceKey] = field(default_factory=set)
    # By uuid of the GPU, both figures of its processes; only of GPUs with accounting.
    audits: dict[str, Audit] = field(default_factory=dict)
    _uids: dict[PodName, str] = field(init=False)  # of pods, by name; without names that two pods have had

    def __post_init__(self) -> None:
        pods = (self.workloads.pods or {}).values()
        self._uids = unambiguous((pod.pod_name, pod.uid) for pod in pods)

    def rows(self, device: DeviceReading) -> list[ContainerRow]:
        """Return one row for each container that holds or uses the device."""
        held = self.held.on(device.key)
        owned = Owned()
        seen = self.workloads.process_view and device.processes is not None
        if seen:
            device = with_unlisted(device, self.workloads)
            workloads = without_other_places(device, self.workloads)
            owned = owners(device.all_processes, held, workloads, self.unnamed)
            owned = with_unseen(device, held, owned)
            uses = self._uses_by_process(device, held, owned)
        else:
            uses = use_without_processes(device, held)
        used = device.memory.used if device.memory is not None else None
        meters = meters_of(held)
        uses = with_meters(uses, meters, used)
        most = device.most if used is None else used
        shown = with_charges(uses, device.charges, meters, most=most, seen=seen)
        rows = [self._row(device, ref, use, owned.pod_uids.get(ref)) for ref, use in shown.items()]
        rows = _with_known_isolation(rows)
        self.containers += rows
        return rows

    def _uses_by_process(
        self, device: DeviceReading, holders: Collection[ContainerRef], owned: Owned
    ) -> dict[ContainerRef, Use]:
        """Return what each container uses, without what is not proven; collect the rows of processes."""
        percents = percent_by_pid(device)
        if (figures := audit(device, percents, owned, self.workloads.places)) is not None:
            self.audits[device.key.uuid] = figures
        self.processes += process_rows(device, percents, owned, self.workloads)
        closure = closure_of(device, owned, self.workloads)
        if closure.listed and closure.memory:
            self.proven.add(device.key)
        doubted = related(owned, self.workloads.places)
        uses = use_by_process(device, percents, holders, owned)
        # What a container did in processes that have ended makes no row for one that holds nothing any more.
        return {
            ref: NOTHING_KNOWN if ref in doubted else closure.observed(use)
            for ref, use in uses.items()
            if ref in holders or use.processes
        }

    def _row(self, device: DeviceReading, ref: ContainerRef, use: Use, uid: str | None) -> ContainerRow:
        has = self.held.entitlement(device.key, device.sharing, ref)
        holds = ref in self.held.on(device.key)
        slices_known = self.confirmed or holds
        row = ContainerRow(
            holder=ref,
            device=device.key,
            resource=has.resource,
            sharing=has.sharing,
            isolation=has.isolation,
            pod_uid=uid or self._uids.get(ref.pod_name, ""),
            model=device.model,
            slices=has.slices if slices_known else None,
            memory_entitled=has.memory,
            compute_entitled=has.compute,
            memory_used=use.memory,
            compute_used=use.compute,
            processes=use.processes,
            memory_source=use.memory_source,
            compute_source=use.compute_source,
            claims=has.claims,
            health=has.health,
        )
        contested = ref in self.held.holdings.contested.get(device.key, ())
        return limited(row, has, device.charges.get(ref), holds=holds and not contested)


def _with_known_isolation(rows: list[ContainerRow]) -> list[ContainerRow]:
    """Return the rows of a device, without hard isolation while a container that holds nothing uses it.

    If it is unknown whether another pod holds the device that it uses, so is the isolation.
    """
    holding = {row.holder.pod_name for row in rows if row.slices}
    if any(row.slices == 0 for row in rows):
        isolation = "none"
    elif any(row.slices is None and row.holder.pod_name not in holding for row in rows):
        isolation = ""
    else:
        return rows
    return [replace(row, isolation=isolation) if row.isolation == "hard" else row for row in rows]


def meters_of(held: Mapping[ContainerRef, Sequence[Holding]]) -> dict[ContainerRef, Meter]:
    """Return the meter of each container that has one: one for a device, however many resources hold it."""
    first = {
        ref: next((holding.meter for holding in holdings if holding.meter), None)
        for ref, holdings in held.items()
    }
    return {ref: meter for ref, meter in first.items() if meter is not None}


def with_meters(
    uses: Mapping[ContainerRef, Use], meters: Mapping[ContainerRef, Meter], used: int | None
) -> dict[ContainerRef, Use]:
    """Return ``uses`` with the sums of metered containers replaced by their meter's figures.

    ``used``: bytes in use on the device, as the driver reports them.
    """
    room = None if used is None else used - sum(use.memory or 0 for use in uses.values())
    pods = {(ref.namespace, ref.pod) for ref in meters}
    result = dict(uses)
    for ref, use in uses.items():
        if ref in meters:
            result[ref] = use if _is_left_over(use, meters[ref], room) else _metered(use, meters[ref])
        elif not ref.container and (ref.namespace, ref.pod) in pods:
            # Processes of a pod without a known container: some of them are those that were metered.
            result[ref] = Use(processes=use.processes)
    return result


def _is_left_over(use: Use, meter: Meter, room: int | None) -> bool:
    """Return True if a meter counts memory of killed processes: it has no process, and the memory is free."""
    idle = use.processes == 0 and use.memory == 0
    return idle and room is not None and (meter.memory or 0) > max(room, 0)


def _metered(use: Use, meter: Meter) -> Use:
    memory, compute = meter.memory, meter.compute
    # The meter has no memory although the driver lists some for the container: its zeros were not observed.
    if meter.memory == 0 and use.memory_source == "process" and use.memory:
        memory = None
        if compute == 0:
            compute = None
    use = replace(use, memory=memory, memory_source="none" if memory is None else meter.source)
    if meter.memory_only:
        return use
    return replace(use, compute=compute, compute_source="none" if compute is None else meter.source)
