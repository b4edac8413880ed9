"""The records of a scenario's pods: offered devices, containers, their devices and processes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.demo.load import OFF, Curve
from exporter.model.hardware import ProcessKind

# The kind of CDI devices by driver, if not "claim".
_CLASSES = {"gpu.amd.com": "gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One device of a resource claim. Containers that name the same claim share it."""

    driver: str = "gpu.nvidia.com"
    device: str  # the driver's name for it
    name: str
    namespace: str = ""  # by default the pod's
    uid: str = ""  # by default derived from the names
    pool: str = ""  # by default the node
    share_id: str = ""  # one of several shares of the device

    @property
    def cdi(self) -> str:
        """The CDI name of the device in this claim."""
        return f"k8s.{self.driver}/{_CLASSES.get(self.driver, 'claim')}={self.uid}-{self.device}"


MeterKind = Literal["hami", "hami-vnpu", "cgpu", "vcuda", "vgpu-manager", "runai"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A container's actual share of a device, if the kubelet's ids do not determine it."""

    device: str  # uuid
    slices: int = 1  # of the resource
    memory: int = 0  # bytes; 0: no limit
    cores: int = 0  # percent of the physical device; 0: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterFile:
    """A file that a sharing system keeps about a container."""

    kind: MeterKind
    layout: str = ""  # a variant; its meaning depends on the kind


Qos = Literal["guaranteed", "burstable", "besteffort"]
Style = Literal["uuid", "gke", "legacy-mig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Device ids that a device plugin offers: a list of ids, or the shorthand of the other fields."""

    resource: str  # ``{profile}`` is the profile of the instance
    ids: tuple[str, ...] = ()
    of: Literal["", "gpus", "mig", "amd"] = ""  # "amd": AMD GPUs or their partitions
    gpus: tuple[int, ...] | None = None  # None: all
    replicas: int = 0  # of each device; 0: not shared
    style: Style = "uuid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process with a context on a device."""

    pid: int = 0
    command: str = "python3"
    device: str = ""  # uuid of a GPU or MIG instance; "": the only device of the container
    memory: int | Curve | None = 0  # bytes; None: the driver cannot report it
    kind: ProcessKind = "compute"
    load: Curve = OFF  # percent of the device
    streams: int = 0  # videos that it encodes while it is busy
    cgroup: str = ""  # processes of the host only


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container and its devices."""

    name: str
    container_id: str = ""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids by resource
    claims: tuple[Claim, ...] = ()
    shares: tuple[Share, ...] | None = None  # actual shares; None: as its ids
    meter: MeterFile | None = None
    init: bool = False
    # Extended resources that it requests, if more than the number of its ids.
    limits: Mapping[str, int] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of this node."""

    count: int = 1
    namespace: str
    name: str
    uid: str = ""
    qos: Qos = "burstable"
    phase: str = "Running"
    static: bool = False  # its manifest is a file of the node
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
