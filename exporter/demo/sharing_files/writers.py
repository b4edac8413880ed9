"""Files of cGPU, Run:ai, GPU manager, vGPU manager and HAMi's NPUs, as these programs write them.

For each there is a function that writes what a recording read from such files, and one for the file of a
running container, which describes it as a recording would and has it written by the first.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.scenario.pods import Container, MeterFile, Pod, Share
from exporter.model import ContainerFile, DeviceUse

# Contents by path below the root of the node.
Files = Mapping[str, str | bytes]
MEBIBYTE = 1 << 20
# cGPU: the first digits of a container's id name its instance.
DIGITS = 12
# A weight other than the usual one means that the container has no fixed share of the time.
USUAL_WEIGHT, OTHER_WEIGHT = 1, 2
CGPU = "proc/cgpu_km"
# GPU manager: uid of the pod; driver limit and free memory; name of the container; PCI address of its card,
# which the manager leaves empty; limits of memory and compute; whether the latter is hard; version of the
# driver; whether the limits are enforced.
_VCUDA = struct.Struct("<48si4044s4096s16sQiiiii4x")
VCUDA = "etc/gpu-manager/vm"
CARDS = "etc/gpu-manager/checkpoint/gpumanager_internal_checkpoint"
# vGPU manager.
MAGIC, LAYOUT, SIZE = 0x56474346, 1, 8192
_DEVICES, _BEGIN, _DEVICE = 16, 512, 128
# HAMi's NPUs.
_SIZE, _SLOTS, _SLOT = 6200, 1080, 80


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredContainer:
    """A running container with a file of a sharing system."""

    pod: Pod
    container: Container
    meter: MeterFile
    shares: tuple[Share, ...]
    processes: tuple[ProcessState, ...]  # of the container
    gpus: tuple[GpuState, ...]  # of the node

    def uses(self) -> list[DeviceUse]:
        """Return the limits and the use of each GPU of the container, in the order of the node's GPUs."""
        shares = {share.device: share for share in self.shares}
        uuids = [state.gpu.uuid for state in self.gpus]
        return [self._use(shares[uuid]) for uuid in uuids if uuid in shares]

    def _use(self, share: Share) -> DeviceUse:
        processes = [state for state in self.processes if state.running.process.device == share.device]
        return DeviceUse(
            device=share.device,
            memory_limit=share.memory or None,
            compute_limit=share.cores / 100 if share.cores else None,
            memory_used=sum(state.memory for state in processes),
            compute_used=sum(state.sm for state in processes) / 100,
        )


def percent(share: float | None) -> int:
    """Return a share in percent, 0 if it is unknown."""
    return round((share or 0) * 100)


def cgpu(metered: MeteredContainer) -> Files:
    """Return an instance for each GPU of the container."""
    minors = {state.gpu.uuid: str(state.gpu.minor) for state in metered.gpus}
    name = metered.container.container_id[:DIGITS]
    return {
        path: text
        for use in metered.uses()
        for path, text in _cgpu_instance(name, replace(use, device=minors[use.device]), USUAL_WEIGHT)
    }


