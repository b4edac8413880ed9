"""The records of a scenario's pods: offered devices, containers, their devices and processes, and their load.

Device ids are rendered and parsed in the formats of the device plugins. A load is a curve over time: a pure
function of time and seed, so that a scenario looks the same each time.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from exporter.demo.scenario.gpus import Gpu, MigInstance
from exporter.documents import fail
from exporter.model import DeviceKey
from exporter.model.hardware import ProcessKind

Shape = Literal["constant", "sine", "square", "burst", "ramp", "off"]

# The CDI names of devices, and of shares of them, by driver if they are not as those of NVIDIA's.
_CDI = {
    "gpu.amd.com": "k8s.{0.driver}/gpu={0.uid}-{0.device}",
    "gpu.intel.com": "intel.com/gpu={0.device}",
}
_CDI_OF_SHARES = {"manager.nvidia.com": "k8s.{0.driver}/claim={0.uid}-gpu-{0.device}-share-{0.share_id}"}
MeterKind = Literal["hami", "hami-vnpu", "cgpu", "vcuda", "vgpu-manager", "runai"]
Qos = Literal["guaranteed", "burstable", "besteffort"]
# "amd": the PCI address of a GPU, the name of a partition.
Style = Literal["uuid", "gke", "legacy-mig", "amd"]
_GKE_REPLICA = re.compile(r"(nvidia\d+(?:/gi\d+)?)/vgpu\d+")
BURST = 1 / 8
# Height between low and high (0 to 1) by the elapsed part of the period (0 to 1).
HEIGHTS: Mapping[Shape, Callable[[float], float]] = {
    "constant": lambda _elapsed: 1.0,
    "sine": lambda elapsed: (1 - math.cos(2 * math.pi * elapsed)) / 2,
    "square": lambda elapsed: float(elapsed < 1 / 2),
    "burst": lambda elapsed: float(elapsed < BURST),
    "ramp": lambda elapsed: elapsed,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A level that moves between ``low`` and ``high`` once per period.

    ``constant`` stays at high, ``off`` at 0; ``square`` is high for half the period, ``burst`` for an
    eighth of it, ``ramp`` climbs and drops to low.
    """

    shape: Shape = "constant"
    low: float = 0.0
    high: float = 0.0
    period: float = 60.0  # seconds
    phase: float = 0.0  # seconds that the curve is ahead
    noise: float = 0.0  # maximum deviation from the shape

    def __post_init__(self) -> None:
        if self.period <= 0:
            fail("period", "must be above 0")
        if not 0 <= self.low <= self.high and self.shape not in ("constant", "off"):
            fail("low", "must be between 0 and high")
        if self.high < 0 or self.noise < 0:
            fail("high" if self.high < 0 else "noise", "must not be below 0")


OFF = Curve(shape="off")


def level(curve: Curve, t: float, key: str = "", seed: int = 0) -> float:
    """Return the level at ``t`` seconds, never below 0. Curves with different keys have different noise.

    Noise changes once a second. A level of 0 has none: what is idle stays exactly idle.
    """
    if curve.shape == "off":
        return 0.0
    height = HEIGHTS[curve.shape](((t + curve.phase) % curve.period) / curve.period)
    # Weighted from both ends, so that a constant level is met exactly.
    value = curve.low * (1 - height) + curve.high * height
    if not value or not curve.noise:
        return value
    digest = hashlib.blake2b(f"{seed}/{key}/{math.floor(t)}".encode(), digest_size=8).digest()
    # Between -1 and 1.
    noise = int.from_bytes(digest, "big") / (1 << 63) - 1
    return max(0.0, value + curve.noise * noise)


