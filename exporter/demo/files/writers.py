"""Files of cGPU, Run:ai, GPU manager, vGPU manager and HAMi's NPUs, as these programs write them.

For each there is a function that writes the file of a running container, and one that writes what a
recording read from it.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.scenario.pods import Container, MeterFile, Pod, Share
from exporter.model import ContainerFile, DeviceUse

Files = Mapping[str, str | bytes]
"""Contents by path below the root of the node."""
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """A running container with a file of a sharing system."""

    pod: Pod
    container: Container
    meter: MeterFile
    shares: tuple[Share, ...]
    processes: tuple[ProcessState, ...]  # of the container
    gpus: tuple[GpuState, ...]  # of the node

    def on(self, uuid: str) -> list[ProcessState]:
        """Return the container's processes on a device."""
        return [state for state in self.processes if state.running.process.device == uuid]


def percent(share: float | None) -> int:
    """Return a share in percent, 0 if it is unknown."""
    return round((share or 0) * 100)


# cGPU: the first digits of a container's id name its instance.
DIGITS = 12
INSTANCES = 16
# A weight other than the usual one means that the container has no fixed share of the time.
USUAL_WEIGHT, OTHER_WEIGHT = 1, 2
CGPU = "proc/cgpu_km"


def cgpu(metered: Metered) -> Files:
    """Return one instance for each GPU of the container."""
    minors = {state.gpu.uuid: state.gpu.minor for state in metered.gpus}
    name = metered.container.container_id[:DIGITS]
    files: dict[str, str | bytes] = {}
    for share in metered.shares:
        if share.device in minors:
            folder, processes = f"{CGPU}/{minors[share.device]}/{name}", metered.on(share.device)
            free = max(0, share.memory - sum(state.memory for state in processes))
            lines = (f"PID: {state.pid} Mem: {state.memory}\n" for state in processes)
            files[f"{folder}/id"] = f"{int(name, 16) % INSTANCES}\n"
            files[f"{folder}/memsize"] = f"{share.memory}\n"
            files[f"{folder}/weight"] = f"{USUAL_WEIGHT}\n"
            files[f"{folder}/meminfo"] = f"Free: {free}\n{''.join(lines)}"
    return files


