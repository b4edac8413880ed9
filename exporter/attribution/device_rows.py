"""The container and process rows of one device."""

from collections import defaultdict
from collections.abc import Collection, Iterator

from exporter.attribution.holdings_index import HoldingsIndex
from exporter.attribution.meters import with_meters
from exporter.attribution.owners import Owned, owners
from exporter.attribution.use import (
    Device,
    Use,
    compute_of,
    use_by_process,
    use_without_processes,
)
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    ProcessPlace,
    ProcessRow,
    Workloads,
)
from exporter.model.snapshot import ProcessWhere


def process_rows(device: Device, owned: Owned, workloads: Workloads) -> Iterator[ProcessRow]:
    """Yield a row for each process; an owner's rows add up to its use unless that is metered (rule 3)."""
    compute = compute_of(device)
    without_owner = (*owned.outside, *owned.unknown)
    for owner, processes in (*owned.by_owner.items(), (None, without_owner)):
        for process in processes:
            place = workloads.places.get(process.pid)
            yield ProcessRow(
                device=device.key,
                pid=process.pid,
                command=place.command if place is not None and place.known else None,
                kinds=process.kinds,
                holder=owner,
                memory=process.memory,
                compute=compute[process.pid],
                place=_where(place),
            )


def _where(place: ProcessPlace | None) -> ProcessWhere:
    if place is None or not place.known:
        return "unknown"
    return "host" if place.pod_uid is None else "pod"


class DeviceJoin:
    """Joins one poll's holdings and processes, device by device.

    Pods with a uid in ``unnamed`` are not named by elimination. If the holdings are not ``confirmed`` in this
    poll, a container without a holding has an unknown number of slices, not 0.
    """

    def __init__(
        self,
        held: HoldingsIndex,
        workloads: Workloads,
        unnamed: Collection[str] = (),
        *,
        confirmed: bool = True,
    ) -> None:
        # Rows of the processes on the devices joined so far; empty without a view of processes.
        self.processes: list[ProcessRow] = []
        # Devices on which a container without a row has no process.
        self.proven: set[DeviceKey] = set()
        self._held = held
        self._workloads = workloads
        self._unnamed = unnamed
        self._confirmed = confirmed
        self._uids = _uids_by_name(workloads)

    def rows(self, device: Device) -> list[ContainerRow]:
        """Return one row for each container that holds or uses the device."""
        held = self._held.on(device.key)
        owned = Owned()
        if self._workloads.process_view and device.processes is not None:
            owned = owners(device.processes, held, self._workloads, self._unnamed)
            complete = device.fresh and device.lists_all and not owned.unknown
            proven = self._workloads.pods is not None and complete
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
            claims=has.claims,
            health=has.health,
        )


def _uids_by_name(workloads: Workloads) -> dict[tuple[str, str], str]:
    """Return pod uids by (namespace, name), without names that two pods have had."""
    uids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in (workloads.pods or {}).values():
        uids[pod.namespace, pod.name].add(pod.uid)
    return {name: next(iter(known)) for name, known in uids.items() if len(known) == 1}