def peak(curve: Curve) -> float:
    """Return the maximum level of a curve."""
    return 0.0 if curve.shape == "off" else curve.high + curve.noise


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
    health: str = ""  # in the status of the pod; "": not reported

    @property
    def cdi(self) -> str:
        """The CDI name of the device in this claim."""
        forms = _CDI | _CDI_OF_SHARES if self.share_id else _CDI
        return forms.get(self.driver, "k8s.{0.driver}/claim={0.uid}-{0.device}").format(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A container's actual share of a device, if the kubelet's ids do not determine it."""

    device: str  # uuid
    slices: int = 1  # of the resource
    memory: int = 0  # bytes; 0: no limit
    cores: int = 0  # percent of the physical device; 0: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """Limits of the memory of one GPU in a cgroup, as ``nvidia-smi memory-limits`` sets them; in bytes."""

    device: str = ""  # uuid; "": the only device of the container
    soft: int = 0
    hard: int = 0  # 0: none
    uncharged: int = 0  # memory of the container that is not charged, as managed memory is not


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterFile:
    """A file that a sharing system keeps about a container."""

    kind: MeterKind
    layout: str = ""  # a variant; its meaning depends on the kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Device ids that a device plugin offers: a list of ids, or the shorthand of the other fields."""

    resource: str  # ``{profile}`` is the profile of the instance, the partitioning of an AMD GPU
    ids: tuple[str, ...] = ()
    of: Literal["", "gpus", "mig", "amd"] = ""  # "amd": AMD GPUs or their partitions, always in that style
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
    cgroup: str = ""  # of a process outside its container, such as a build of docker in a pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container and its devices."""

    name: str
    container_id: str = ""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids by resource
    claims: tuple[Claim, ...] = ()
    # By name of a claim, the requests of it that the pod's object names for this container; the kubelet lists
    # the devices of all requests for each.
    requests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shares: tuple[Share, ...] | None = None  # actual shares; None: as its ids
    meter: MeterFile | None = None
    memory_limits: tuple[MemoryLimit, ...] = ()
    init: bool = False
    # Extended resources that it requests, if more than the number of its ids.
    limits: Mapping[str, int] = field(default_factory=dict)
    # Health by id, as the kubelet reports it in the status of the pod.
    health: Mapping[str, str] = field(default_factory=dict)
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

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


def keys(gpus: Sequence[Gpu]) -> Iterator[tuple[DeviceKey, Gpu, MigInstance | None]]:
    """Yield the devices that a process can run on: GPUs without MIG, and MIG instances."""
    for gpu in gpus:
        if gpu.mig_enabled:
            yield from ((DeviceKey(gpu.uuid, mig.uuid), gpu, mig) for mig in gpu.instances)
        else:
            yield DeviceKey(gpu.uuid), gpu, None


def resolve(gpus: Sequence[Gpu], device_id: str) -> DeviceKey | None:
    """Return the device with an id of the kubelet, None if it is not a device of this node."""
    base = device_id.partition("::")[0]
    replica = _GKE_REPLICA.fullmatch(base)
    base = replica[1] if replica else base
    for key, gpu, instance in keys(gpus):
        vgpus = () if instance else gpu.vgpus
        if base in {_base_id(style, gpu, instance) for style in get_args(Style)}:
            return key
        if base.lower() in {vgpu.mdev_uuid.lower() for vgpu in vgpus}:
            return key
    return None


def offered(offer: Offer, gpus: Sequence[Gpu]) -> Iterator[tuple[str, str]]:
    """Yield the devices of an offer as (resource, id), in the order of the node's devices."""
    for index, gpu in enumerate(gpus):
        if offer.gpus is not None and index not in offer.gpus:
            continue
        for _, _, instance in keys((gpu,)):
            if _is_offered(offer, instance):
                profile = instance.profile if instance else gpu.board_info.get("partitioning", "")
                resource = offer.resource.replace("{profile}", profile.replace("+", "."))
                base = _base_id("amd" if offer.of == "amd" else offer.style, gpu, instance)
                separator = "/vgpu" if offer.style == "gke" else "::"
                replicas = [f"{base}{separator}{replica}" for replica in range(offer.replicas)]
                yield from ((resource, device_id) for device_id in replicas or [base])


def _is_offered(offer: Offer, instance: MigInstance | None) -> bool:
    if instance is None or offer.of == "amd":
        return offer.of in ("gpus", "amd")
    # A device plugin offers a compute instance only if it fills its GPU instance.
    return offer.of == "mig" and instance.compute_slices == instance.gi_slices


def _base_id(style: Style, gpu: Gpu, instance: MigInstance | None) -> str:
    if style == "gke":
        return f"nvidia{gpu.minor}" + (f"/gi{instance.gi}" if instance else "")
    if instance is None:
        return gpu.pci_bus_id if style == "amd" else gpu.uuid
    return f"MIG-{gpu.uuid}/{instance.gi}/{instance.ci}" if style == "legacy-mig" else instance.uuid
