"""The files of sharing systems as a recording has them: written so that they say what they once said.

Each writer is the way back of the reader of its system, and takes all that this reader found.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from exporter.demo import files_hami, files_runai, files_vcuda, files_vgpu_manager, files_vnpu
from exporter.model import ContainerFile, DeviceUse

Files = Mapping[str, str | bytes]
Keep = Callable[[Sequence[ContainerFile]], Files]
ALL = 100
# What cGPU says of a weight other than this is not a share of the time.
USUAL_WEIGHT, OTHER_WEIGHT = 1, 2
CARDS = "etc/gpu-manager/checkpoint/gpumanager_internal_checkpoint"


def hami(files: Sequence[ContainerFile]) -> Files:
    """Write the caches of containers and of claims."""
    return {_hami_path(file): _hami_cache(file) for file in files}


def vnpu(files: Sequence[ContainerFile]) -> Files:
    """Write what an NPU's container has in all, which its file says as one device."""
    return {
        f"{files_vnpu.CONTAINERS}/{file.pod_uid}_{file.container}/{files_vnpu.NAME}": files_vnpu.image(
            sum(use.memory_limit or 0 for use in file.devices),
            [use.memory_used or 0 for use in file.devices],
        )
        for file in files
    }


def cgpu(files: Sequence[ContainerFile]) -> Files:
    """Write the instances of containers; the part of the time is the same for all of a GPU."""
    return {
        f"proc/cgpu_km/{path}": text
        for file in files
        for use in file.devices
        for path, text in _cgpu_instance(file, use)
    }


def vcuda(files: Sequence[ContainerFile]) -> Files:
    """Write the folders of containers, and the cards of all of them."""
    cards: dict[str, dict[str, object]] = {}
    found: dict[str, str | bytes] = {}
    for file in files:
        numbered = bool(file.devices) and all(use.device.isdecimal() for use in file.devices)
        if numbered:
            cards.setdefault(file.pod_uid, {})[file.container] = _cards(file.devices)
        if file.container_id or file.pids is not None or not numbered:
            found |= _vcuda_folder(file)
    return found | ({CARDS: json.dumps({"PodGPUMapping": cards})} if cards else {})


def vgpu_manager(files: Sequence[ContainerFile]) -> Files:
    """Write the limits of containers, each at its own place, whichever that was."""
    return {
        f"etc/vgpu-manager/{file.pod_uid}_{file.container}/config/vgpu.config": files_vgpu_manager.image(
            (file.pod_uid, "", "", file.container),
            {
                place: files_vgpu_manager.Limits(
                    use.device, use.memory_limit or 0, _percent(use.compute_limit)
                )
                for place, use in enumerate(file.devices)
            },
        )
        for file in files
    }


def runai(files: Sequence[ContainerFile]) -> Files:
    """Write the use of pods; a number that is not told is one that is just being written."""
    return {
        f"{files_runai.PODS}/{file.pod_uid}/metrics/gpu/{use.device}/{name}": _digits(number)
        for file in files
        for use in file.devices
        for name, number in (
            ("utilization.sm", None if use.compute_used is None else _percent(use.compute_used)),
            ("memory.allocated", use.memory_used),
        )
    }


KEEPERS: Mapping[str, Keep] = {
    "hami": hami,
    "hami-ascend": vnpu,
    "cgpu": cgpu,
    "gpu-manager": vcuda,
    "vgpu-manager": vgpu_manager,
    "runai": runai,
}
"""Writers by the name of the system that reads the files."""
NUMBERED = frozenset({"cgpu", "runai"})
"""Those whose files name devices by numbers, which become names of folders."""


def _percent(share: float | None) -> int:
    return round((share or 0) * ALL)


def _digits(number: int | None) -> str:
    return "" if number is None else str(number)


def _hami_path(file: ContainerFile) -> str:
    folder = f"claims/{file.claim_uid}" if file.claim_uid else f"containers/{file.pod_uid}_{file.container}"
    return f"{files_hami.ROOT}/{folder}/kept.cache"


def _hami_cache(file: ContainerFile) -> bytes:
    """Write a cache; the first of its processes has all the memory, and none has more than a whole device."""
    uses = file.devices
    if not uses:
        return b""
    busy = any(use.memory_used is None for use in uses)
    measured = any(use.compute_used is not None for use in uses)
    # The oldest layout is the one that measures nothing.
    layout = files_hami.LATEST if measured or busy else files_hami.UNMEASURED
    limit = _percent(next((use.compute_limit for use in uses if use.compute_limit is not None), None))
    slots = _hami_slots(file, busy)
    cores = limit or (files_hami.UNLIMITED if measured else 0)
    memory = [use.memory_limit or 0 for use in uses]
    return files_hami.image(layout, [use.device for use in uses], memory, cores, slots)


def _hami_slots(file: ContainerFile, busy: bool) -> Iterator[files_hami.Slot]:
    percents = [_percent(use.compute_used) for use in file.devices]
    enough = range(1, 2 + max(percents) // ALL)
    # Where the pids are not known, the last of the processes has none.
    for place, pid in enumerate((*enough, 0) if file.pids is None else file.pids):
        yield files_hami.Slot(
            pid=pid,
            memory=tuple(0 if place else use.memory_used or 0 for use in file.devices),
            percent=tuple(max(0, min(ALL, each - place * ALL)) for each in percents),
            seen=tuple(use.compute_used is not None for use in file.devices),
            busy=busy,
        )


def _cgpu_instance(file: ContainerFile, use: DeviceUse) -> Iterator[tuple[str, str]]:
    folder = f"{use.device}/{file.container_id}"
    yield f"{folder}/memsize", f"{use.memory_limit or 0}\n"
    if use.memory_used is not None:
        yield f"{folder}/meminfo", f"Free: 0\nPID: 1 Mem: {use.memory_used}\n"
    if use.compute_limit:
        yield f"{use.device}/policy", "0\n"
        yield f"{use.device}/max_inst", f"{round(1 / use.compute_limit)}\n"
    yield f"{folder}/weight", f"{USUAL_WEIGHT if use.compute_limit else OTHER_WEIGHT}\n"


def _cards(uses: Sequence[DeviceUse]) -> dict[str, object]:
    limits = uses[0]
    whole = len(uses) * ALL
    return {
        "Devices": [f"/dev/nvidia{use.device}" for use in uses],
        "Cores": _percent(limits.compute_limit) or whole,
        "Memory": limits.memory_limit or 0,
    }


def _vcuda_folder(file: ContainerFile) -> Files:
    use = next(iter(file.devices), DeviceUse(device=""))
    folder = f"etc/gpu-manager/vm/{file.pod_uid}/{file.container_id or file.container}"
    config = files_vcuda.Config(
        pod_uid=file.pod_uid,
        container=file.container,
        bus_id="" if use.device.isdecimal() else use.device,
        memory=use.memory_limit or 0,
        cores=_percent(use.compute_limit),
        enabled=use.memory_limit is not None or use.compute_limit is not None,
    )
    found: dict[str, str | bytes] = {f"{folder}/vcuda.config": files_vcuda.image(config)}
    if file.pids is not None:
        found[f"{folder}/pids.config"] = struct.pack(f"<{len(file.pids)}i", *file.pids)
    return found
