"""The faults and changes of a scenario: from ``at`` on, for ``for_`` seconds or until the end."""

from dataclasses import dataclass
from typing import Literal

from exporter.demo.scenario.gpus import MigInstance
from exporter.demo.scenario.pods import Pod


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
class KubeletDown(_Fault):
    """The kubelet does not run; its sockets remain as dead files."""

    kind: Literal["kubelet_down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletRateLimit(_Fault):
    """The kubelet rejects every call by its rate limit."""

    kind: Literal["kubelet_rate_limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletHang(_Fault):
    """The kubelet accepts calls and does not answer."""

    kind: Literal["kubelet_hang"]


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

    A library that is open does not notice: see ``exporter.demo.nvml.board.Listing``.
    """

    kind: Literal["gpu_absent"]
    gpu: int  # place in the list


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReload(_Fault):
    """The NVIDIA kernel module is unloaded; processes on its GPUs end, and counters start at 0 after it."""

    kind: Literal["driver_reload"]


NvmlFault = NvmlError | NvmlHang | XidEvent
KubeletFault = KubeletDown | KubeletRateLimit | KubeletHang | KubeletFilling
PodFault = Unhealthy | PodDelete | PodAdd
Fault = NvmlFault | KubeletFault | PodFault | MigLayout | ProcessExit | GpuAbsent | DriverReload
