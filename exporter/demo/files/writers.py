"""Files of sharing systems, written as their programs write them."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.scenario.pods import Container, MeterFile, Pod, Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """A container of which a system keeps a file: what it has, and what its processes do now.

    ``gpus`` are all GPUs of the node.
    """

    pod: Pod
    container: Container
    meter: MeterFile
    shares: tuple[Share, ...]
    processes: tuple[ProcessState, ...]
    gpus: tuple[GpuState, ...]


Writer = Callable[[Metered], Mapping[str, str | bytes]]
"""Gives the files of one container, by their paths below the root of the node."""


# As many digits of a container's id name its instance.
DIGITS = 12
INSTANCES = 16


def instances(metered: Metered) -> Mapping[str, str | bytes]:
    """Return one instance for each GPU that the container has."""
    minors = {state.gpu.uuid: state.gpu.minor for state in metered.gpus}
    files: dict[str, str | bytes] = {}
    for share in (each for each in metered.shares if each.device in minors):
        folder = f"proc/cgpu_km/{minors[share.device]}/{metered.container.container_id[:DIGITS]}"
        files[f"{folder}/id"] = f"{int(metered.container.container_id[:DIGITS], 16) % INSTANCES}\n"
        files[f"{folder}/memsize"] = f"{share.memory}\n"
        files[f"{folder}/weight"] = "1\n"
        files[f"{folder}/meminfo"] = _meminfo(metered, share)
    return files


def _meminfo(metered: Metered, share: Share) -> str:
    here = [state for state in metered.processes if state.running.process.device == share.device]
    free = max(0, share.memory - sum(state.memory for state in here))
    return f"Free: {free}\n" + "".join(f"PID: {state.pid} Mem: {state.memory}\n" for state in here)


PODS = "runai/proc/pod"


def metrics(metered: Metered) -> Mapping[str, str | bytes]:
    """Return what a container's processes use of each GPU that it has."""
    return dict(_numbers(metered))


def _numbers(metered: Metered) -> Iterator[tuple[str, str]]:
    held = {share.device for share in metered.shares}
    for index, state in enumerate(metered.gpus):
        if state.gpu.uuid in held:
            own = [each for each in metered.processes if each.running.process.device == state.gpu.uuid]
            folder = f"{PODS}/{metered.pod.uid}/metrics/gpu/{index}"
            yield f"{folder}/utilization.sm", str(sum(each.sm for each in own))
            yield f"{folder}/memory.allocated", str(sum(each.memory for each in own))


# The uid of the pod; how far the container may go, and what is left free; its name; the address of its card,
# which the manager leaves empty; the limits of memory and of computing power; whether the latter is hard; the
# driver's version; whether the limits are in force.
_CONFIG = struct.Struct("<48si4044s4096s16sQiiiii4x")
FULL = 100


class Config(NamedTuple):
    """What is noted of a container: limits in bytes and percent, and whether they are in force."""

    pod_uid: str
    container: str
    memory: int
    cores: int
    enabled: bool
    bus_id: str = ""


def vcuda_image(told: Config) -> bytes:
    """Return a whole file."""
    names = told.pod_uid.encode(), 0, b"", told.container.encode(), told.bus_id.encode()
    return _CONFIG.pack(*names, told.memory, told.cores, 1, 535, 161, told.enabled)


def vcuda_config(metered: Metered) -> Mapping[str, str | bytes]:
    """Return both files as the manager does when a process of the container says hello to it."""
    pod, container = metered.pod, metered.container
    memory = sum(share.memory for share in metered.shares)
    cores = sum(share.cores for share in metered.shares)
    told = Config(pod.uid, container.name, memory, cores, enabled=cores < FULL)
    name = container.name if metered.meter.layout == "name" else container.container_id
    folder = f"etc/gpu-manager/vm/{pod.uid}/{name}"
    pids = [state.pid for state in metered.processes]
    return {
        f"{folder}/vcuda.config": vcuda_image(told),
        f"{folder}/pids.config": struct.pack(f"<{len(pids)}i", *pids),
    }


MAGIC, LAYOUT, SIZE = 0x56474346, 1, 8192
_DEVICES, _BEGIN, _DEVICE = 16, 512, 128


class Limits(NamedTuple):
    """What a container may have of a GPU: bytes (0: all), and percent (0, and from 100 on: all)."""

    uuid: str
    memory: int
    percent: int
    limited: bool = True


def vgpu_manager_image(names: tuple[str, str, str, str], places: Mapping[int, Limits]) -> bytes:
    """Return a whole file of the pod's uid, name and namespace and of the container, by place on the node."""
    content = bytearray(SIZE)
    struct.pack_into("<4I", content, 0, MAGIC, LAYOUT, _BEGIN + _DEVICES * _DEVICE, _DEVICES)
    struct.pack_into("<48s64s64s64s", content, 128, *(name.encode() for name in names))
    for place, limits in places.items():
        limited = int(limits.limited and 0 < limits.percent < 100)
        at = _BEGIN + place * _DEVICE
        memory = limits.memory
        struct.pack_into("<II48sQQ", content, at, 2, 0, limits.uuid.encode(), memory, memory)
        switches = (limits.percent, limits.percent, limited, limited, int(memory > 0), 0, 1)
        struct.pack_into("<7i", content, at + 72, *switches)
    return bytes(content)


def vgpu_manager_config(metered: Metered) -> Mapping[str, str | bytes]:
    """Return the limits of a container, each in the place that its GPU has on the node."""
    pod, container = metered.pod, metered.container
    names = (pod.uid, pod.name, pod.namespace, container.name)
    places = {state.gpu.uuid: place for place, state in enumerate(metered.gpus)}
    # A policy of none leaves computing to whoever comes first.
    limited = metered.meter.layout != "none"
    content = vgpu_manager_image(
        names,
        {
            places[share.device]: Limits(share.device, share.memory, share.cores, limited)
            for share in metered.shares
        },
    )
    return {f"etc/vgpu-manager/{pod.uid}_{container.name}/config/vgpu.config": content}


MEBIBYTE = 1 << 20
CONTAINERS, NAME = "usr/local/hami-vnpu-core/containers", "vnpu_local_shmem"
_SIZE, _SLOTS, _SLOT = 6200, 1080, 80


def used(meter: MeterFile) -> list[int]:
    """Return what each process of a container uses, in bytes."""
    return [int(each) * MEBIBYTE for each in meter.layout.split(",") if each]


def vnpu_image(limit: int, sizes: Sequence[int]) -> bytes:
    """Return the limit of a container, and a slot for each process, in bytes."""
    content = bytearray(_SIZE)
    struct.pack_into("<QQQ", content, 0, limit, sum(sizes), 0)
    struct.pack_into("<I", content, 48, len(sizes))
    for place, size in enumerate(sizes):
        struct.pack_into("<iiQ", content, _SLOTS + place * _SLOT, place + 1, place + 1, size)
        struct.pack_into("<I", content, _SLOTS + place * _SLOT + 72, 1)
    return bytes(content)


def region(metered: Metered) -> Mapping[str, str | bytes]:
    """Return the file of a container."""
    limit = next((share.memory for share in metered.shares), 0)
    name = f"{metered.pod.uid}_{metered.container.name}"
    return {f"{CONTAINERS}/{name}/{NAME}": vnpu_image(limit, used(metered.meter))}
