"""The log of the node's GPUs: one line when one is lost or returns, and for each XID.

A GPU that reports the same code again and again gets one line a minute, with the number of times.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.wording import duration, plural, printable
from exporter.model import ContainerRef, ContainerRow, EventRow, GpuRow, Snapshot
from exporter.model.xids import explain

log = logging.getLogger(__name__)
REPEAT_SECONDS = 60.0
# How many containers a line names.
NAMED = 5


class _Key(NamedTuple):
    """A code on a device; ``mig_uuid`` is "" for the whole GPU."""

    uuid: str
    mig_uuid: str
    xid: int


@dataclass(frozen=True, slots=True)
class _Logged:
    """How often a code had occurred at its last line, and when that was (Unix time)."""

    count: int
    at: float


class NodeLog:
    """Logs what has changed from snapshot to snapshot; to be called with each of them."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._lost: dict[str, float] = {}
        self._xids: dict[_Key, _Logged] = {}

    def record(self, snapshot: Snapshot) -> None:
        """Log GPUs that are lost or have returned, and new XIDs, each at its time."""
        self._record_gpus(snapshot)
        self._record_xids(snapshot)

    def _record_gpus(self, snapshot: Snapshot) -> None:
        """Compare the GPUs with those before. While a driver fails its collector logs that, once."""
        if snapshot.node.gpu_count is None or any(_is_driver_failing(snapshot)):
            return
        gpus = {gpu.identity.uuid: gpu for gpu in snapshot.gpus if not gpu.unread}
        for uuid, gpu in gpus.items():
            self._names[uuid] = f"GPU {gpu.identity.index} ({printable(uuid)})"
            if not _answers(gpu):
                self._lose(snapshot, uuid, "does not answer")
            elif uuid in self._lost:
                passed = duration(snapshot.timestamp - self._lost.pop(uuid))
                log.info("%s answers again after %s", self._names[uuid], passed)
        for uuid in self._names.keys() - gpus.keys():
            self._lose(snapshot, uuid, "is not listed by its driver")

    def _lose(self, snapshot: Snapshot, uuid: str, how: str) -> None:
        if uuid not in self._lost:
            self._lost[uuid] = snapshot.timestamp
            log.warning(
                "%s is lost: it %s%s; check the kernel log",
                self._names[uuid],
                how,
                _held(_holders(snapshot, uuid)),
            )

    def _record_xids(self, snapshot: Snapshot) -> None:
        newest = {_key(row): row for row in snapshot.events if row.event.xid is not None}
        for key, count in _counts(snapshot):
            before = self._xids.get(key, _Logged(0, -REPEAT_SECONDS))
            if count < before.count:
                before = _Logged(0, before.at)
            if count > before.count and abs(snapshot.timestamp - before.at) >= REPEAT_SECONDS:
                self._log_xid(key, count - before.count, newest.get(key))
                self._xids[key] = _Logged(count, snapshot.timestamp)

    def _log_xid(self, key: _Key, times: int, row: EventRow | None) -> None:
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


def _is_driver_failing(snapshot: Snapshot) -> Iterator[bool]:
    return (not each.success for each in snapshot.collectors if each.name in ("nvml", "amd"))


def _answers(gpu: GpuRow) -> bool:
    return gpu.reading is not None and gpu.reading.up


def _holders(snapshot: Snapshot, uuid: str) -> tuple[ContainerRef, ...]:
    def holds(row: ContainerRow) -> bool:
        return row.device.uuid == uuid and bool(row.slices or row.processes)

    return tuple(sorted({row.holder for row in filter(holds, snapshot.containers)}))


def _held(holders: Iterable[ContainerRef]) -> str:
    names = ["/".join(filter(None, map(printable, holder))) for holder in holders]
    if not names:
        return ""
    more = f" and {plural(len(names) - NAMED, 'more container')}" if len(names) > NAMED else ""
    return f"; held by {', '.join(names[:NAMED])}{more}"


def _key(row: EventRow) -> _Key:
    return _Key(row.event.uuid, row.event.mig_uuid, row.event.xid or 0)


def _counts(snapshot: Snapshot) -> Iterator[tuple[_Key, int]]:
    """Give how often each code has occurred since start. XID 0 is none."""
    for gpu in snapshot.gpus:
        for each in gpu.events:
            if each.xid:
                yield _Key(each.uuid, each.mig_uuid, each.xid), each.count
