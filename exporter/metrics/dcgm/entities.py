"""The DCGM entities of a snapshot, with their labels: each GPU followed by its GPU instances.

AMD GPUs are left out: DCGM has no names for them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Literal, TypeAlias

from exporter.metrics import Entity, Enumerate
from exporter.metrics.dcgm.row import WINDOW_SECONDS, DcgmRow, Xids
from exporter.model import (
    ContainerRef,
    DeviceEvent,
    DeviceKey,
    EventCount,
    GpuReading,
    GpuRow,
    MigReading,
    MigRow,
    Snapshot,
)
from exporter.model.readings import Activity


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


HostnameLabel: TypeAlias = Literal["Hostname", "hostname"]

VGPU = "vgpu"
_COMPUTE_INSTANCE = re.compile(r"^\d+c\.")
_Instance: TypeAlias = tuple[MigRow, ...]
"""The MIG devices of one GPU instance, at least one."""
_Owner: TypeAlias = str | tuple[str, int]


def entities(hostname_label: HostnameLabel) -> Enumerate:
    """Make the function that lists the DCGM entities of a snapshot, with the host under that label."""

    def enumerate_entities(snapshot: Snapshot) -> Iterator[Entity]:
        return _Entities(snapshot, hostname_label).all()

    return enumerate_entities


def legacy_entities(snapshot: Snapshot) -> Iterator[Entity]:
    """List the GPUs as version 1 knew them: whole, also under MIG, with the pod labels of its day."""
    holders = _holders(snapshot)
    for gpu in _nvidia(snapshot):
        identity, told = gpu.identity, _answering(gpu)
        labels = {"gpu": str(identity.index), "uuid": identity.uuid}
        for holder in _only(holders.get(identity.uuid, set())):
            labels |= {
                "pod_name": holder.pod,
                "pod_namespace": holder.namespace,
                "container_name": holder.container,
            }
        row = DcgmRow(
            gpu=gpu,
            reading=told,
            memory=told.memory if told else None,
            active=_active(told),
            xids=xids(snapshot, gpu, None),
        )
        yield _entity(labels, row)


class _Entities:
    """The DCGM entities of one snapshot."""

    def __init__(self, snapshot: Snapshot, hostname_label: HostnameLabel) -> None:
        self._snapshot = snapshot
        self._instances = _instances(snapshot.migs)
        self._holders = _holders(snapshot)
        driver = snapshot.node.driver
        version = driver.driver_version if driver else None
        self._host: dict[str, str] = {hostname_label: snapshot.node.name}
        if version:
            self._host["DCGM_FI_DRIVER_VERSION"] = version

    def all(self) -> Iterator[Entity]:
        for gpu in _nvidia(self._snapshot):
            uuid = gpu.identity.uuid
            instances = self._instances.get(uuid, {})
            rows = {gi: self._of_instance(gpu, instance) for gi, instance in instances.items()}
            yield self._entity(gpu, None, self._of_gpu(gpu, rows.values()))
            for gi, row in rows.items():
                yield self._entity(gpu, instances[gi][0], row)

    def _entity(self, gpu: GpuRow, mig: MigRow | None, row: DcgmRow) -> Entity:
        uuid = gpu.identity.uuid
        owner: _Owner = uuid if mig is None else (uuid, mig.reading.gi)
        jobs = gpu.jobs if mig is None else mig.jobs
        instance = {} if mig is None else _instance_labels(mig.reading)
        labels = _gpu_labels(gpu) | instance | self._host
        for holder in _only(self._holders.get(owner, set())):
            labels |= {"container": holder.container, "namespace": holder.namespace, "pod": holder.pod}
        if len(jobs) == 1:
            labels["hpc_job"] = jobs[0]
        return _entity(labels, row)

    def _of_gpu(self, gpu: GpuRow, parts: Collection[DcgmRow]) -> DcgmRow:
        """Leave to its instances what they tell, so that no sum counts it twice."""
        told = _answering(gpu)
        return DcgmRow(
            gpu=gpu,
            reading=told,
            memory=None if told is None or any(part.memory for part in parts) else told.memory,
            bar1=None if told is None or any(part.bar1 for part in parts) else told.bar1,
            active={} if any(part.active for part in parts) else _active(told),
            xids=xids(self._snapshot, gpu, {""}),
        )

    def _of_instance(self, gpu: GpuRow, instance: _Instance) -> DcgmRow:
        reading = instance[0].reading
        # A meter of one compute instance is not that of the GPU instance around it.
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


def _answering(gpu: GpuRow) -> GpuReading | None:
    return gpu.reading if gpu.reading is not None and gpu.reading.up else None


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


def _instance_labels(reading: MigReading) -> dict[str, str]:
    profile = _COMPUTE_INSTANCE.sub("", reading.profile or "")
    return {"GPU_I_PROFILE": profile, "GPU_I_ID": str(reading.gi)}


def _only(holders: set[ContainerRef]) -> set[ContainerRef]:
    """Give the holder of a device that has just one: a value that sharers have in common names none."""
    return holders if len(holders) == 1 else set()


def _instances(migs: tuple[MigRow, ...]) -> dict[str, dict[int, _Instance]]:
    """Group MIG devices by GPU and GPU instance: compute instances that share it have the same memory."""
    instances: dict[str, dict[int, _Instance]] = defaultdict(dict)
    for mig in migs:
        of_gpu = instances[mig.device.uuid]
        of_gpu[mig.reading.gi] = (*of_gpu.get(mig.reading.gi, ()), mig)
    return instances


def _holders(snapshot: Snapshot) -> dict[_Owner, set[ContainerRef]]:
    """Who holds each GPU (by uuid) and each GPU instance (by uuid and number), where all are known."""
    owners: dict[DeviceKey, _Owner] = {
        DeviceKey(gpu.identity.uuid): gpu.identity.uuid for gpu in snapshot.gpus if gpu.holders is not None
    }
    instances = {mig.device: (mig.device.uuid, mig.reading.gi) for mig in snapshot.migs}
    untold = {instances[mig.device] for mig in snapshot.migs if mig.holders is None}
    owners |= {device: instance for device, instance in instances.items() if instance not in untold}
    holders: dict[_Owner, set[ContainerRef]] = defaultdict(set)
    for row in snapshot.containers:
        # Virtual machines outside Kubernetes may have other vGPUs of the same GPU.
        if row.slices and row.device in owners and row.sharing != VGPU:
            holders[owners[row.device]].add(row.holder)
    return holders
