"""The record of a scenario: one node, its GPUs, pods and processes, and the faults over time.

This is the file format: each field is a field of the JSON, ``for_`` is ``for`` there. A file may leave out
uuids, pids, container ids and pod uids, which are then derived from the scenario's name and the place in it,
and may use the shorthands that ``exporter.demo.scenario.expand`` expands. Memory is in bytes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.demo.scenario.amd_gpus import AmdGpu
from exporter.demo.scenario.faults import Fault, PodAdd
from exporter.demo.scenario.gpus import Gpu, Node
from exporter.demo.scenario.pods import Offer, Pod, Process
from exporter.model import ContainerFile

CgroupStyle = Literal["systemd", "cgroupfs", "cgroupfs-v1", "crio", "relative"]
IdentitySource = Literal["pods_api", "pod_logs", "none"]
ApiVersion = Literal["v1", "v1alpha1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole node."""

    name: str
    description: str = ""
    node: Node
    host_pid: bool = True  # the exporter sees the processes of the host
    identity: IdentitySource = "pods_api"
    kubelet_api: tuple[ApiVersion, ...] = ("v1", "v1alpha1")
    cgroup: CgroupStyle = "systemd"
    missing_functions: tuple[str, ...] = ()  # NVML functions that the driver does not have
    gpus: tuple[Gpu, ...] = ()
    amd: tuple[AmdGpu, ...] = ()
    offers: tuple[Offer, ...] = ()
    pods: tuple[Pod, ...] = ()
    host_processes: tuple[Process, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # further files: text by path below the root
    # Contents of the files of sharing systems, by system, where they never change, as in a recording.
    kept: Mapping[str, tuple[ContainerFile, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def all_pods(self) -> Iterator[tuple[str, Pod]]:
        """Yield the pods with their paths, and then those that faults add."""
        for place, pod in enumerate(self.pods):
            yield f"pods[{place}]", pod
        for place, fault in enumerate(self.faults):
            if isinstance(fault, PodAdd):
                yield f"faults[{place}].pod", fault.pod

    def all_processes(self) -> Iterator[tuple[str, Process]]:
        """Yield the processes of the host and of all pods with their paths."""
        for place, process in enumerate(self.host_processes):
            yield f"host_processes[{place}]", process
        for path, pod in self.all_pods():
            for outer, container in enumerate(pod.containers):
                for inner, process in enumerate(container.processes):
                    yield f"{path}.containers[{outer}].processes[{inner}]", process
