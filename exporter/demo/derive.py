"""Names and numbers that a scenario may leave out, derived from where they stand in it.

The same scenario gives the same uuids, pids and ids on every machine.
"""

import hashlib
import re
import uuid
from dataclasses import replace

from exporter.demo.codec import fail
from exporter.demo.schema_gpu import Gpu, MigInstance

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "scenario.gpuslice")
FIRST_PID, PIDS = 2_000, 4_000_000
_PROFILE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.\d+gb(?:\+\S+)?")
# Where the PCI addresses of a board with eight GPUs lie; later ones go on from there.
_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)

# The version of a board's firmware begins with the number of its generation.
_VBIOS = {5: 88, 6: 90, 7: 92, 8: 95, 9: 96}
_LATEST_VBIOS = 97


def make_uuid(*parts: object) -> str:
    """Return a uuid of these parts."""
    return str(uuid.uuid5(_NAMESPACE, "/".join(map(str, parts))))


def make_hex(*parts: object) -> str:
    """Return 64 hex digits, as a container runtime names its containers."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def make_pid(*parts: object) -> int:
    """Return a pid such as a busy node has."""
    return FIRST_PID + int(make_hex(*parts)[:8], 16) % PIDS


def complete_gpu(scenario: str, gpu: Gpu, index: int, path: str) -> Gpu:
    """Fill what a GPU leaves out; ``index`` is its place on the node."""
    identity = gpu.uuid or f"GPU-{make_uuid(scenario, 'gpu', index)}"
    return replace(
        gpu,
        count=1,
        uuid=identity,
        minor=index if gpu.minor is None else gpu.minor,
        pci_bus_id=gpu.pci_bus_id or _pci_bus_id(index),
        serial=_serial(scenario, index) if gpu.serial == "" else gpu.serial,
        vbios=_vbios(gpu.architecture) if gpu.vbios == "" else gpu.vbios,
        mig=gpu.mig and replace(gpu.mig, instances=complete_instances(identity, gpu.mig.instances, path)),
    )


def complete_instances(gpu: str, instances: tuple[MigInstance, ...], path: str) -> tuple[MigInstance, ...]:
    """Fill what the MIG instances of a GPU leave out."""
    return tuple(
        _complete_instance(gpu, instance, f"{path}.instances[{index}]")
        for index, instance in enumerate(instances)
    )


def _complete_instance(gpu: str, instance: MigInstance, path: str) -> MigInstance:
    profile = _PROFILE.fullmatch(instance.profile)
    if profile is None:
        fail(f"{path}.profile", f"must be a MIG profile such as 1g.5gb, not {instance.profile!r}")
    gi_slices = int(profile[2])
    # The driver, too, derives the uuid from the placement: the same cut gives the same uuids.
    derived = make_uuid(gpu, instance.gi, instance.ci, instance.profile, instance.start)
    return replace(
        instance,
        uuid=instance.uuid or f"MIG-{derived}",
        compute_slices=instance.compute_slices or int(profile[1] or gi_slices),
        gi_slices=instance.gi_slices or gi_slices,
    )


def _pci_bus_id(index: int) -> str:
    if index >= len(_BUSES):
        return f"{index // 8:08X}:{_BUSES[index % 8]:02X}:00.0"
    return f"00000000:{_BUSES[index]:02X}:00.0"


def _vbios(architecture: int) -> str:
    return f"{_VBIOS.get(architecture, _LATEST_VBIOS)}.00.5C.00.02"


def _serial(scenario: str, index: int) -> str:
    return f"1{int(make_hex(scenario, 'serial', index)[:12], 16) % 10**12:012d}"
