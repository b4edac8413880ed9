"""The records of a scenario: one node, its GPUs, what runs on them and what goes wrong, and when.

This is the file format: each field is a field of the JSON, ``for_`` is written ``for``. A file may leave
out uuids, pids, container ids and pod uids, which are then derived from the scenario's name and the place
in it, and may use the shorthands that ``exporter.demo.scenario.expand`` writes out. Memory is in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.demo.scenario.amd_gpus import AmdGpu
from exporter.demo.scenario.faults import Fault
from exporter.demo.scenario.gpus import Gpu, Node
from exporter.demo.scenario.pods import Offer, Pod, Process
from exporter.model import ContainerFile

CgroupStyle = Literal["systemd", "cgroupfs", "cgroupfs-v1", "crio", "relative"]
IdentitySource = Literal["pods_api", "pod_logs", "none"]
ApiVersion = Literal["v1", "v1alpha1"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole node. ``missing_functions`` are NVML functions that an old driver does not have.

    ``files`` are further files of the node with their text, by their paths below its root. ``kept`` is what
    the files of sharing systems say, by system, where they stand still as in a recording.
    """

    name: str
    description: str = ""
    node: Node
    host_pid: bool = True
    identity: IdentitySource = "pods_api"
    kubelet_api: tuple[ApiVersion, ...] = ("v1", "v1alpha1")
    cgroup: CgroupStyle = "systemd"
    missing_functions: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    amd: tuple[AmdGpu, ...] = ()
    offers: tuple[Offer, ...] = ()
    pods: tuple[Pod, ...] = ()
    host_processes: tuple[Process, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, tuple[ContainerFile, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
