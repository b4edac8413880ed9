"""Holders that ended: what each held and used at its last poll, in memory of a limited size."""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter.model import ContainerRef, ContainerRow, DeviceKey, Snapshot
from exporter.model.pod_labels import Labels, PodLabels

MOST_DEVICES = 2000
"""Devices of all ended holders together; each takes one to two KiB."""
_KEPT = 6 * 3600.0
# Sources that show a use without a slice.
_OF_USE = frozenset({"nvml", "processes", "identity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDevice:
    """A device of a holder at its last poll."""

    row: ContainerRow
    gpu: int | None  # index of the GPU; None if the driver did not list it
    profile: str  # of the MIG device or partition, "" for a whole GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedHolder:
    """A container that held or used devices until a poll, and no longer at the next one."""

    holder: ContainerRef
    devices: tuple[EndedDevice, ...]
    labels: Labels  # the selected labels of its pod
    last_seen: float  # Unix time of the last poll that had it
    # Unix time of the first poll from which it is known that it has no device; None while that is unknown.
    gone_at: float | None
    why_unknown: str  # what could not be read then, "" if all could

    @property
    def uids(self) -> frozenset[str]:
        """The known UIDs of its pod."""
        return frozenset(device.row.pod_uid for device in self.devices) - {""}


class _Poll(NamedTuple):
    """What is remembered of the last poll."""

    at: float
    rows: tuple[ContainerRow, ...]
    labels: PodLabels
    indexes: Mapping[str, int]
    profiles: Mapping[DeviceKey, str]


class EndedHolders:
    """Keeps holders for ``kept`` seconds after their end, those that ended last of ``most`` devices together.

    The event loop writes, and threads read.
    """

    def __init__(self, kept: float = _KEPT, *, most: int = MOST_DEVICES) -> None:
        self.kept = kept
        self.most = most
        self._last: _Poll | None = None
        # In the order of their ends.
        self._ended: OrderedDict[ContainerRef, EndedHolder] = OrderedDict()
        self._devices = 0
        self._lock = threading.Lock()

    def record(self, snapshot: Snapshot) -> None:
        """Take the holders that the previous snapshot had and this one has not; to be called for each one."""
        if snapshot.sequence == 0:
            return
        with self._lock:
            self._settle(snapshot)
            self._forget_returned(snapshot)
            for ended in _ended_since(self._last, snapshot):
                self._drop(ended.holder)
                self._ended[ended.holder] = ended
                self._devices += len(ended.devices)
            self._limit(snapshot.timestamp)
            self._last = _poll_of(snapshot)

    def find(self, ref: ContainerRef) -> EndedHolder | None:
        """Return the last ended holder of that name; also if another pod of that name is there now."""
        with self._lock:
            return self._ended.get(ref)

    def newest(self) -> tuple[EndedHolder, ...]:
        """Return all that are kept, the newest first."""
        with self._lock:
            return tuple(reversed(self._ended.values()))

    def _settle(self, snapshot: Snapshot) -> None:
        """Note the end of those of which it was not known so far."""
        for ref, ended in list(self._ended.items()):
            if ended.gone_at is None and not _why_unknown(snapshot, ended.devices):
                self._ended[ref] = replace(ended, gone_at=snapshot.timestamp)

    def _forget_returned(self, snapshot: Snapshot) -> None:
        """Forget those that are back, unless it is another pod of the same name."""
        if not self._ended:
            return
        for row in snapshot.containers:
            ended = self._ended.get(row.holder)
            if ended is not None and not (row.pod_uid and ended.uids and row.pod_uid not in ended.uids):
                self._drop(row.holder)

    def _limit(self, now: float) -> None:
        while self._ended:
            ref, oldest = next(iter(self._ended.items()))
            if self._devices <= self.most and oldest.last_seen >= now - self.kept:
                return
            self._drop(ref)

    def _drop(self, ref: ContainerRef) -> None:
        ended = self._ended.pop(ref, None)
        if ended is not None:
            self._devices -= len(ended.devices)


def _ended_since(last: _Poll | None, snapshot: Snapshot) -> Iterable[EndedHolder]:
    if last is None:
        return
    there = {row.holder for row in snapshot.containers}
    gone: dict[ContainerRef, list[ContainerRow]] = {}
    for row in last.rows:
        if row.holder not in there:
            gone.setdefault(row.holder, []).append(row)
    for ref, rows in gone.items():
        devices = tuple(
            EndedDevice(
                row=row, gpu=last.indexes.get(row.device.uuid), profile=last.profiles.get(row.device, "")
            )
            for row in rows
        )
        why = _why_unknown(snapshot, devices)
        yield EndedHolder(
            holder=ref,
            devices=devices,
            labels=last.labels.of(rows[0]),
            last_seen=last.at,
            gone_at=None if why else snapshot.timestamp,
            why_unknown=why,
        )


def _why_unknown(snapshot: Snapshot, devices: Iterable[EndedDevice]) -> str:
    """Return why it is unknown whether holders still have devices, "" if it is known that they have none."""
    node = snapshot.node
    failing = {health.name for health in snapshot.collectors if not health.success}
    if node.unlisted_pods is None or "podresources" in failing:
        return "the kubelet does not answer"
    if node.unlisted_pods:
        return "the kubelet does not list all running pods yet"
    if node.unresolved:
        return "some allocated devices match no GPU"
    if all(device.row.slices for device in devices):
        return ""
    unseen = not node.process_view or not failing.isdisjoint(_OF_USE)
    return "the processes of containers are not visible" if unseen else ""


def _poll_of(snapshot: Snapshot) -> _Poll:
    gpus = (gpu.identity for gpu in snapshot.gpus)
    return _Poll(
        at=snapshot.timestamp,
        rows=snapshot.containers,
        labels=PodLabels(snapshot.pods),
        indexes={gpu.uuid: gpu.index for gpu in gpus if gpu.index >= 0},
        profiles={mig.device: mig.reading.profile or "" for mig in snapshot.migs},
    )
