"""The rows of one device: every container that holds it, uses it, or both."""

from collections import defaultdict
from collections.abc import Collection, Iterator

from exporter.attribution.holdings_index import HoldingsIndex
from exporter.attribution.owners import Owned, owners
from exporter.attribution.use import (
    Device,
    Use,
    compute_of,
    use_by_process,
    use_without_processes,
    with_meters,
)
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    DeviceProcess,
    ProcessPlace,
    ProcessRow,
    Workloads,
)
from exporter.model.snapshot import ProcessWhere


def process_rows(device: Device, owned: Owned, workloads: Workloads) -> Iterator[ProcessRow]:
    """Return a row for each process; the rows of an owner add up to its use where that is a sum (rule 3)."""
    computed = compute_of(device, device.processes or ())
    nobodys = (*owned.outside, *owned.unknown)
    for owner, processes in (*owned.by_owner.items(), (None, nobodys)):
        for process in processes:
            place = workloads.places.get(process.pid)
            yield _row(device, process, owner, place, computed[process.pid])


def _row(
    device: Device,
    process: DeviceProcess,
    holder: ContainerRef | None,
    place: ProcessPlace | None,
    computed: float | None,
) -> ProcessRow:
    return ProcessRow(
        device=device.key,
        pid=process.pid,
        command=place.command if place is not None and place.known else None,
        kinds=process.kinds,
        holder=holder,
        memory=process.memory,
        compute=computed,
        place=_where(place),
    )


def _where(place: ProcessPlace | None) -> ProcessWhere:
    if place is None or not place.known:
        return "unknown"
    return "host" if place.pod_uid is None else "pod"


class DeviceJoin:
    """Joins one poll's holdings and processes, device by device.

    ``processes`` are those of the devices whose rows were made; none without a view of processes. On
    ``proven`` devices, who has no row has no process. ``unnamed`` pods are not named by
    elimination. Where holdings are not ``confirmed`` in this poll, nobody is known not to hold a device.
    """

    def __init__(
        self,
        held: HoldingsIndex,
        workloads: Workloads,
        unnamed: Collection[str] = (),
        *,
        confirmed: bool = True,
    ) -> None:
        self.processes: list[ProcessRow] = []
        self.proven: set[DeviceKey] = set()
        self._held = held
        self._workloads = workloads
        self._unnamed = unnamed
        self._confirmed = confirmed
        self._uids = _uids_by_name(workloads)

    def rows(self, device: Device) -> list[ContainerRow]:
        """Return one row for each container on the device."""
        held = self._held.on(device.key)
        owned = Owned()
        if self._workloads.process_view and device.processes is not None:
            owned = owners(device.processes, held, self._workloads, self._unnamed)
            proven = self._workloads.pods is not None and device.fresh and not owned.unknown
            proven = proven and device.lists_all
            if proven:
                self.proven.add(device.key)
            uses = use_by_process(device, held, owned, proven)
            self.processes += process_rows(device, owned, self._workloads)
        else:
            uses = use_without_processes(device, held)
        used = device.memory.used if device.memory is not None else None
        return [
            self._row(device, ref, use, owned.pod_uids.get(ref))
            for ref, use in with_meters(uses, held, used).items()
        ]

    def _row(self, device: Device, ref: ContainerRef, use: Use, uid: str | None) -> ContainerRow:
        has = self._held.entitlement(device.key, device.sharing, ref)
        slices_known = self._confirmed or ref in self._held.on(device.key)
        return ContainerRow(
            holder=ref,
            device=device.key,
            resource=has.resource,
            sharing=has.sharing,
            isolation=has.isolation,
            pod_uid=uid or self._uids.get((ref.namespace, ref.pod), ""),
            model=device.model,
            slices=has.slices if slices_known else None,
            memory_entitled=has.memory,
            compute_entitled=has.compute,
            memory_used=use.memory,
            compute_used=use.compute,
            processes=use.processes,
            memory_source=use.memory_source,
            compute_source=use.compute_source,
        )


def _uids_by_name(workloads: Workloads) -> dict[tuple[str, str], str]:
    """Map names to uids; a name that two pods have had tells no uid."""
    uids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in (workloads.pods or {}).values():
        uids[pod.namespace, pod.name].add(pod.uid)
    return {name: next(iter(known)) for name, known in uids.items() if len(known) == 1}
