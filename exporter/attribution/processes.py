"""The processes of one device, each with whose it is and its own part of what its owner uses."""

from collections.abc import Iterator

from exporter.attribution.owners import Owned
from exporter.attribution.use import Device, compute_of
from exporter.model import ContainerRef, DeviceProcess, ProcessPlace, ProcessRow, Workloads
from exporter.model.snapshot import ProcessWhere


def process_rows(device: Device, owned: Owned, workloads: Workloads) -> Iterator[ProcessRow]:
    """Give a row for each process; the rows of an owner add up to its use where that is a sum (rule 3)."""
    for owner, processes in owned.by_owner.items():
        yield from (_row(device, process, owner, workloads) for process in processes)
    for process in (*owned.outside, *owned.unknown):
        yield _row(device, process, None, workloads)


def _row(
    device: Device, process: DeviceProcess, holder: ContainerRef | None, workloads: Workloads
) -> ProcessRow:
    place = workloads.places.get(process.pid)
    return ProcessRow(
        device=device.key,
        pid=process.pid,
        command=place.command if place is not None and place.known else None,
        kinds=process.kinds,
        holder=holder,
        memory=process.memory,
        compute=compute_of(device, process),
        place=_where(place),
    )


def _where(place: ProcessPlace | None) -> ProcessWhere:
    if place is None or not place.known:
        return "unknown"
    return "host" if place.pod_uid is None else "pod"
