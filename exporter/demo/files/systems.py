"""The files that sharing systems keep on a fake node, written as their programs write them."""

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from exporter.demo.files import hami, writers
from exporter.demo.files.tree import Written
from exporter.demo.files.writers import Metered, Writer
from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.present import Present
from exporter.demo.scenario.pods import Container
from exporter.demo.scenario.schema import Scenario
from exporter.model import ContainerFile, DeviceUse

Files = Mapping[str, str | bytes]
Keep = Callable[[Sequence[ContainerFile]], Files]
ALL = 100
# What cGPU says of a weight other than this is not a share of the time.
USUAL_WEIGHT, OTHER_WEIGHT = 1, 2
CARDS = "etc/gpu-manager/checkpoint/gpumanager_internal_checkpoint"


def keep_hami(files: Sequence[ContainerFile]) -> Files:
    """Return the caches of containers and of claims."""
    return {_hami_path(file): _hami_cache(file) for file in files}


def vnpu(files: Sequence[ContainerFile]) -> Files:
    """Return what an NPU's container has in all, which its file says as one device."""
    return {
        f"{writers.CONTAINERS}/{file.pod_uid}_{file.container}/{writers.NAME}": writers.vnpu_image(
            sum(use.memory_limit or 0 for use in file.devices),
            [use.memory_used or 0 for use in file.devices],
        )
        for file in files
    }


def cgpu(files: Sequence[ContainerFile]) -> Files:
    """Return the instances of containers; the part of the time is the same for all of a GPU."""
    return {
        f"proc/cgpu_km/{path}": text
        for file in files
        for use in file.devices
        for path, text in _cgpu_instance(file, use)
    }


def vcuda(files: Sequence[ContainerFile]) -> Files:
    """Return the folders of containers, and the cards of all of them."""
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
    """Return the limits of containers, each at its own place, whichever that was."""
    return {
        f"etc/vgpu-manager/{file.pod_uid}_{file.container}/config/vgpu.config": writers.vgpu_manager_image(
            (file.pod_uid, "", "", file.container),
            {
                place: writers.Limits(use.device, use.memory_limit or 0, _percent(use.compute_limit))
                for place, use in enumerate(file.devices)
            },
        )
        for file in files
    }


def runai(files: Sequence[ContainerFile]) -> Files:
    """Return the use of pods; a number that is not told is one that is just being written."""
    return {
        f"{writers.PODS}/{file.pod_uid}/metrics/gpu/{use.device}/{name}": _digits(number)
        for file in files
        for use in file.devices
        for name, number in (
            ("utilization.sm", None if use.compute_used is None else _percent(use.compute_used)),
            ("memory.allocated", use.memory_used),
        )
    }


KEEPERS: Mapping[str, Keep] = {
    "hami": keep_hami,
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
    return f"{hami.ROOT}/{folder}/kept.cache"


def _hami_cache(file: ContainerFile) -> bytes:
    """Write a cache; the first of its processes has all the memory, and none has more than a whole device."""
    uses = file.devices
    if not uses:
        return b""
    busy = any(use.memory_used is None for use in uses)
    measured = any(use.compute_used is not None for use in uses)
    # The oldest layout is the one that measures nothing.
    layout = hami.LATEST if measured or busy else hami.UNMEASURED
    limit = _percent(next((use.compute_limit for use in uses if use.compute_limit is not None), None))
    slots = _hami_slots(file, busy)
    cores = limit or (hami.UNLIMITED if measured else 0)
    memory = [use.memory_limit or 0 for use in uses]
    return hami.image(layout, [use.device for use in uses], memory, cores, slots)


def _hami_slots(file: ContainerFile, busy: bool) -> Iterator[hami.Slot]:
    percents = [_percent(use.compute_used) for use in file.devices]
    enough = range(1, 2 + max(percents) // ALL)
    # Where the pids are not known, the last of the processes has none.
    for place, pid in enumerate((*enough, 0) if file.pids is None else file.pids):
        yield hami.Slot(
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
    config = writers.Config(
        pod_uid=file.pod_uid,
        container=file.container,
        bus_id="" if use.device.isdecimal() else use.device,
        memory=use.memory_limit or 0,
        cores=_percent(use.compute_limit),
        enabled=use.memory_limit is not None or use.compute_limit is not None,
    )
    found: dict[str, str | bytes] = {f"{folder}/vcuda.config": writers.vcuda_image(config)}
    if file.pids is not None:
        found[f"{folder}/pids.config"] = struct.pack(f"<{len(file.pids)}i", *file.pids)
    return found


WRITERS: Mapping[str, Writer] = {
    "hami": hami.cache,
    "hami-vnpu": writers.region,
    "vgpu-manager": writers.vgpu_manager_config,
    "cgpu": writers.instances,
    "vcuda": writers.vcuda_config,
    "runai": writers.metrics,
}
"""Writers by the kind of the file."""


class SharingFiles:
    """Keeps the files below ``root`` in step with the scenario."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self._scenario = scenario
        self._root = root
        self._written = Written()
        self._there: set[Path] = set()
        self._kept = {
            path: content
            for system, files in scenario.kept.items()
            for path, content in KEEPERS[system](files).items()
        }

    def step(self, now: Present, gpus: tuple[GpuState, ...]) -> None:
        """Bring the files to ``now``."""
        found: dict[str, str | bytes] = {**self._scenario.files, **self._kept}
        for metered in _metered(now, gpus):
            found |= WRITERS[metered.meter.kind](metered)
        wanted = {self._root / path: content for path, content in found.items()}
        for path, content in wanted.items():
            self._written.write(path, content)
        for path in self._there - wanted.keys():
            self._written.forget(path)
        self._there = set(wanted)


def _metered(now: Present, gpus: tuple[GpuState, ...]) -> Iterator[Metered]:
    for pod in now.pods:
        for container in pod.containers:
            if container.meter is not None:
                yield Metered(
                    pod=pod,
                    container=container,
                    meter=container.meter,
                    shares=container.shares or (),
                    processes=tuple(_running_in(container, gpus)),
                    gpus=gpus,
                )


def _running_in(container: Container, gpus: tuple[GpuState, ...]) -> Iterator[ProcessState]:
    for gpu in gpus:
        for state in gpu.processes:
            of = state.running.container
            if of is not None and of.container_id == container.container_id:
                yield state
