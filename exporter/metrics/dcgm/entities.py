"""The DCGM entities of a snapshot with their records and labels: each GPU followed by its GPU instances.

AMD GPUs are left out: DCGM has no names for them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from exporter.metrics import Entity, Enumerate
from exporter.metrics.dcgm.dialects import LABELS
from exporter.metrics.family import Level, Rows, answering, whole
from exporter.model import (
    Bar1,
    ContainerRef,
    DeviceEvent,
    DeviceKey,
    EventCount,
    GpuReading,
    GpuRow,
    Memory,
    MigReading,
    MigRow,
    Snapshot,
)
from exporter.model.readings import Activity

# The window of dcgm-exporter's counts, by its default.
WINDOW_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Xids:
    """XID errors of one entity since the exporter started."""

    # The last code: 0 before the first error, None without a subscription to the GPU's events.
    last: int | None = None
    totals: Mapping[int, int] = field(default_factory=dict)  # errors by code
    recent: Mapping[int, int] | None = None  # errors of the last window by code; None if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmRow:
    """A DCGM entity: a GPU, or a GPU instance of MIG."""

    gpu: GpuRow | None = None  # None for a GPU instance
    reading: GpuReading | None = None  # None for a GPU instance, and for a GPU that does not answer
    # Memory, BAR1 and activity of this entity; empty for a GPU if its instances report them.
    memory: Memory | None = None
    bar1: Bar1 | None = None
    active: Mapping[Activity, float] = field(default_factory=dict)
    xids: Xids = field(default_factory=Xids)


DCGM_ROWS: Rows[DcgmRow, DcgmRow] = Rows("DCGM_FI_", "dcgm", whole)
# Builder for the readings of a GPU that answers.
READING = DCGM_ROWS.of(lambda row: row.reading)
# Builder for the series that dcgm-exporter computes itself.
EXPERIMENTAL: Rows[DcgmRow, DcgmRow] = Rows("DCGM_EXP_", "dcgm", whole)


def xids(snapshot: Snapshot, gpu: GpuRow, mig_uuids: Collection[str] | None) -> Xids:
    """Return the XID errors of these MIG devices ("" is the whole GPU), or of all with None."""
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
    """Return the errors of the last window by code; None if some events of that time are no longer listed."""
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
    """Return whether the list, which drops the oldest events, has all events of this GPU since ``start``."""
    if events and events[0].at <= start:
        return True
    listed = sum(event.uuid == gpu.identity.uuid for event in events)
    return listed >= sum(event.count for event in gpu.events)


HostnameLabel: TypeAlias = Literal["Hostname", "hostname"]
DcgmVersion: TypeAlias = Literal["4.8", "4.9", "both"]

VGPU = "vgpu"
_COMPUTE_INSTANCE = re.compile(r"^\d+c\.")
# The MIG devices of one GPU instance, at least one.
_Instance: TypeAlias = tuple[MigRow, ...]
_Owner: TypeAlias = str | tuple[str, int]


# Labels with the name of the node and the version of the driver.
_HOSTNAME, _DRIVER = LABELS


class _HostLabels(NamedTuple):
    """Names of the labels of the host on all series; more than one for the names of several versions."""

    node: tuple[str, ...]
    driver: tuple[str, ...]

    def values(self, snapshot: Snapshot) -> dict[str, str]:
        driver = snapshot.node.driver
        version = driver.driver_version if driver else ""
        labels = dict.fromkeys(self.node, snapshot.node.name)
        return labels | (dict.fromkeys(self.driver, version) if version else {})


def levels(version: DcgmVersion, hostname_label: HostnameLabel) -> Mapping[Level, Enumerate]:
    """Return the functions that list the DCGM entities of a snapshot, by level.

    ``hostname_label`` is the label with the node on old names. A field that keeps its name has the labels of
    the version, or with ``both`` those of both. Levels with the same labels have the same function.
    """
    old = _HostLabels((hostname_label,), (_DRIVER.old,))
    new = _HostLabels((_HOSTNAME.new,), (_DRIVER.new,))
    both = _HostLabels(old.node + new.node, old.driver + new.driver)
    of_old, of_new = _entities(old), _entities(new)
    of_both = {"4.8": of_old, "4.9": of_new, "both": _entities(both)}[version]
    return {"dcgm": of_both, "dcgm_old": of_old, "dcgm_new": of_new, "dcgm_legacy": legacy_entities}


def _entities(labels: _HostLabels) -> Enumerate:
    return lambda snapshot: _DcgmEntities(snapshot, labels).all()


def legacy_entities(snapshot: Snapshot) -> Iterator[Entity]:
    """Yield the GPUs as in dcgm-exporter 1.x: whole also in MIG mode, with its names of the pod labels."""
    holders = _holders(snapshot)
    for gpu in _nvidia(snapshot):
        identity, reading = gpu.identity, answering(gpu)
        labels = {"gpu": str(identity.index), "uuid": identity.uuid}
        for holder in _only(holders.get(identity.uuid, set())):
            labels |= {
                "pod_name": holder.pod,
                "pod_namespace": holder.namespace,
                "container_name": holder.container,
            }
        row = DcgmRow(
            gpu=gpu,
            reading=reading,
            memory=reading.memory if reading else None,
            active=_active(reading),
            xids=xids(snapshot, gpu, None),
        )
        yield _entity(labels, row)


class _DcgmEntities:
    """The DCGM entities of one snapshot."""

    def __init__(self, snapshot: Snapshot, labels: _HostLabels) -> None:
        self._snapshot = snapshot
        self._instances = _instances(snapshot.migs)
        self._holders = _holders(snapshot)
        self._host = labels.values(snapshot)

    def all(self) -> Iterator[Entity]:
        for gpu in _nvidia(self._snapshot):
            instances = self._instances.get(gpu.identity.uuid, {})
            rows = {gi: self._of_instance(gpu, instance) for gi, instance in instances.items()}
            yield self._entity(gpu, None, self._of_gpu(gpu, rows.values()))
            for gi, row in rows.items():
                yield self._entity(gpu, instances[gi][0], row)

    def _entity(self, gpu: GpuRow, mig: MigRow | None, row: DcgmRow) -> Entity:
        uuid = gpu.identity.uuid
        owner: _Owner = uuid if mig is None else (uuid, mig.reading.gi)
        jobs = gpu.jobs if mig is None else mig.jobs
        instance = {}
        if mig is not None:
            profile = _COMPUTE_INSTANCE.sub("", mig.reading.profile or "")
            instance = {"GPU_I_PROFILE": profile, "GPU_I_ID": str(mig.reading.gi)}
        labels = _gpu_labels(gpu) | instance | self._host
        for holder in _only(self._holders.get(owner, set())):
            labels |= {"container": holder.container, "namespace": holder.namespace, "pod": holder.pod}
        if len(jobs) == 1:
            labels["hpc_job"] = jobs[0]
        return _entity(labels, row)

    def _of_gpu(self, gpu: GpuRow, parts: Collection[DcgmRow]) -> DcgmRow:
        """Return the row of a GPU without the values that its instances report: no sum counts them twice."""
        reading = answering(gpu)
        return DcgmRow(
            gpu=gpu,
            reading=reading,
            memory=None if reading is None or any(part.memory for part in parts) else reading.memory,
            bar1=None if reading is None or any(part.bar1 for part in parts) else reading.bar1,
            active={} if any(part.active for part in parts) else _active(reading),
            xids=xids(self._snapshot, gpu, {""}),
        )

    def _of_instance(self, gpu: GpuRow, instance: _Instance) -> DcgmRow:
        reading = instance[0].reading
        # The metrics of a compute instance are not those of its GPU instance.
        whole = len(instance) == 1 and not _COMPUTE_INSTANCE.match(reading.profile or "")
        return DcgmRow(
            memory=reading.memory,
            bar1=reading.bar1,
            active=_active(reading) if whole else {},
            xids=xids(self._snapshot, gpu, {mig.device.mig_uuid for mig in instance}),
        )


def _entity(labels: dict[str, str], row: DcgmRow) -> Entity:
    return Entity(tuple(labels), tuple(labels.values()), row)


def _nvidia(snapshot: Snapshot) -> Iterator[GpuRow]:
    return (gpu for gpu in snapshot.gpus if gpu.identity.vendor == "nvidia")


def _active(reading: GpuReading | MigReading | None) -> Mapping[Activity, float]:
    return reading.profiling.active if reading is not None and reading.profiling is not None else {}


def _gpu_labels(gpu: GpuRow) -> dict[str, str]:
    identity = gpu.identity
    return {
        "gpu": str(identity.index),
        "UUID": identity.uuid,
        "pci_bus_id": identity.pci_bus_id,
        "device": "" if identity.minor is None else f"nvidia{identity.minor}",
        "modelName": identity.model,
    }


def _only(holders: set[ContainerRef]) -> set[ContainerRef]:
    """Return the holder of a device with exactly one; a value of a shared device has no container labels."""
    return holders if len(holders) == 1 else set()


def _instances(migs: tuple[MigRow, ...]) -> dict[str, dict[int, _Instance]]:
    """Return the MIG devices by GPU and GPU instance; compute instances of one share its memory."""
    instances: dict[str, dict[int, _Instance]] = defaultdict(dict)
    for mig in migs:
        of_gpu = instances[mig.device.uuid]
        of_gpu[mig.reading.gi] = (*of_gpu.get(mig.reading.gi, ()), mig)
    return instances


def _holders(snapshot: Snapshot) -> dict[_Owner, set[ContainerRef]]:
    """Return the holders of each GPU (by UUID) and GPU instance (by UUID and number) if all are known."""
    owners: dict[DeviceKey, _Owner] = {
        DeviceKey(gpu.identity.uuid): gpu.identity.uuid for gpu in snapshot.gpus if gpu.holders is not None
    }
    instances = {mig.device: (mig.device.uuid, mig.reading.gi) for mig in snapshot.migs}
    unknown = {instances[mig.device] for mig in snapshot.migs if mig.holders is None}
    owners |= {device: instance for device, instance in instances.items() if instance not in unknown}
    holders: dict[_Owner, set[ContainerRef]] = defaultdict(set)
    for row in snapshot.containers:
        # Virtual machines outside Kubernetes may hold other vGPUs of the same GPU.
        if row.slices and row.device in owners and row.sharing != VGPU:
            holders[owners[row.device]].add(row.holder)
    return holders
