"""XID errors by DCGM entity: what came from a MIG device belongs to its GPU instance, the rest to the GPU."""

from collections import Counter
from collections.abc import Collection

from exporter.dcgm.row import WINDOW_SECONDS, Xids
from exporter.model import DeviceEvent, EventCount, GpuRow, Snapshot


def xids(snapshot: Snapshot, gpu: GpuRow, mig_uuids: Collection[str] | None) -> Xids:
    """Tell the XID errors that came from one of these MIG devices ("": the whole GPU); None means any."""
    latest: EventCount | None = None
    totals: Counter[int] = Counter()
    for event in gpu.events:
        if event.xid is not None and (mig_uuids is None or event.mig_uuid in mig_uuids):
            totals[event.xid] += event.count
            latest = event if latest is None or event.last >= latest.last else latest
    quiet = 0 if gpu.watched else None
    return Xids(
        last=quiet if latest is None else latest.xid,
        totals=totals,
        recent=_recent(snapshot, gpu, mig_uuids) if gpu.watched else None,
    )


def _recent(snapshot: Snapshot, gpu: GpuRow, mig_uuids: Collection[str] | None) -> Counter[int] | None:
    """Count the codes of the last window, where all events of that time are still listed."""
    events = [row.event for row in snapshot.events]
    start = snapshot.timestamp - WINDOW_SECONDS
    if not _reaches_back(events, gpu, start):
        return None
    return Counter(
        event.xid
        for event in events
        if event.uuid == gpu.identity.uuid
        and event.at > start
        and event.xid is not None
        and (mig_uuids is None or event.mig_uuid in mig_uuids)
    )


def _reaches_back(events: list[DeviceEvent], gpu: GpuRow, start: float) -> bool:
    """Whether the list of the newest events has all of this GPU's since then: it drops the oldest."""
    if events and events[0].at <= start:
        return True
    listed = sum(event.uuid == gpu.identity.uuid for event in events)
    return listed >= sum(event.count for event in gpu.events)
