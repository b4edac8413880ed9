"""The memory of cgroups on a fake node: files of the controller ``dmem``, or the driver's own accounting."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.demo.machine import GpuState
from exporter.demo.present import Present
from exporter.demo.scenario import CgroupLimit, Scenario
from exporter.demo.scenario.pods import Container, MemoryLimit
from exporter.demo.tree import OVER, Written, container_path, own_path, process_path

ROOT = "sys/fs/cgroup"


@dataclass(slots=True)
class Amounts:
    """The memory of one GPU in one cgroup, in bytes."""

    used: int = 0
    soft: int = 0
    hard: int = 0  # 0: no limit


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """The driver's answers, by the directory of the cgroup and the GPU's uuid."""

    amounts: Mapping[tuple[str, str], Amounts] = field(default_factory=dict)

    def of(self, path: str, uuid: str) -> Amounts | None:
        """Return those of a cgroup, or else of the nearest one above that has a limit."""
        while path:
            found = self.amounts.get((path, uuid))
            if found is not None and (found.soft or found.hard):
                return found
            path = path.rpartition("/")[0]
        return None


class CgroupMemory:
    """Keeps the cgroups below ``root`` in step with the scenario, if its node limits memory."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self._scenario = scenario
        self._root = root / ROOT
        self._backend = scenario.node.memory_limits
        self._written = Written()
        self._paths: set[str] = set()

    def step(self, now: Present, gpus: tuple[GpuState, ...]) -> DriverLimits:
        """Bring the cgroups to ``now``; return the driver's answers about them."""
        if not self._backend:
            return DriverLimits()
        containers = self._containers(now)
        amounts = self._amounts(containers, gpus)
        paths = {above for path in containers for above in _line(path)}
        self._remove(paths)
        for path in paths:
            (self._root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        if self._backend == "misc":
            return DriverLimits(
                {(f"{self._root}{path}", uuid): each for (path, uuid), each in amounts.items()}
            )
        regions = {state.gpu.uuid: _region(state) for state in gpus}
        self._write("", "dmem.capacity", {regions[each.gpu.uuid]: each.gpu.memory_total for each in gpus})
        for path in paths:
            here = {region: amounts[path, uuid] for uuid, region in regions.items()}
            self._write(path, "dmem.current", {region: each.used for region, each in here.items()})
            self._write(path, "dmem.min", {region: each.soft for region, each in here.items()})
            self._write(path, "dmem.max", {region: each.hard or "max" for region, each in here.items()})
        return DriverLimits()

    def _amounts(
        self, containers: Mapping[str, Container | None], gpus: tuple[GpuState, ...]
    ) -> Mapping[tuple[str, str], Amounts]:
        """Return the amounts by path and GPU; those of a cgroup count in all above it, too."""
        amounts: dict[tuple[str, str], Amounts] = defaultdict(Amounts)
        for state in gpus:
            for process in state.processes:
                for above in _line(process_path(process.running, self._scenario.cgroup)):
                    amounts[above, state.gpu.uuid].used += process.memory
        limits: list[tuple[str, MemoryLimit]] = [
            (path, each) for path, of in containers.items() if of for each in of.memory_limits
        ]
        for path, limit in limits:
            for above in _line(path):
                amounts[above, limit.device].used -= limit.uncharged
        # The driver alone has no hierarchy of limits.
        nested = self._backend == "dmem"
        set_here: list[tuple[str, MemoryLimit | CgroupLimit]] = [*limits]
        set_here += [(each.path, each) for each in self._scenario.cgroup_limits]
        for path, of in set_here:
            amounts[path, of.device].hard = of.hard
            for above in _line(path) if nested else (path,):
                amounts[above, of.device].soft += of.soft
        return amounts

    def _containers(self, now: Present) -> dict[str, Container | None]:
        """Return the running containers by path; None for a sandbox, and for the exporter itself."""
        style = self._scenario.cgroup
        found: dict[str, Container | None] = {own_path(style): None}
        for pod in now.pods:
            if pod.phase in OVER:
                continue
            sandbox = hashlib.sha256(pod.uid.encode()).hexdigest()
            found[container_path(pod.uid, pod.qos, sandbox, style)] = None
            for container in pod.containers:
                if container.container_id and not container.init:
                    path = container_path(pod.uid, pod.qos, container.container_id, style)
                    found[path] = container
        return found

    def _write(self, path: str, name: str, amounts: Mapping[str, int | str]) -> None:
        text = "".join(f"{region} {amount}\n" for region, amount in amounts.items())
        self._written.write(self._root / path.lstrip("/") / name, text)

    def _remove(self, paths: set[str]) -> None:
        """Remove the cgroups that are gone, those below first."""
        for path in sorted(self._paths - paths, reverse=True):
            folder = self._root / path.lstrip("/")
            if folder.exists():
                self._written.remove_folder(folder)
        self._paths = paths


def _line(path: str) -> Iterator[str]:
    """Yield the paths of a cgroup and of those above it, without the root."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _region(state: GpuState) -> str:
    """Return the key of a GPU in files of ``dmem``."""
    address = state.gpu.pci_bus_id.lower()
    return f"nvidia/{address}/vidmem" if len(address) > len("0000:00:00.0") else f"drm/{address}/vram"
