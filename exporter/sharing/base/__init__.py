"""The base class of sharing systems: each container's share of each device, and the isolation of holders."""

import re
from collections.abc import Callable, Container, Hashable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from exporter.model import (
    ContainerRef,
    DeviceKey,
    DeviceSharing,
    GpuIdentity,
    GpuReading,
    HeldClaim,
    Meter,
    PodIdentity,
    SliceCount,
    SystemFiles,
    total,
)
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View

T = TypeVar("T")
UNKNOWN_INDEX = -1
MEBIBYTE, GIBIBYTE = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Directories of other programs on the node."""

    hami: Path
    hami_vnpu: Path
    cgpu: Path
    vcuda: Path
    vgpu_manager: Path
    mps: Path
    run: Path
    kubelet: Path


Read = Callable[[Roots], SystemFiles]


class Meaning(NamedTuple):
    """The meaning of a device id that belongs to a system."""

    device: Device | None = None  # the device that the id names; None if it is not on this node
    replica: bool = False  # the id is one of several on the same device
    # The id belongs to this system only, and is allocatable on ``device``, but its holder may have another
    # device.
    nominal: bool = False


class Offer(NamedTuple):
    """The allocatable slices of a device by the resources of one system."""

    slices: tuple[SliceCount, ...]
    replicated: bool  # some id is one of several on the device
    known: bool  # the kubelet reports allocatable devices


class HeldSlices(NamedTuple):
    """The number of ids of one device and resource that a container holds."""

    holder: ContainerRef
    resource: str
    slices: int


class Entitled(NamedTuple):
    """What a container is entitled to; None is unknown or unlimited."""

    memory: int | None = None  # bytes
    compute: float | None = None  # share of the physical GPU
    meter: Meter | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A container's share of a device, from an annotation, claim or file instead of its ids."""

    holder: ContainerRef
    resource: str
    device: Device | None  # None if it is unknown; made by ``unread_device`` if no driver reads it
    slices: int = 1  # amount of ``resource`` on this device, in the unit of its ids
    memory_entitled: int | None = None  # as in Entitled
    compute_entitled: float | None = None
    meter: Meter | None = None
    exclusive: bool = False  # no other container can have a part of the device
    # Another grant of the container counts its slices of the device, in another unit.
    counted_elsewhere: bool = False
    claims: tuple[HeldClaim, ...] = ()
    health: str = ""  # the worst that the kubelet reports; "" if unknown
    for_unknown: bool = False  # the holder reserves the device for an unknown container
    # If ``device`` is None: the devices that it may be. None: any with the resource, else any of the system's
    # maker; empty: none of this node.
    may_be: frozenset[DeviceKey] | None = None


@dataclass(slots=True, kw_only=True)
class Granted:
    """The grants of one system to all containers; the system fills it."""

    grants: list[Grant] = field(default_factory=list)
    # (container, resource) whose ids must not be resolved: grants replace them, or they are not for itself.
    settled: set[tuple[ContainerRef, str]] = field(default_factory=set)
    # (device, resource) with holders that are unknown.
    unplaced: list[tuple[DeviceKey, str]] = field(default_factory=list)
    unknown_drivers: frozenset[str] = frozenset()  # DRA drivers with claims that no system knows

    def settle(self, holder: ContainerRef, resources: Iterable[str]) -> None:
        """Note that a container's ids of these resources must not be resolved."""
        self.settled.update((holder, resource) for resource in resources)


def whole_keys(*names: str) -> re.Pattern[str]:
    """Return a pattern that matches each of these names."""
    return re.compile("|".join(map(re.escape, names)))


def first_match(patterns: Iterable[re.Pattern[str]], text: str) -> re.Match[str] | None:
    """Return the first full match of a text."""
    return next((match for pattern in patterns if (match := pattern.fullmatch(text)) is not None), None)


def unread_device(vendor: str, uuid: str, model: str, index: int | None = None) -> Device:
    """Return a device that no driver reads, of which only these properties are known."""
    index = UNKNOWN_INDEX if index is None else index
    identity = GpuIdentity(uuid=uuid, index=index, model=model, vendor=vendor)
    return Device(DeviceKey(uuid), GpuReading(identity=identity))


def not_counted(
    slices: tuple[SliceCount, ...], resources: Container[str] | None = None
) -> tuple[SliceCount, ...]:
    """Return slices with an unknown allocatable number of those of ``resources``, by default of all."""
    return tuple(
        count._replace(offered=None) if resources is None or count.resource in resources else count
        for count in slices
    )


def only_size(total: int, count: int) -> int | None:
    """Return the size of a unit if just one has ``count`` whole units in ``total``, else None."""
    least, most = total // (count + 1) + 1, total // count
    return most if least == most else None


def weakest(isolations: Container[str]) -> str:
    """Return the isolation of a device whose holders have these; "" if that is unknown for one of them."""
    return next((isolation for isolation in ("none", "soft", "") if isolation in isolations), "hard")


