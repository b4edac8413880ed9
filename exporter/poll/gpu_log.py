"""The log of the node's GPUs: one line when GPUs are lost or return, and one for each XID.

GPUs that are lost in the same poll share a line. A GPU that repeats an XID gets one line a minute, with the
number of times.
"""

import logging
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model import ContainerRef, ContainerRow, EventRow, Snapshot
from exporter.model.xids import explain
from exporter.wording import duration, plural, printable

log = logging.getLogger(__name__)
REPEAT_SECONDS = 60.0
# How many containers a line names.
NAMED = 5


class _DeviceXid(NamedTuple):
    """An XID on a device; ``mig_uuid`` is "" for the whole GPU."""

    uuid: str
    mig_uuid: str
    xid: int


@dataclass(frozen=True, slots=True)
class _Logged:
    """The last line of an XID."""

    count: int  # number of times that the XID had occurred
    at: float  # Unix time of the line


class NodeLog:
    """Logs lost GPUs, returned GPUs and XIDs; subscribe ``record`` to all snapshots."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._lost: dict[str, float] = {}
        self._xids: dict[_DeviceXid, _Logged] = {}

    def record(self, snapshot: Snapshot) -> None:
        """Log GPUs that are lost or have returned, and new XIDs."""
        self._record_gpus(snapshot)
        self._record_xids(snapshot)

    def _record_gpus(self, snapshot: Snapshot) -> None:
        """Compare with the last snapshot, unless a driver fails: its collector logs that."""
        drivers = (health for health in snapshot.collectors if health.name in ("nvml", "amd"))
        if snapshot.node.gpu_count is None or not all(health.success for health in drivers):
            return
        gpus = {gpu.identity.uuid: gpu for gpu in snapshot.gpus if not gpu.unread}
        returned: dict[float, list[str]] = {}
        silent = []
        for uuid, gpu in gpus.items():
            self._names[uuid] = f"GPU {gpu.identity.index} ({printable(uuid)})"
            if gpu.reading is None or not gpu.reading.up:
                silent.append(uuid)
            elif uuid in self._lost:
                returned.setdefault(self._lost.pop(uuid), []).append(uuid)
        for since, uuids in returned.items():
            log.info("%s back after %s", self._named(uuids), duration(snapshot.timestamp - since))
        self._lose(snapshot, silent, "no answer")
        self._lose(snapshot, sorted(self._names.keys() - gpus.keys()), "not listed by the driver")

    def _named(self, uuids: Iterable[str]) -> str:
        return ", ".join(self._names[uuid] for uuid in uuids)

    def _lose(self, snapshot: Snapshot, uuids: Iterable[str], symptom: str) -> None:
        lost = [uuid for uuid in uuids if uuid not in self._lost]
        if lost:
            self._lost |= dict.fromkeys(lost, snapshot.timestamp)
            held = _held(_holders(snapshot, lost))
            log.warning("%s lost: %s%s; check the kernel log", self._named(lost), symptom, held)

    def _record_xids(self, snapshot: Snapshot) -> None:
        newest = {
            _DeviceXid(row.event.uuid, row.event.mig_uuid, row.event.xid): row
            for row in snapshot.events
            if row.event.xid is not None
        }
        for key, count in _counts(snapshot):
            logged = self._xids.get(key, _Logged(0, -REPEAT_SECONDS))
            if count < logged.count:
                logged = _Logged(0, logged.at)
            if count > logged.count and abs(snapshot.timestamp - logged.at) >= REPEAT_SECONDS:
                self._log_xid(key, count - logged.count, newest.get(key))
                self._xids[key] = _Logged(count, snapshot.timestamp)

    def _log_xid(self, key: _DeviceXid, times: int, row: EventRow | None) -> None:
        mig = f", MIG device {printable(key.mig_uuid)}" if key.mig_uuid else ""
        log.warning(
            "%s%s reported XID %d%s: %s%s",
            self._names.get(key.uuid, printable(key.uuid)),
            mig,
            key.xid,
            "" if times == 1 else f" {times} times",
            explain(key.xid).meaning.rstrip("."),
            _held(() if row is None else row.holders),
        )


def _holders(snapshot: Snapshot, uuids: Container[str]) -> tuple[ContainerRef, ...]:
    def holds(row: ContainerRow) -> bool:
        return row.device.uuid in uuids and bool(row.slices or row.processes)

    return tuple(sorted({row.holder for row in filter(holds, snapshot.containers)}))


def _held(holders: Iterable[ContainerRef]) -> str:
    names = ["/".join(filter(None, map(printable, holder))) for holder in holders]
    if not names:
        return ""
    more = f" and {plural(len(names) - NAMED, 'more container')}" if len(names) > NAMED else ""
    return f"; held by {', '.join(names[:NAMED])}{more}"


def _counts(snapshot: Snapshot) -> Iterator[tuple[_DeviceXid, int]]:
    """Yield the number of times that each XID has occurred since start. XID 0 is not an error."""
    for gpu in snapshot.gpus:
        for event in gpu.events:
            if event.xid:
                yield _DeviceXid(event.uuid, event.mig_uuid, event.xid), event.count