def recorded_cgpu(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded instances; all containers of a GPU have the same share of the time."""
    return {path: text for file in files for use in file.devices for path, text in _cgpu_instance(file, use)}


def _cgpu_instance(file: ContainerFile, use: DeviceUse) -> Iterator[tuple[str, str]]:
    gpu = f"{CGPU}/{use.device}"
    folder = f"{gpu}/{file.container_id}"
    yield f"{folder}/memsize", f"{use.memory_limit or 0}\n"
    if use.memory_used is not None:
        yield f"{folder}/meminfo", f"Free: 0\nPID: 1 Mem: {use.memory_used}\n"
    if use.compute_limit:
        yield f"{gpu}/policy", "0\n"
        yield f"{gpu}/max_inst", f"{round(1 / use.compute_limit)}\n"
    yield f"{folder}/weight", f"{USUAL_WEIGHT if use.compute_limit else OTHER_WEIGHT}\n"


def runai(metered: Metered) -> Files:
    """Return the use of each GPU of the container."""
    devices = {share.device for share in metered.shares}
    uses = tuple(
        DeviceUse(
            device=str(index),
            memory_used=sum(process.memory for process in metered.on(state.gpu.uuid)),
            compute_used=sum(process.sm for process in metered.on(state.gpu.uuid)) / 100,
        )
        for index, state in enumerate(metered.gpus)
        if state.gpu.uuid in devices
    )
    return recorded_runai([ContainerFile(pod_uid=metered.pod.uid, devices=uses)])


def recorded_runai(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded use of pods; an unknown number is an empty file, as while it is written."""
    return {
        f"runai/proc/pod/{file.pod_uid}/metrics/gpu/{use.device}/{name}": text
        for file in files
        for use in file.devices
        for name, text in (
            ("utilization.sm", "" if use.compute_used is None else str(percent(use.compute_used))),
            ("memory.allocated", "" if use.memory_used is None else str(use.memory_used)),
        )
    }


# GPU manager: uid of the pod; driver limit and free memory; name of the container; PCI address of its card,
# which the manager leaves empty; limits of memory and compute; whether the latter is hard; version of the
# driver; whether the limits are enforced.
_CONFIG = struct.Struct("<48si4044s4096s16sQiiiii4x")
VCUDA = "etc/gpu-manager/vm"
CARDS = "etc/gpu-manager/checkpoint/gpumanager_internal_checkpoint"


class Config(NamedTuple):
    """The configuration of a container."""

    pod_uid: str
    container: str
    memory: int  # bytes
    cores: int  # percent
    enabled: bool  # the limits are enforced
    bus_id: str = ""


def vcuda_image(config: Config) -> bytes:
    """Return the content of vcuda.config."""
    names = config.pod_uid.encode(), 0, b"", config.container.encode(), config.bus_id.encode()
    return _CONFIG.pack(*names, config.memory, config.cores, 1, 535, 161, config.enabled)


def vcuda(metered: Metered) -> Files:
    """Return both files, as the manager writes them when a process of the container registers."""
    pod, container = metered.pod, metered.container
    memory = sum(share.memory for share in metered.shares)
    cores = sum(share.cores for share in metered.shares)
    name = container.name if metered.meter.layout == "name" else container.container_id
    config = Config(pod.uid, container.name, memory, cores, enabled=cores < 100)
    return _vcuda_folder(name, config, [state.pid for state in metered.processes])


def recorded_vcuda(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded folders of containers, and one file with the cards of all of them."""
    cards: dict[str, dict[str, object]] = {}
    written: dict[str, str | bytes] = {}
    for file in files:
        numbered = bool(file.devices) and all(use.device.isdecimal() for use in file.devices)
        if numbered:
            cards.setdefault(file.pod_uid, {})[file.container] = _cards(file.devices)
        if file.container_id or file.pids is not None or not numbered:
            use = next(iter(file.devices), DeviceUse(device=""))
            config = Config(
                pod_uid=file.pod_uid,
                container=file.container,
                bus_id="" if use.device.isdecimal() else use.device,
                memory=use.memory_limit or 0,
                cores=percent(use.compute_limit),
                enabled=use.memory_limit is not None or use.compute_limit is not None,
            )
            written |= _vcuda_folder(file.container_id or file.container, config, file.pids)
    return written | ({CARDS: json.dumps({"PodGPUMapping": cards})} if cards else {})


def _vcuda_folder(name: str, config: Config, pids: Sequence[int] | None) -> Files:
    folder = f"{VCUDA}/{config.pod_uid}/{name}"
    written = {f"{folder}/vcuda.config": vcuda_image(config)}
    if pids is not None:
        written[f"{folder}/pids.config"] = struct.pack(f"<{len(pids)}i", *pids)
    return written


def _cards(uses: Sequence[DeviceUse]) -> dict[str, object]:
    return {
        "Devices": [f"/dev/nvidia{use.device}" for use in uses],
        "Cores": percent(uses[0].compute_limit) or len(uses) * 100,
        "Memory": uses[0].memory_limit or 0,
    }


# vGPU manager.
MAGIC, LAYOUT, SIZE = 0x56474346, 1, 8192
_DEVICES, _BEGIN, _DEVICE = 16, 512, 128


class Limits(NamedTuple):
    """A container's limits on a GPU."""

    uuid: str
    memory: int  # bytes; 0: all
    percent: int  # 0, or 100 and more: all
    limited: bool = True


def vgpu_manager_image(names: tuple[str, str, str, str], places: Mapping[int, Limits]) -> bytes:
    """Return a file with (pod uid, pod name, namespace, container), and limits by the GPU's place."""
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


def vgpu_manager(metered: Metered) -> Files:
    """Return the limits of a container, each at the place of its GPU on the node."""
    pod, container = metered.pod, metered.container
    places = {state.gpu.uuid: place for place, state in enumerate(metered.gpus)}
    # The policy "none" does not limit compute.
    limited = metered.meter.layout != "none"
    limits = {
        places[share.device]: Limits(share.device, share.memory, share.cores, limited)
        for share in metered.shares
    }
    names = (pod.uid, pod.name, pod.namespace, container.name)
    return {_vgpu_manager_path(pod.uid, container.name): vgpu_manager_image(names, limits)}


def recorded_vgpu_manager(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded limits, in order: their places are not recorded."""
    written: dict[str, bytes] = {}
    for file in files:
        limits = {
            place: Limits(use.device, use.memory_limit or 0, percent(use.compute_limit))
            for place, use in enumerate(file.devices)
        }
        content = vgpu_manager_image((file.pod_uid, "", "", file.container), limits)
        written[_vgpu_manager_path(file.pod_uid, file.container)] = content
    return written


def _vgpu_manager_path(pod_uid: str, container: str) -> str:
    return f"etc/vgpu-manager/{pod_uid}_{container}/config/vgpu.config"


# HAMi's NPUs.
_SIZE, _SLOTS, _SLOT = 6200, 1080, 80


def used(meter: MeterFile) -> list[int]:
    """Return the memory in use by each process of a container, in bytes."""
    return [int(mebibytes) * MEBIBYTE for mebibytes in meter.layout.split(",") if mebibytes]


def vnpu_image(limit: int, sizes: Sequence[int]) -> bytes:
    """Return a file with the limit of a container, and a slot for the use of each process, in bytes."""
    content = bytearray(_SIZE)
    struct.pack_into("<QQQ", content, 0, limit, sum(sizes), 0)
    struct.pack_into("<I", content, 48, len(sizes))
    for place, size in enumerate(sizes):
        struct.pack_into("<iiQ", content, _SLOTS + place * _SLOT, place + 1, place + 1, size)
        struct.pack_into("<I", content, _SLOTS + place * _SLOT + 72, 1)
    return bytes(content)


def vnpu(metered: Metered) -> Files:
    """Return the file of a container."""
    limit = next((share.memory for share in metered.shares), 0)
    return {_vnpu_path(metered.pod.uid, metered.container.name): vnpu_image(limit, used(metered.meter))}


def recorded_vnpu(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded use and limit of containers, which the file has for all devices together."""
    return {
        _vnpu_path(file.pod_uid, file.container): vnpu_image(
            sum(use.memory_limit or 0 for use in file.devices), [use.memory_used or 0 for use in file.devices]
        )
        for file in files
    }


def _vnpu_path(pod_uid: str, container: str) -> str:
    return f"usr/local/hami-vnpu-core/containers/{pod_uid}_{container}/vnpu_local_shmem"