def grouped(items: Iterable[T], key: Callable[[T], object]) -> list[list[T]]:
    """Return the items in groups of equal keys, in the order of their first items."""
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def by_device(grants: Iterable[Grant]) -> list[Grant]:
    """Return one grant for each device, with the sums of a container's grants of it."""
    return [
        replace(
            same[0],
            slices=sum(grant.slices for grant in same),
            memory_entitled=total([grant.memory_entitled for grant in same]),
            compute_entitled=total([grant.compute_entitled for grant in same]),
        )
        for same in grouped(grants, lambda grant: None if grant.device is None else grant.device.key)
    ]


def guarded(system: "System", ask: Callable[[], T], otherwise: T) -> T:
    """Return the answer of a system, ``otherwise`` if it fails: one bad system does not stop the others."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - see docstring
        system.fails(error)
        return otherwise


class System:
    """A sharing system, made for one poll of a node."""

    name: ClassVar[str] = ""  # label value in the series
    annotated_by: ClassVar[str] = ""  # the system whose annotations it reads, if that is another one
    own: ClassVar[re.Pattern[str] | None] = None  # the resources that only this system has
    # The system of a vendor describes the vendor's devices that no id and no grant names.
    vendor: ClassVar[str] = ""
    maker: ClassVar[str] = "nvidia"  # of the devices that it gives out
    isolation: ClassVar[str] = "none"  # of holders from each other: hard, soft, none, or "" if unknown
    # What is unknown without the pods' annotations, "" if they are not needed.
    blind_without_pods: ClassVar[str] = ""
    ids_are_slices: ClassVar[bool] = True  # a device has as many slices as allocatable ids
    # Reads the system's files on the node; runs in a thread, results are in ``View.file``.
    read: ClassVar[Read | None] = None
    # For recordings: keys of annotations and labels, and names of limits, that the system reads. What a group
    # ``name`` matches is masked.
    notes: ClassVar[tuple[re.Pattern[str], ...]] = ()

    @classmethod
    def reads(cls, key: str) -> re.Match[str] | None:
        """Return the match if this system reads an annotation, label or limit with this key."""
        return first_match(cls.notes, key)

    def __init__(self, view: View) -> None:
        self.view = view
        self._notes: dict[tuple[Hashable, str], Any] = {}

    def fails(self, error: Exception) -> None:
        self.view.object_to(self.name, "failure", f"all of {self.name}", repr(error))

    def object_to(self, of: PodIdentity | ContainerRef, name: str, text: object) -> None:
        """Add a problem of a pod's annotation ``name``."""
        pod = of.name if isinstance(of, PodIdentity) else of.pod
        about = f"{of.namespace}/{pod}: {name}"
        self.view.object_to(self.annotated_by or self.name, "annotation", about, str(text))

    def object_to_container(self, holder: ContainerRef, name: str, text: object) -> None:
        """Add a problem of what annotation ``name`` has for a container."""
        about = f"{holder.namespace}/{holder.pod}/{holder.container}: {name}"
        self.view.object_to(self.annotated_by or self.name, "annotation", about, str(text))

    def read_note(
        self, of: PodIdentity | ContainerRef, name: str, text: str | None, read: Callable[[str], T]
    ) -> T | None:
        """Return what ``read`` makes of the text of a pod's annotation; None if it is missing or malformed.

        Each annotation is read once. ``read`` raises ValueError for a malformed text, which adds a problem.
        """
        key = of.uid if isinstance(of, PodIdentity) else of.pod_name, name
        if key not in self._notes:
            try:
                self._notes[key] = read(text) if text is not None else None
            except ValueError as error:
                self.object_to(of, name, error)
                self._notes[key] = None
        known: T | None = self._notes[key]
        return known

    def knows(self, resource: str) -> bool:
        """Return False if no id of a resource can belong to this system; then ``meaning`` is not called."""
        if self.own is not None:
            return self.own.fullmatch(resource) is not None
        kind = type(self)
        return kind.meaning is not System.meaning or kind.owns is not System.owns

    def owns(self, resource: str, _device_id: str) -> bool:
        """Return True if an id can only belong to this system."""
        return self.own is not None and self.own.fullmatch(resource) is not None

    def offers_unlisted(self) -> bool:
        """Return True if the system gives out devices that the kubelet does not list as allocatable."""
        return False

    def grants(self) -> Granted:
        """Return the grants from annotations, claims or files."""
        return Granted()

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return the meaning of an id of the kubelet, None if it does not belong to this system."""
        return Meaning(nominal=True) if self.owns(resource, device_id) else None

    def may_be(self, device_id: str) -> frozenset[DeviceKey] | None:
        """Return the devices that an id without a known device may mean; None if it may be any."""
        return self.view.inventory.meant_by_id(device_id)

    def sharing(self, _device: Device, offer: Offer) -> DeviceSharing:
        """Return the sharing mode of a device and the isolation of its holders."""
        counted = offer.slices if self.ids_are_slices else not_counted(offer.slices)
        return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=counted)

    def entitlement(self, _device: Device, _sharing: DeviceSharing, _held: HeldSlices) -> Entitled:
        """Return what a container is entitled to by its ids of a device."""
        return Entitled()

    def blind(self) -> bool:
        """Return True if this system is in use but needs pod annotations that are not readable."""
        if not self.blind_without_pods or self.view.details_known:
            return False
        return any(
            self.owns(resource, device_id)
            for held in self.view.held.values()
            for resource, ids in held.items()
            if self.knows(resource)
            for device_id in ids
        )
