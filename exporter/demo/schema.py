"""The records of a scenario: one node, its GPUs, what runs on them and what goes wrong, and when.

This is the file format: each field is a field of the JSON, ``for_`` is written ``for``. A file may leave
out uuids, pids, container ids and pod uids, which are then derived from the scenario's name and the place
in it, and may use the shorthands that ``exporter.demo.expand`` writes out. Memory is in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.demo.codec import SIZES
from exporter.demo.load import OFF, Curve
from exporter.model.hardware import ComputeMode, ProcessKind

MIB = SIZES["MiB"]

CgroupStyle = Literal["systemd", "cgroupfs", "cgroupfs-v1", "crio", "relative"]
IdentitySource = Literal["pods_api", "pod_logs", "none"]
ApiVersion = Literal["v1", "v1alpha1"]
Qos = Literal["guaranteed", "burstable", "besteffort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The machine and its driver. ``cuda_version`` is as the driver says it: 12040 is 12.4.

    An empty ``driver_version`` is a machine on which the kernel module is not loaded.
    """

    name: str
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Clock rates in MHz, idle and at full load; the memory's rate is the same in both."""

    sm_idle: int = 210
    sm_max: int
    memory: int
    video_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One compute instance; those with the same ``gi`` share that GPU instance's memory.

    ``compute_slices`` (of the compute instance) and ``gi_slices`` come from the profile when left at 0.
    ``start`` and ``size`` are the placement in memory slices.
    """

    uuid: str = ""
    gi: int
    ci: int = 0
    profile: str
    memory_bytes: int
    reserved: int = 0
    overhead: int = 0
    compute_slices: int = 0
    gi_slices: int = 0
    multiprocessors: int
    start: int = 0
    size: int = 1
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """MIG of one GPU. ``max_slices`` is what the whole GPU can be cut into: 7, on an A30 4."""

    enabled: bool = True
    max_slices: int = 7
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A physical GPU; its NVML index is its place in the list.

    ``overhead`` is memory that no process accounts for. ``fan`` is the idle speed in percent, null on a
    passive board. ``mig`` is null on a model without MIG, ``bar1_total`` and ``serial`` on one that does
    not tell. ``unsupported`` names calls that this board answers with "not supported".
    """

    count: int = 1
    uuid: str = ""
    minor: int | None = None
    model: str
    pci_bus_id: str = ""
    serial: str | None = ""
    architecture: int
    memory_total: int
    memory_reserved: int = 0
    overhead: int = 200 * MIB
    bar1_total: int | None = 256 * MIB
    power_idle_mw: int
    power_max_mw: int
    temperature_base: int = 32
    memory_temperature: bool = False
    clocks: Clocks
    fan: int | None = None
    compute_mode: ComputeMode = "default"
    pcie_replays: int = 0
    mig: Mig | None = None
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Device ids that the device plugin offers: ``ids`` outright, or the shorthand made of the rest.

    ``of`` says whether whole GPUs or MIG instances are offered, ``gpus`` on which (null: on all), with
    ``replicas`` of each (0: not shared). ``{profile}`` in the resource is the instance's profile.
    """

    resource: str
    ids: tuple[str, ...] = ()
    of: Literal["", "gpus", "mig"] = ""
    gpus: tuple[int, ...] | None = None
    replicas: int = 0
    style: Literal["uuid", "gke", "legacy-mig"] = "uuid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process with a context on ``device``, the uuid of a GPU or MIG instance.

    Left empty, it is the one device that the container holds. ``memory`` is in bytes, null where the
    driver cannot tell it; ``load`` is in percent of the device. ``cgroup`` is for processes of the host.
    """

    pid: int = 0
    command: str = "python3"
    device: str = ""
    memory: int | Curve | None = 0
    kind: ProcessKind = "compute"
    load: Curve = OFF
    cgroup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with what the kubelet gave it, by resource; an id is in the device plugin's spelling."""

    name: str
    container_id: str = ""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of this node."""

    count: int = 1
    namespace: str
    name: str
    uid: str = ""
    qos: Qos = "burstable"
    containers: tuple[Container, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlError:
    """Calls fail with ``code``, an NVML name such as GPU_IS_LOST; null ``function`` or ``device`` is any."""

    kind: Literal["nvml_error"]
    at: float = 0.0
    for_: float | None = None
    function: str | None = None
    device: str | None = None
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlHang:
    """Calls do not return for ``seconds``, null: not before the fault is over."""

    kind: Literal["nvml_hang"]
    at: float = 0.0
    for_: float | None = None
    function: str | None = None
    device: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletDown:
    """The kubelet does not run; its sockets lie there dead until it starts again."""

    kind: Literal["kubelet_down"]
    at: float = 0.0
    for_: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletRateLimit:
    """The kubelet rejects every call by its rate limit."""

    kind: Literal["kubelet_rate_limit"]
    at: float = 0.0
    for_: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletHang:
    """The kubelet takes calls and does not answer."""

    kind: Literal["kubelet_hang"]
    at: float = 0.0
    for_: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDelete:
    """A pod (``namespace/name``) goes; with ``for`` it comes back after it, with new start times."""

    kind: Literal["pod_delete"]
    at: float = 0.0
    for_: float | None = None
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAdd:
    """A pod comes; with ``for`` it goes after it."""

    kind: Literal["pod_add"]
    at: float = 0.0
    for_: float | None = None
    pod: Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class MigLayout:
    """The GPU (its NVML index) is cut anew; what runs on instances that are gone ends."""

    kind: Literal["mig_layout"]
    at: float = 0.0
    for_: float | None = None
    gpu: int
    instances: tuple[MigInstance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """A process ends; with ``for`` it is started again after it."""

    kind: Literal["process_exit"]
    at: float = 0.0
    for_: float | None = None
    pid: int


Fault = (
    NvmlError
    | NvmlHang
    | KubeletDown
    | KubeletRateLimit
    | KubeletHang
    | PodDelete
    | PodAdd
    | MigLayout
    | ProcessExit
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A whole node. ``missing_functions`` are NVML functions that an old driver does not have."""

    name: str
    description: str = ""
    node: Node
    host_pid: bool = True
    identity: IdentitySource = "pods_api"
    kubelet_api: tuple[ApiVersion, ...] = ("v1", "v1alpha1")
    cgroup: CgroupStyle = "systemd"
    missing_functions: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    offers: tuple[Offer, ...] = ()
    pods: tuple[Pod, ...] = ()
    host_processes: tuple[Process, ...] = ()
    faults: tuple[Fault, ...] = ()
