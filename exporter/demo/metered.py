"""What the writers of sharing systems' files are told of a container."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.schema_pods import Container, Pod
from exporter.demo.schema_sharing import MeterFile, Share


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
