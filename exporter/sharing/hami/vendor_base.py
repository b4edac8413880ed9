"""What HAMi's devices of other vendors have in common.

The scheduler writes what each container has into an annotation of its own for every kind of device, in the
form that it has for NVIDIA's. The kubelet's ids say that a container has devices, not which: those in the
annotation count. Hardly any of these devices is read by a driver of ours.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar, NamedTuple

from exporter.model import ContainerRef, ContainerSpec, Meter, PodDetails
from exporter.model.sums import total
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Claim, Grant, Granted, System, first_match, unread_device, words_of
from exporter.sharing.base.view import View
from exporter.sharing.hami.annotations import (
    HamiDevice,
    Registered,
    limited,
    parse_allocation,
    places_of,
    registered,
)

MEBIBYTE = 1 << 20
NEVER = re.compile(r"(?!)")
NAME = re.compile(r"[!-~]{1,128}")
# The first are those of the registers of nodes.
WORDS = words_of("id index count devmem devcore type numa mode health devicevendor") | words_of(
    "MLU DCU XPU GCU SGPU Metax Iluvatar Mthreads Enflame Biren Vastai AWSNeuron AMD cambricon mlu mem core"
    " enflame drs gcu kunlun xpu"
)
NUMBERED = re.compile(r".+[-_]([0-9]{1,3})")


class Kind(NamedTuple):
    """A kind of device by the key of its annotation. ``full`` is how many cores make a whole device.

    ``whole``: its devices are given out whole, and the amounts that stand there mean nothing. ``asked`` are
    the resources that this kind is asked for by, None for all those of its maker.
    """

    key: re.Pattern[str]
    full: int = 100
    whole: bool = False
    asked: re.Pattern[str] | None = None


class Told(NamedTuple):
    """What annotations say that a container has of one device; ``place`` is the segment that says it."""

    kind: Kind
    key: str
    device: HamiDevice
    place: int


Parts = Mapping[str, tuple[Told, ...]]
"""What annotations say, by container."""


class HamiVendor(System):
    """A vendor's devices under HAMi. ``maker`` is how its devices are told, ``kinds`` are those it has.

    ``resources`` are all its resources, those that count devices match ``counting``. ``own`` are resources
    that only HAMi has. ``registers`` are the annotations of nodes that list devices.
    """

    isolation = ""
    blind_without_pods = "which containers have which part of which device"
    maker: ClassVar[str] = ""
    kinds: ClassVar[tuple[Kind, ...]] = ()
    resources: ClassVar[re.Pattern[str]] = NEVER
    counting: ClassVar[re.Pattern[str]] = NEVER
    own: ClassVar[re.Pattern[str]] = NEVER
    registers: ClassVar[re.Pattern[str]] = NEVER
    words = WORDS

    @classmethod
    def reads(cls, key: str) -> re.Match[str] | None:
        """Match also what the kinds, the resources and the registers are known by."""
        own = (*(kind.key for kind in cls.kinds), cls.resources, cls.registers)
        return super().reads(key) or first_match(own, key)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._read: dict[str, Parts | None] = {}
        self.registered: Mapping[str, Registered] = registered(view.facts.node, self.registers)

    def knows(self, resource: str) -> bool:
        """Whether a resource is of HAMi's for this maker."""
        return self.own.fullmatch(resource) is not None

    def owns(self, resource: str, _device_id: str) -> bool:
        """Whether only HAMi has this resource."""
        return self.own.fullmatch(resource) is not None

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return a claim without a device: an id of HAMi does not name one."""
        return Claim() if self.owns(resource, device_id) else None

    def grants(self) -> Granted:
        """Return what containers have by the annotations of their pods."""
        grants: list[Grant] = []
        settled: set[tuple[ContainerRef, str]] = set()
        for holder, held in self.view.held.items():
            mine = {resource: ids for resource, ids in held.items() if self.resources.fullmatch(resource)}
            details = self.view.details(holder) if self.is_told(frozenset().union(*mine.values())) else None
            holder_grants = list(self._of_holder(holder, details, mine)) if details is not None else []
            grants += _joined(holder_grants)
            if holder_grants:
                settled |= {(holder, resource) for resource in mine}
        return Granted(grants=tuple(grants), settled=frozenset(settled))

    def is_told(self, ids: frozenset[str]) -> bool:
        """Whether annotations say what a container with these ids has."""
        return bool(ids)

    def device(self, part: Told) -> Device | None:
        """Return the device of an annotation, None for what can be none of this vendor."""
        uuid = part.device.uuid
        if self.view.inventory.by_uuid(uuid) is not None or not NAME.fullmatch(uuid):
            return None
        number = NUMBERED.fullmatch(uuid)
        listed = self.registered.get(uuid)
        index = listed.number if listed is not None else int(number[1]) if number is not None else None
        return unread_device(self.maker, uuid, part.device.type, index)

    def memory(self, part: Told) -> int | None:
        """Return the limit in bytes; 0 is none."""
        return None if part.kind.whole else part.device.memory * MEBIBYTE or None

    def compute(self, _holder: ContainerRef, part: Told) -> float | None:
        """Return the share of the whole device; 0 is no limit."""
        return 1.0 if part.kind.whole else part.device.cores / part.kind.full or None

    def meter(self, _holder: ContainerRef, _count: int) -> Meter | None:
        """Return what the system itself measured of a container with so many devices."""
        return None

    def exclusive(self, part: Told, _holder: ContainerRef) -> bool:
        """Whether nobody else can have a part of the device."""
        return part.kind.whole

    def _of_holder(
        self, holder: ContainerRef, details: PodDetails, mine: Mapping[str, frozenset[str]]
    ) -> Iterator[Grant]:
        """Yield what a container has; what cannot be read is held all the same, of unknown devices."""
        resource = min(mine, key=lambda name: (not self.counting.fullmatch(name), name))
        parts_by_container = self._told(holder, details)
        parts = parts_by_container.get(holder.container, ()) if parts_by_container is not None else ()
        ids = mine[resource]
        most = max(map(len, mine.values()))
        if parts_by_container is None or len(parts) > most:
            if parts_by_container is not None:
                about = f"{holder.namespace}/{holder.pod}/{holder.container}: {parts[0].key}"
                text = f"{len(parts)} devices for {most} {resource}"
                self.view.object_to(self.name, "annotation", about, text)
            yield Grant(holder=holder, resource=resource, device=None, slices=len(ids))
            return
        # Where ids count cores or slices of a device, there are as many of each.
        slices_each, rest = divmod(len(ids), len(parts)) if parts else (0, 0)
        for part in parts:
            yield Grant(
                holder=holder,
                resource=resource,
                device=self._found(holder, part),
                slices=slices_each if slices_each and not rest else 1,
                memory_entitled=self.memory(part),
                compute_entitled=self.compute(holder, part),
                meter=self.meter(holder, len(parts)),
                exclusive=self.exclusive(part, holder),
            )

    def _found(self, holder: ContainerRef, part: Told) -> Device | None:
        device = self.device(part)
        if device is None:
            about = f"{holder.namespace}/{holder.pod}/{holder.container}: {part.key}"
            text = f"{part.device.uuid[:60]!r} is no {self.maker} device of this node"
            self.view.object_to(self.name, "annotation", about, text)
        return device

    def _told(self, holder: ContainerRef, details: PodDetails) -> Parts | None:
        """Return what a pod's annotations say by container, None where one of them cannot be read."""
        name = f"{holder.namespace}/{holder.pod}"
        if name not in self._read:
            self._read[name] = self._parse(holder, details)
        return self._read[name]

    def _parse(self, holder: ContainerRef, details: PodDetails) -> Parts | None:
        parts_by_container: dict[str, tuple[Told, ...]] = {}
        for key, kind in self._keys(details):
            try:
                segments = parse_allocation(details.annotations[key])
            except ValueError as error:
                self.object_to(holder, key, error)
                return None
            asks = partial(self._asks, holder, kind.asked or self.resources)
            places = places_of(segments, details.containers, asks)
            for name, place in places.items():
                given = (Told(kind, key, device, place) for device in segments[place])
                parts_by_container[name] = (*parts_by_container.get(name, ()), *given)
        return parts_by_container

    def _keys(self, details: PodDetails) -> Iterator[tuple[str, Kind]]:
        for key in sorted(details.annotations):
            for kind in self.kinds:
                if kind.key.fullmatch(key):
                    yield key, kind

    def _asks(self, holder: ContainerRef, asked: re.Pattern[str], spec: ContainerSpec) -> bool:
        own = holder._replace(container=spec.name)
        return any(map(asked.fullmatch, (*limited(spec), *self.view.held.get(own, ()))))


def _joined(grants: Iterable[Grant]) -> Iterator[Grant]:
    """Put together what a container has of the same device, or of devices that are not here."""
    joined: dict[object, list[Grant]] = {}
    for grant in grants:
        joined.setdefault(grant.device.key if grant.device is not None else None, []).append(grant)
    for device_grants in joined.values():
        yield replace(
            device_grants[0],
            slices=sum(grant.slices for grant in device_grants),
            memory_entitled=total([grant.memory_entitled for grant in device_grants]),
            compute_entitled=total([grant.compute_entitled for grant in device_grants]),
        )
