"""What every sharing system has to tell: who has what of which device, and what keeps holders apart."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

from exporter.model import (
    ContainerRef,
    DeviceKey,
    DeviceSharing,
    GpuIdentity,
    GpuReading,
    Meter,
    PodIdentity,
    SliceCount,
    SystemFiles,
)
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the files of other programs are on the node, each as its program names it by default."""

    hami: Path
    hami_vnpu: Path
    cgpu: Path
    vcuda: Path
    vgpu_manager: Path
    mps: Path
    run: Path
    kubelet: Path


Read = Callable[[Roots], SystemFiles]
T = TypeVar("T")
NOBODY_TELLS = -1


class Claim(NamedTuple):
    """An id that is a system's own: the device that it names, None where that device is not here.

    ``replica``: the id is one of several on the same device. ``nominal``: it is nobody else's, and offered
    with that device if with any, but which device its holder has, it does not say.
    """

    device: Device | None = None
    replica: bool = False
    nominal: bool = False


class Offer(NamedTuple):
    """What is offered of a device by the resources of one system.

    ``replicated``: some id is one of several on the device. ``known``: the kubelet reports what it offers.
    """

    slices: tuple[SliceCount, ...]
    replicated: bool
    known: bool


class HeldSlices(NamedTuple):
    """The number of ids of one device that a container holds, by the resource."""

    holder: ContainerRef
    resource: str
    slices: int


class Entitled(NamedTuple):
    """Memory in bytes, compute as a share of the physical GPU (None: unknown or unlimited), and the meter."""

    memory: int | None = None
    compute: float | None = None
    meter: Meter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a container has of one device by another word than its ids.

    ``device`` is None for one that should be here and is not, and one made by ``unread_device`` if no driver
    reads it. ``slices`` counts what the container has of ``resource`` on this device, as ids would.
    Entitlements are those of ``Entitled``. ``exclusive``: nobody else can have a part of the device.
    ``beside``: another grant of the same container counts its slices of the device, in another unit.
    ``for_unknown``: the holder keeps the device for somebody who is not known.
    """

    holder: ContainerRef
    resource: str
    device: Device | None
    slices: int = 1
    memory_entitled: int | None = None
    compute_entitled: float | None = None
    meter: Meter | None = None
    exclusive: bool = False
    beside: bool = False
    for_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """What one system knows of all containers.

    ``settled`` are the containers and resources whose ids need not be resolved: they are told by the grants,
    or hold nothing for themselves. ``unplaced`` are devices that are held of which it is not told by whom, by
    the resource.
    """

    grants: tuple[Grant, ...] = ()
    settled: frozenset[tuple[ContainerRef, str]] = frozenset()
    unplaced: tuple[tuple[DeviceKey, str], ...] = ()


def whole_keys(*names: str) -> re.Pattern[str]:
    """Match each of these keys."""
    return re.compile("|".join(map(re.escape, names)))


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


def first_match(patterns: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    """Return the first match of a whole text."""
    return next((match for pattern in patterns if (match := pattern.fullmatch(text)) is not None), None)


def unread_device(vendor: str, uuid: str, model: str, index: int | None = None) -> Device:
    """Return a device that no driver of ours reads, of which only this is known."""
    place = NOBODY_TELLS if index is None else index
    identity = GpuIdentity(uuid=uuid, index=place, model=model, vendor=vendor)
    return Device(DeviceKey(uuid), GpuReading(identity=identity))


def not_counted(slices: tuple[SliceCount, ...]) -> tuple[SliceCount, ...]:
    """Return the slices of a device of which it is unknown how many it is cut into."""
    return tuple(count._replace(offered=None) for count in slices)


def guarded(system: "System", ask: Callable[[], T], otherwise: T) -> T:
    """Ask a system something; whatever it meets, the others are told, and it has no say in this."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - as said
        system.fails(error)
        return otherwise


class System:
    """One way to share GPUs, looking at one poll of a node.

    ``name`` is what the series call it, ``isolation`` what keeps its holders apart: hard, soft or none.
    A device that no id and no grant names is told by the system of its ``vendor``. ``blind_without_pods``
    says what is not known without the annotations of pods, "" where none are needed. ``read``
    reads the files that the system keeps on the node; it is called in a thread, and answers in ``View.file``.
    ``cuts``: what is offered of a device is the number of slices that it is cut into.

    What a recording keeps of a node: ``notes`` match the keys of the annotations and labels, and the names of
    the limits, that the system looks at; what a group ``name`` matches in them is somebody's name. ``words``
    are the words of its own that stand in such texts and in its ids, and its own names of namespaces and
    containers: they say nothing about who uses the node.
    """

    name: ClassVar[str] = ""
    vendor: ClassVar[str] = ""
    isolation: ClassVar[str] = "none"
    blind_without_pods: ClassVar[str] = ""
    cuts: ClassVar[bool] = True
    read: ClassVar[Read | None] = None
    notes: ClassVar[tuple[re.Pattern[str], ...]] = ()
    words: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def reads(cls, key: str) -> re.Match[str] | None:
        """Match the key of an annotation or a label, or the name of a limit, that this system looks at."""
        return first_match(cls.notes, key)

    def __init__(self, view: View) -> None:
        self.view = view

    def fails(self, error: Exception) -> None:
        """Note that this system cannot be asked."""
        self.view.object_to(self.name, "failure", f"all of {self.name}", repr(error))

    def object_to(self, of: PodIdentity | ContainerRef, name: str, text: object) -> None:
        """Note what is wrong with an annotation of a pod."""
        pod = of.name if isinstance(of, PodIdentity) else of.pod
        self.view.object_to(self.name, "annotation", f"{of.namespace}/{pod}: {name}", str(text))

    def knows(self, _resource: str) -> bool:
        """Whether ids of a resource may be this system's; where they cannot, it is not asked for each."""
        kind = type(self)
        return kind.claim is not System.claim or kind.owns is not System.owns

    def owns(self, _resource: str, _device_id: str) -> bool:
        """Whether an id can only be of this system."""
        return False

    def grants(self) -> Granted:
        """Return what containers have by annotations, claims or files."""
        return Granted()

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return what an id of the kubelet means, None where it is not this system's."""
        return Claim(nominal=True) if self.owns(resource, device_id) else None

    def sharing(self, _device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode of a device and what keeps its holders apart."""
        counted = offer.slices if self.cuts else not_counted(offer.slices)
        return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=counted)

    def entitlement(self, _device: Device, _sharing: DeviceSharing, _held: HeldSlices) -> Entitled:
        """Return what a container is entitled to by the ids that it holds of a device."""
        return Entitled()

    def blind(self) -> bool:
        """Whether this system is at work here and cannot be told for want of the pods' annotations."""
        if not self.blind_without_pods or self.view.details_known:
            return False
        return any(
            self.owns(allocation.resource, allocation.device_id)
            for allocation in self.view.allocations.allocated
        )
