"""The records of what a scenario's GPUs are offered as, and of what runs on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.demo.load import OFF, Curve
from exporter.demo.schema_claims import Claim
from exporter.demo.schema_sharing import MeterFile, Share
from exporter.model.hardware import ProcessKind

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
