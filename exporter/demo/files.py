"""The files that sharing systems keep on a fake node, written as their programs write them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from exporter.demo import files_cgpu, files_hami, files_runai, files_vcuda, files_vgpu_manager, files_vnpu
from exporter.demo.kept import KEEPERS
from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.metered import Metered, Writer
from exporter.demo.present import Present
from exporter.demo.schema import Scenario
from exporter.demo.schema_pods import Container
from exporter.demo.written import Written

WRITERS: Mapping[str, Writer] = {
    "hami": files_hami.cache,
    "hami-vnpu": files_vnpu.region,
    "vgpu-manager": files_vgpu_manager.config,
    "cgpu": files_cgpu.instances,
    "vcuda": files_vcuda.config,
    "runai": files_runai.metrics,
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
