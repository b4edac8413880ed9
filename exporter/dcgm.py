"""A second table: the same readings under the names, labels and units of dcgm-exporter.

Dashboards and rules written for it keep working. Two differences are meant. A device is printed once, and
names a container only where exactly one holds it, so that sums over a shared GPU are right. And under MIG
the GPU stays, with what belongs to it alone, while its memory is told by its GPU instances.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from exporter.metrics import Entity, Enumerate, Family, FamilyType, Number, scaled
from exporter.model import ContainerRef, DeviceKey, GpuReading, GpuRow, Memory, MigRow, Snapshot

DcgmNames: TypeAlias = Literal["on", "off", "only", "legacy"]
HostnameLabel: TypeAlias = Literal["Hostname", "hostname"]

_MEBIBYTE = 1024 * 1024
_COMPUTE_INSTANCE = re.compile(r"^\d+c\.")
_Instance: TypeAlias = tuple[str, int]
_Owner: TypeAlias = str | _Instance


@dataclass(frozen=True, slots=True)
class DcgmRow:
    """What one DCGM entity tells: a GPU has a reading, a GPU instance of MIG only its memory."""

    reading: GpuReading | None
    memory: Memory | None


def _reading(value: Callable[[GpuReading], Number | None]) -> Callable[[DcgmRow], Number | None]:
    return lambda row: None if row.reading is None else value(row.reading)


def _memory(value: Callable[[Memory], Number | None]) -> Callable[[DcgmRow], Number | None]:
    return lambda row: None if row.memory is None else value(row.memory)


def _mebibytes(size: int | None) -> int | None:
    return None if size is None else size // _MEBIBYTE


def _used_share(memory: Memory) -> float | None:
    usable = memory.total - (memory.reserved or 0)
    return round(memory.used / usable, 6) if usable > 0 else None


def _family(
    name: str, family_type: FamilyType, text: str, value: Callable[[DcgmRow], Number | None]
) -> Family[DcgmRow]:
    return Family(f"DCGM_FI_DEV_{name}", family_type, "dcgm", text, value)


DCGM: tuple[Family[DcgmRow], ...] = (
    _family("SM_CLOCK", "gauge", "SM clock (MHz).", _reading(lambda r: r.clocks_megahertz.get("sm"))),
    _family(
        "MEM_CLOCK", "gauge", "Memory clock (MHz).", _reading(lambda r: r.clocks_megahertz.get("memory"))
    ),
    _family(
        "MEMORY_TEMP",
        "gauge",
        "Temperature of the memory (C).",
        _reading(lambda r: r.memory_temperature_celsius),
    ),
    _family("GPU_TEMP", "gauge", "Temperature of the GPU (C).", _reading(lambda r: r.temperature_celsius)),
    _family("POWER_USAGE", "gauge", "Power draw (W).", _reading(lambda r: scaled(r.power_milliwatts, 1000))),
    _family(
        "TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Energy drawn since the driver was loaded (mJ).",
        _reading(lambda r: r.energy_millijoules),
    ),
    _family("PCIE_REPLAY_COUNTER", "counter", "Replays over PCIe.", _reading(lambda r: r.pcie_replays)),
    _family("GPU_UTIL", "gauge", "Utilization of the GPU (%).", _reading(lambda r: r.utilization_percent)),
    _family(
        "MEM_COPY_UTIL", "gauge", "Utilization of the memory (%).", _reading(lambda r: r.memory_copy_percent)
    ),
    _family("FAN_SPEED", "gauge", "Speed of the fan (%).", _reading(lambda r: r.fan_percent)),
    _family("FB_TOTAL", "gauge", "Frame buffer (MiB).", _memory(lambda m: _mebibytes(m.total))),
    _family("FB_FREE", "gauge", "Frame buffer free (MiB).", _memory(lambda m: _mebibytes(m.free))),
    _family("FB_USED", "gauge", "Frame buffer used (MiB).", _memory(lambda m: _mebibytes(m.used))),
    _family(
        "FB_RESERVED", "gauge", "Frame buffer reserved (MiB).", _memory(lambda m: _mebibytes(m.reserved))
    ),
    _family(
        "FB_USED_PERCENT", "gauge", "used / (total - reserved), as a ratio of 0 to 1.", _memory(_used_share)
    ),
)
"""Families under DCGM's names, for GPUs and for GPU instances of MIG."""


def entities(hostname_label: HostnameLabel) -> Enumerate:
    """Make the function that lists the DCGM entities of a snapshot, with the host under that label."""

    def enumerate_entities(snapshot: Snapshot) -> Iterator[Entity]:
        return _Entities(snapshot, hostname_label).all()

    return enumerate_entities


class _Entities:
    """The DCGM entities of one snapshot, each GPU followed by its GPU instances."""

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
        for gpu in self._snapshot.gpus:
            instances = self._instances.get(gpu.identity.uuid, {})
            told = any(mig.reading.memory for mig in instances.values())
            reading = gpu.reading if gpu.reading and gpu.reading.up else None
            memory = None if told or reading is None else reading.memory
            yield self._entity(gpu, {}, gpu.identity.uuid, DcgmRow(reading, memory))
            for gi, mig in instances.items():
                row = DcgmRow(None, mig.reading.memory)
                yield self._entity(gpu, _instance_labels(mig), (gpu.identity.uuid, gi), row)

    def _entity(self, gpu: GpuRow, instance: dict[str, str], owner: _Owner, row: DcgmRow) -> Entity:
        labels = _gpu_labels(gpu) | instance | self._host | _pod_labels(self._holders.get(owner, set()))
        return Entity(tuple(labels), tuple(labels.values()), row)


def _gpu_labels(gpu: GpuRow) -> dict[str, str]:
    identity = gpu.identity
    return {
        "gpu": str(identity.index),
        "UUID": identity.uuid,
        "pci_bus_id": identity.pci_bus_id,
        "device": "" if identity.minor is None else f"nvidia{identity.minor}",
        "modelName": identity.model,
    }


def _instance_labels(mig: MigRow) -> dict[str, str]:
    profile = _COMPUTE_INSTANCE.sub("", mig.reading.profile or "")
    return {"GPU_I_PROFILE": profile, "GPU_I_ID": str(mig.reading.gi)}


def _pod_labels(holders: set[ContainerRef]) -> dict[str, str]:
    if len(holders) != 1:
        return {}
    (holder,) = holders
    return {"container": holder.container, "namespace": holder.namespace, "pod": holder.pod}


def _instances(migs: tuple[MigRow, ...]) -> dict[str, dict[int, MigRow]]:
    """One row for each GPU instance, by GPU: compute instances that share it have the same memory."""
    instances: dict[str, dict[int, MigRow]] = defaultdict(dict)
    for mig in migs:
        instances[mig.device.uuid].setdefault(mig.reading.gi, mig)
    return instances


def _holders(snapshot: Snapshot) -> dict[_Owner, set[ContainerRef]]:
    """Who holds each GPU (by uuid) and each GPU instance (by uuid and number)."""
    owners: dict[DeviceKey, _Owner] = {
        DeviceKey(gpu.identity.uuid): gpu.identity.uuid for gpu in snapshot.gpus
    }
    owners |= {mig.device: (mig.device.uuid, mig.reading.gi) for mig in snapshot.migs}
    holders: dict[_Owner, set[ContainerRef]] = defaultdict(set)
    for row in snapshot.containers:
        if row.slices and row.device in owners:
            holders[owners[row.device]].add(row.holder)
    return holders
