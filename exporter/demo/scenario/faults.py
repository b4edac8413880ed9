"""The records of what goes wrong or changes in a scenario: from ``at`` on, ``for_`` seconds or for ever."""

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
    """Calls fail with ``code``, an NVML name such as GPU_IS_LOST; null ``function`` or ``device`` is any."""

    kind: Literal["nvml_error"]
    function: str | None = None
    device: str | None = None
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlHang(_Fault):
    """Calls do not return for ``seconds``, null: not before the fault is over."""

    kind: Literal["nvml_hang"]
    function: str | None = None
    device: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent(_Fault):
    """A device (the uuid of a GPU or MIG device) reports an XID error, once, as soon as it is time."""

    kind: Literal["xid"]
    device: str
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletDown(_Fault):
    """The kubelet does not run; its sockets lie there dead until it starts again."""

    kind: Literal["kubelet_down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletRateLimit(_Fault):
    """The kubelet rejects every call by its rate limit."""

    kind: Literal["kubelet_rate_limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletHang(_Fault):
    """The kubelet takes calls and does not answer."""

    kind: Literal["kubelet_hang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletFilling(_Fault):
    """The kubelet was restarted at ``at`` and knows only so many of its ``pods`` until this is over.

    Static pods come first. A kubelet whose API server is away knows no others.
    """

    kind: Literal["kubelet_filling"]
    pods: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhealthy(_Fault):
    """A device plugin reports these ids unhealthy: the kubelet offers them to nobody, holders keep them."""

    kind: Literal["unhealthy"]
    resource: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDelete(_Fault):
    """A pod (``namespace/name``) goes; with ``for`` it comes back after it, with new start times."""

    kind: Literal["pod_delete"]
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAdd(_Fault):
    """A pod comes; with ``for`` it goes after it."""

    kind: Literal["pod_add"]
    pod: Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class MigLayout(_Fault):
    """The GPU (its NVML index) is cut anew; what runs on instances that are gone ends."""

    kind: Literal["mig_layout"]
    gpu: int
    instances: tuple[MigInstance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit(_Fault):
    """A process ends; with ``for`` it is started again after it."""

    kind: Literal["process_exit"]
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAbsent(_Fault):
    """The GPU (its place in the list) is not plugged in; what runs on it ends, and is started again after it.

    A driver's library that is open then does not notice: see ``exporter.demo.nvml.node``.
    """

    kind: Literal["gpu_absent"]
    gpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReload(_Fault):
    """The kernel module of the NVIDIA GPUs is not loaded; nothing runs on them, and counters begin anew."""

    kind: Literal["driver_reload"]


NvmlFault = NvmlError | NvmlHang | XidEvent
Fault = (
    NvmlFault
    | KubeletDown
    | KubeletRateLimit
    | KubeletHang
    | KubeletFilling
    | Unhealthy
    | PodDelete
    | PodAdd
    | MigLayout
    | ProcessExit
    | GpuAbsent
    | DriverReload
)
