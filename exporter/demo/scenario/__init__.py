"""The record of a scenario: one node, its GPUs, pods and processes, and the faults over time.

This is the file format: each field is a field of the JSON, ``for_`` is ``for`` there. A file may leave out
uuids, pids, container ids and pod uids, which are then derived from the scenario's name and the place in it,
and may use the shorthands that ``exporter.demo.scenario.expand`` expands. Memory is in bytes.

Faults and changes happen from ``at`` on, for ``for_`` seconds or until the end.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from exporter.demo.scenario.amd_gpus import AmdGpu
from exporter.demo.scenario.gpus import Gpu, MigInstance, Node
from exporter.demo.scenario.pods import Container, Offer, Pod, Process
from exporter.model import ContainerFile

T = TypeVar("T")
CgroupStyle = Literal["systemd", "cgroupfs", "cgroupfs-v1", "crio", "relative"]
IdentitySource = Literal["pods_api", "pod_logs", "none"]
ApiVersion = Literal["v1", "v1alpha1"]
KubeletFailureKind = Literal["kubelet_down", "kubelet_rate_limit", "kubelet_hang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    at: float = 0.0
    for_: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlError(_Fault):
    """NVML calls fail."""

    kind: Literal["nvml_error"]
    function: str | None = None  # None: any
    device: str | None = None  # None: any
    code: str  # an NVML name such as GPU_IS_LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlHang(_Fault):
    """NVML calls hang."""

    kind: Literal["nvml_hang"]
    function: str | None = None  # None: any
    device: str | None = None  # None: any
    seconds: float | None = None  # None: until the fault is over


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent(_Fault):
    """A device reports an XID error, once."""

    kind: Literal["xid"]
    device: str  # uuid of a GPU or MIG device
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletFailure(_Fault):
    """The kubelet answers no call.

    It does not run (its sockets remain as dead files), rejects calls by its rate limit, or accepts and hangs.
    """

    kind: KubeletFailureKind


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletFilling(_Fault):
    """The kubelet was restarted at ``at`` and knows only some pods until the fault is over.

    Static pods come first. A kubelet that cannot reach the API server knows no others.
    """

    kind: Literal["kubelet_filling"]
    pods: int = 0  # number of known pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhealthy(_Fault):
    """A device plugin reports ids unhealthy: the kubelet no longer offers them, holders keep them."""

    kind: Literal["unhealthy"]
    resource: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDelete(_Fault):
    """A pod is deleted; at the end of the fault it comes back, with new start times."""

    kind: Literal["pod_delete"]
    pod: str  # namespace/name


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAdd(_Fault):
    """A pod is added until the end of the fault."""

    kind: Literal["pod_add"]
    pod: Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class MigLayout(_Fault):
    """The MIG layout of a GPU changes; processes on removed instances end."""

    kind: Literal["mig_layout"]
    gpu: int  # NVML index
    instances: tuple[MigInstance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit(_Fault):
    """A process ends; at the end of the fault it is started again."""

    kind: Literal["process_exit"]
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAbsent(_Fault):
    """A GPU is removed; its processes end, and are started again at the end of the fault.

    A library that is open does not notice until it is asked about that GPU.
    """

    kind: Literal["gpu_absent"]
    gpu: int  # place in the list


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReload(_Fault):
    """The NVIDIA kernel module is unloaded; processes on its GPUs end, and counters start at 0 after it."""

    kind: Literal["driver_reload"]


NvmlFault = NvmlError | NvmlHang | XidEvent
KubeletFault = KubeletFailure | KubeletFilling
PodFault = Unhealthy | PodDelete | PodAdd
Fault = NvmlFault | KubeletFault | PodFault | MigLayout | ProcessExit | GpuAbsent | DriverReload


def with_paths(name: str, items: Iterable[T]) -> Iterator[tuple[str, T]]:
    """Yield the items of a list with their paths, such as ``gpus[0]``."""
    return ((f"{name}[{place}]", item) for place, item in enumerate(items))


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLimit:
    """What is set in a cgroup other than a container's: a limit, or a reservation that was left behind."""

    path: str  # below the root: ``/kubepods.slice``
    device: str  # uuid
    soft: int = 0  # bytes, in addition to those of the cgroups below
    hard: int = 0  # bytes; 0: none


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
    cgroup_limits: tuple[CgroupLimit, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # further files: text by path below the root
    # Contents of the files of sharing systems, by system, where they never change, as in a recording.
    kept: Mapping[str, tuple[ContainerFile, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def all_pods(self) -> Iterator[tuple[str, Pod]]:
        """Yield the pods with their paths, and then those that faults add."""
        yield from with_paths("pods", self.pods)
        for path, fault in with_paths("faults", self.faults):
            if isinstance(fault, PodAdd):
                yield f"{path}.pod", fault.pod

    def all_containers(self) -> Iterator[tuple[str, Container]]:
        """Yield the containers of all pods with their paths."""
        for path, pod in self.all_pods():
            yield from with_paths(f"{path}.containers", pod.containers)

    def all_processes(self) -> Iterator[tuple[str, Process]]:
        """Yield the processes of the host and of all pods with their paths."""
        yield from with_paths("host_processes", self.host_processes)
        for path, container in self.all_containers():
            yield from with_paths(f"{path}.processes", container.processes)
