"""The files that sharing systems keep on a fake node, written as their programs write them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.present import Present
from exporter.demo.schema import Scenario
from exporter.demo.schema_pods import Container, Pod
from exporter.demo.schema_sharing import MeterFile, Share
from exporter.demo.written import Written


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

WRITERS: Mapping[str, Writer] = {}
"""Writers by the kind of the file."""


class SharingFiles:
    """Keeps the files below ``root`` in step with the scenario."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self._scenario = scenario
        self._root = root
        self._written = Written()
        self._there: set[Path] = set()

    def step(self, now: Present, gpus: tuple[GpuState, ...]) -> None:
        """Bring the files to ``now``."""
        found: dict[str, str | bytes] = {**self._scenario.files}
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
