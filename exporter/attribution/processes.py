"""The processes of one device, each with whose it is and its own part of what its owner uses."""

from collections.abc import Iterator

from exporter.attribution.owners import Owned
from exporter.attribution.use import Device, compute_of
from exporter.model import ContainerRef, DeviceProcess, ProcessPlace, ProcessRow, Workloads
from exporter.model.snapshot import ProcessWhere


def process_rows(device: Device, owned: Owned, workloads: Workloads) -> Iterator[ProcessRow]:
    """Give a row for each process; the rows of an owner add up to its use where that is a sum (rule 3)."""
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
