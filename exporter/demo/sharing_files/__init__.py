"""The files that sharing systems keep on a fake node."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from exporter.demo.machine import GpuState
from exporter.demo.present import Present
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.pods import MeterKind
from exporter.demo.sharing_files import hami, writers
from exporter.demo.sharing_files.writers import Files, MeteredContainer
from exporter.demo.tree import Written
from exporter.model import ContainerFile

# Writers of a running container's files, by the kind of the file.
WRITERS: Mapping[MeterKind, Callable[[MeteredContainer], Files]] = {
    "hami": hami.cache,
    "hami-vnpu": writers.vnpu,
    "vgpu-manager": writers.vgpu_manager,
    "cgpu": writers.cgpu,
    "vcuda": writers.vcuda,
    "runai": writers.runai,
}
# Writers of recorded files, by the name of the system that reads them.
KEEPERS: Mapping[str, Callable[[Sequence[ContainerFile]], Files]] = {
    "hami": hami.recorded_caches,
    "hami-ascend": writers.recorded_vnpu,
    "cgpu": writers.recorded_cgpu,
    "gpu-manager": writers.recorded_vcuda,
    "vgpu-manager": writers.recorded_vgpu_manager,
    "runai": writers.recorded_runai,
}
# Systems with numbers of devices as folder names.
NUMBERED = frozenset({"cgpu", "runai"})


class SharingFiles:
    """Keeps the files below ``root`` in step with the scenario."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self._root = root
        self._written = Written()
        self._paths: set[str] = set()
        self._static: dict[str, str | bytes] = dict(scenario.files)
        for system, files in scenario.kept.items():
            self._static |= KEEPERS[system](files)

    def step(self, now: Present, gpus: tuple[GpuState, ...]) -> None:
        """Bring the files to ``now``."""
        contents = dict(self._static)
        for metered in _metered(now, gpus):
            contents |= WRITERS[metered.meter.kind](metered)
        self._written.write_all(self._root, contents)
        for path in self._paths - contents.keys():
            self._written.remove(self._root / path)
        self._paths = set(contents)


def _metered(now: Present, gpus: tuple[GpuState, ...]) -> Iterator[MeteredContainer]:
    states = [state for gpu in gpus for state in gpu.processes]
    for pod in now.pods:
        for container in pod.containers:
            if container.meter is not None:
                yield MeteredContainer(
                    pod=pod,
                    container=container,
                    meter=container.meter,
                    shares=container.shares or (),
                    processes=tuple(state for state in states if state.running.container is container),
                    gpus=gpus,
                )
