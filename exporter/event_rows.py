"""The newest events of the devices, each with the containers that held the device when it was noticed."""

from collections.abc import Iterable, Sequence

from exporter.model import ContainerRef, ContainerRow, DeviceEvent, EventRow


def event_rows(
    recent: Iterable[DeviceEvent], before: Iterable[EventRow], containers: Sequence[ContainerRow]
) -> tuple[EventRow, ...]:
    """Return a row for each recent event, in their order.

    An event that stands in ``before`` keeps its holders; a new one gets those among ``containers``, the rows
    of this poll and of the one before it: what an event has ended stands in the latter only. A container is
    a holder of a device if it has slices or processes on it; an event of a whole GPU concerns the holders of
    its MIG devices too.
    """
    known = {row.event: row for row in before}
    return tuple(
        known.get(event) or EventRow(event=event, holders=_holders(event, containers)) for event in recent
    )


def _holders(event: DeviceEvent, containers: Iterable[ContainerRow]) -> tuple[ContainerRef, ...]:
    return tuple(sorted({row.holder for row in containers if _concerns(event, row)}))


def _concerns(event: DeviceEvent, row: ContainerRow) -> bool:
    if row.device.uuid != event.uuid or not (row.slices or row.processes):
        return False
    return event.mig_uuid in ("", row.device.mig_uuid)
