"""The records of a scenario's pods: what is offered, what they hold, and by which sharing system."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.demo.load import OFF, Curve
from exporter.model.hardware import ProcessKind

# What drivers name the kind of their CDI devices, where it is not the usual one.
_CLASSES = {"gpu.amd.com": "gpu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One device of a claim, by the driver's name for it.

    The claim's ``namespace`` is the pod's when left out, its ``uid`` is derived from its names and ``pool``
    is the node. Containers that name the same claim share it; ``share_id`` tells shares of a device apart.
    """

    driver: str = "gpu.nvidia.com"
    device: str
    name: str
    namespace: str = ""
    uid: str = ""
    pool: str = ""
    share_id: str = ""

    @property
    def cdi(self) -> str:
        """The CDI name that the driver gives to the device in this claim."""
        return f"k8s.{self.driver}/{_CLASSES.get(self.driver, 'claim')}={self.uid}-{self.device}"


MeterKind = Literal["hami", "hami-vnpu", "cgpu", "vcuda", "vgpu-manager", "runai"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a container truly has of a device (a uuid), where the kubelet's ids do not say it.

    ``slices`` counts what it has of the resource there, ``memory`` is in bytes and ``cores`` in percent of
    the physical device; 0 is no limit.
    """

    device: str
    slices: int = 1
    memory: int = 0
    cores: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterFile:
    """A file that a system keeps of a container: its kind, and which layout of it (the kind's own word)."""

    kind: MeterKind
    layout: str = ""


Qos = Literal["guaranteed", "burstable", "besteffort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Device ids that the device plugin offers: ``ids`` outright, or the shorthand made of the rest.

    ``of`` says whether whole GPUs or MIG instances are offered, or AMD's GPUs as they are cut, ``gpus`` on
    which (null: on all), with ``replicas`` of each (0: not shared). ``{profile}`` in the resource is the
    instance's profile.
    """

    resource: str
    ids: tuple[str, ...] = ()
    of: Literal["", "gpus", "mig", "amd"] = ""
    gpus: tuple[int, ...] | None = None
    replicas: int = 0
    style: Literal["uuid", "gke", "legacy-mig"] = "uuid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process with a context on ``device``, the uuid of a GPU or MIG instance.

    Left empty, it is the one device that the container holds. ``memory`` is in bytes, null where the
    driver cannot tell it; ``load`` is in percent of the device. ``streams`` are the videos that it encodes
    while it has something to do. ``cgroup`` is for processes of the host.
    """

    pid: int = 0
    command: str = "python3"
    device: str = ""
    memory: int | Curve | None = 0
    kind: ProcessKind = "compute"
    load: Curve = OFF
    streams: int = 0
    cgroup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with what the kubelet gave it, by resource; an id is in the device plugin's spelling.

    ``claims`` are the devices that it has by resource claims. ``shares`` is what it truly has, null where
    that is what its ids say; ``meter`` is the file that its system keeps of it. ``limits`` are the extended
    resources that it asks for, where that is more than the number of its ids.
    """

    name: str
    container_id: str = ""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    shares: tuple[Share, ...] | None = None
    meter: MeterFile | None = None
    init: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod of this node, with what its object says; ``static`` if its manifest is a file of the node."""

    count: int = 1
    namespace: str
    name: str
    uid: str = ""
    qos: Qos = "burstable"
    phase: str = "Running"
    static: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