def recorded_cgpu(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded instances; all containers of a GPU have the same share of the time."""
    written: dict[str, str | bytes] = {}
    for file in files:
        for use in file.devices:
            weight = USUAL_WEIGHT if use.compute_limit else OTHER_WEIGHT
            written |= dict(_cgpu_instance(file.container_id, use, weight))
            if use.compute_limit:
                written[f"{CGPU}/{use.device}/policy"] = "0\n"
                written[f"{CGPU}/{use.device}/max_inst"] = f"{round(1 / use.compute_limit)}\n"
    return written


def _cgpu_instance(container_id: str, use: DeviceUse, weight: int) -> Iterator[tuple[str, str]]:
    folder = f"{CGPU}/{use.device}/{container_id}"
    yield f"{folder}/memsize", f"{use.memory_limit or 0}\n"
    yield f"{folder}/weight", f"{weight}\n"
    if use.memory_used is not None:
        yield f"{folder}/meminfo", f"Free: 0\nPID: 1 Mem: {use.memory_used}\n"


def runai(metered: MeteredContainer) -> Files:
    """Return the use of each GPU of the container."""
    indexes = {state.gpu.uuid: str(index) for index, state in enumerate(metered.gpus)}
    uses = tuple(replace(use, device=indexes[use.device]) for use in metered.uses())
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


def vcuda(metered: MeteredContainer) -> Files:
    """Return both files, as the manager writes them when a process of the container registers."""
    pod, container = metered.pod, metered.container
    memory, cores = (sum(getattr(share, name) for share in metered.shares) for name in ("memory", "cores"))
    use = DeviceUse(device="")
    if cores < 100:
        use = DeviceUse(device="", memory_limit=memory, compute_limit=cores / 100)
    file = ContainerFile(
        pod_uid=pod.uid,
        container=container.name,
        container_id="" if metered.meter.layout == "name" else container.container_id,
        devices=(use,),
        pids=tuple(state.pid for state in metered.processes),
    )
    return recorded_vcuda([file])


def recorded_vcuda(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded folders of containers, and one file with the cards of all of them."""
    cards: dict[str, dict[str, object]] = {}
    written: dict[str, str | bytes] = {}
    for file in files:
        numbered = bool(file.devices) and all(use.device.isdecimal() for use in file.devices)
        if numbered:
            cards.setdefault(file.pod_uid, {})[file.container] = _cards(file.devices)
        if file.container_id or file.pids is not None or not numbered:
            folder = f"{VCUDA}/{file.pod_uid}/{file.container_id or file.container}"
            written[f"{folder}/vcuda.config"] = vcuda_image(file)
            if file.pids is not None:
                written[f"{folder}/pids.config"] = struct.pack(f"<{len(file.pids)}i", *file.pids)
    if cards:
        written[CARDS] = json.dumps({"PodGPUMapping": cards})
    return written


def vcuda_image(file: ContainerFile) -> bytes:
    """Return the content of vcuda.config, with the limits of the first device."""
    use = next(iter(file.devices), DeviceUse(device=""))
    bus_id = "" if use.device.isdecimal() else use.device
    enforced = use.memory_limit is not None or use.compute_limit is not None
    names = file.pod_uid.encode(), 0, b"", file.container.encode(), bus_id.encode()
    return _VCUDA.pack(*names, use.memory_limit or 0, percent(use.compute_limit), 1, 535, 161, enforced)


def _cards(uses: Sequence[DeviceUse]) -> dict[str, object]:
    return {
        "Devices": [f"/dev/nvidia{use.device}" for use in uses],
        "Cores": percent(uses[0].compute_limit) or len(uses) * 100,
        "Memory": uses[0].memory_limit or 0,
    }


def vgpu_manager(metered: MeteredContainer) -> Files:
    """Return the limits of a container; the policy "none" does not limit compute."""
    uses = metered.uses()
    if metered.meter.layout == "none":
        uses = [replace(use, compute_limit=None) for use in uses]
    file = ContainerFile(pod_uid=metered.pod.uid, container=metered.container.name, devices=tuple(uses))
    return recorded_vgpu_manager([file])


def recorded_vgpu_manager(files: Sequence[ContainerFile]) -> Files:
    """Return the recorded limits."""
    return {
        f"etc/vgpu-manager/{file.pod_uid}_{file.container}/config/vgpu.config": vgpu_manager_image(file)
        for file in files
    }


def vgpu_manager_image(file: ContainerFile) -> bytes:
    """Return the content of vgpu.config: the devices in order, as their places are not recorded."""
    content = bytearray(SIZE)
    struct.pack_into("<4I", content, 0, MAGIC, LAYOUT, _BEGIN + _DEVICES * _DEVICE, _DEVICES)
    # After the uid, the names of pod and namespace, which are not recorded.
    struct.pack_into("<48s128x64s", content, 128, file.pod_uid.encode(), file.container.encode())
    for place, use in enumerate(file.devices):
        at = _BEGIN + place * _DEVICE
        memory, cores = use.memory_limit or 0, percent(use.compute_limit)
        limited = 0 < cores < 100
        struct.pack_into("<II48sQQ", content, at, 2, 0, use.device.encode(), memory, memory)
        struct.pack_into("<7i", content, at + 72, cores, cores, limited, limited, memory > 0, 0, 1)
    return bytes(content)


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


def vnpu(metered: MeteredContainer) -> Files:
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
