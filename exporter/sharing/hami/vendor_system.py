"""The base class of HAMi's devices of vendors other than NVIDIA.

The scheduler has an annotation of the pod for every kind of device, in the format of NVIDIA's. The kubelet's
ids only show that a container has devices; the annotation has which. No driver reads these devices, except
AMD's.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import ClassVar, NamedTuple

from exporter.model import ContainerRef, ContainerSpec, Meter, PodDetails
from exporter.sharing.base import (
    MEBIBYTE,
    Grant,
    Granted,
    Meaning,
    System,
    by_device,
    first_match,
    unread_device,
)
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View
from exporter.sharing.hami.annotations import (
    HamiDevice,
    Registered,
    limited,
    parse_allocation,
    registered,
    segment_by_container,
)

NEVER = re.compile(r"(?!)")
NAME = re.compile(r"[!-~]{1,128}")
NUMBERED = re.compile(r".+[-_]([0-9]{1,3})")


class DeviceKind(NamedTuple):
    """A kind of device."""

    key: re.Pattern[str]  # of its annotation
    full: int = 100  # cores of a whole device
    whole: bool = False  # allocated whole; the amounts in the annotation mean nothing
    asked: re.Pattern[str] | None = None  # resources that request this kind, None for all of the vendor


class AnnotatedShare(NamedTuple):
    """A container's share of one device, in an annotation."""

    kind: DeviceKind
    key: str  # of the annotation
    device: HamiDevice
    segment: int  # its number in the annotation


AnnotatedShares = Mapping[str, tuple[AnnotatedShare, ...]]  # the shares in a pod's annotations, by container


class HamiVendor(System):
    """A vendor's devices under HAMi."""

    isolation = ""
    blind_without_pods = "which containers have which part of which device"
    maker: ClassVar[str] = ""  # vendor of its devices
    kinds: ClassVar[tuple[DeviceKind, ...]] = ()
    resources: ClassVar[re.Pattern[str]] = NEVER
    counting: ClassVar[re.Pattern[str] | None] = None  # resources that count devices, None for all
    own: ClassVar[re.Pattern[str]] = NEVER
    registers: ClassVar[re.Pattern[str]] = NEVER  # annotations of nodes that list devices

    @classmethod
    def reads(cls, key: str) -> re.Match[str] | None:
        """Return the match, also of the keys of kinds, resources and registers."""
        own = (*(kind.key for kind in cls.kinds), cls.resources, cls.registers)
        return super().reads(key) or first_match(own, key)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.registered: Mapping[str, Registered] = registered(view.facts.node, self.registers)

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return a meaning without a device, which HAMi's ids do not have."""
        return Meaning() if self.owns(resource, device_id) else None

    def grants(self) -> Granted:
        granted = Granted()
        for holder, held in self.view.held.items():
            mine = {resource: ids for resource, ids in held.items() if self.resources.fullmatch(resource)}
            annotated = self.is_annotated(frozenset().union(*mine.values()))
            details = self.view.details(holder) if annotated else None
            holder_grants = list(self._of_holder(holder, details, mine)) if details is not None else []
            granted.grants += by_device(holder_grants)
            if holder_grants:
                granted.settle(holder, mine)
        return granted

    def is_annotated(self, ids: frozenset[str]) -> bool:
        """Return True if annotations have the shares of a container with these ids."""
        return bool(ids)

    def device(self, part: AnnotatedShare) -> Device | None:
        """Return the device of an annotation, None if it cannot be of this vendor."""
        uuid = part.device.uuid
        if self.view.inventory.by_uuid(uuid) is not None or not NAME.fullmatch(uuid):
            return None
        if uuid in self.registered:
            index = self.registered[uuid].number
        else:
            number = NUMBERED.fullmatch(uuid)
            index = int(number[1]) if number is not None else None
        return unread_device(self.maker, uuid, part.device.type, index)

    def memory(self, part: AnnotatedShare) -> int | None:
        """Return the limit in bytes, None for no limit."""
        return None if part.kind.whole else part.device.memory * MEBIBYTE or None

    def compute(self, _holder: ContainerRef, part: AnnotatedShare) -> float | None:
        """Return the share of the whole device, None for no limit."""
        return 1.0 if part.kind.whole else part.device.cores / part.kind.full or None

    def meter(self, _holder: ContainerRef, _count: int) -> Meter | None:
        """Return the system's own figures for a container with ``count`` devices."""
        return None

    def exclusive(self, part: AnnotatedShare, _holder: ContainerRef) -> bool:
        """Return True if no other container can have a part of the device."""
        return part.kind.whole

    def _of_holder(
        self, holder: ContainerRef, details: PodDetails, mine: Mapping[str, frozenset[str]]
    ) -> Iterator[Grant]:
        """Yield a container's grants; with a malformed annotation, one of unknown devices."""
        counting = self.counting or self.resources
        resource = min(mine, key=lambda name: (not counting.fullmatch(name), name))
        parts_by_container = self._parts(holder, details)
        parts = parts_by_container.get(holder.container, ()) if parts_by_container is not None else ()
        ids = mine[resource]
        most = max(map(len, mine.values()))
        if parts_by_container is None or len(parts) > most:
            if parts_by_container is not None:
                self.object_to_container(holder, parts[0].key, f"{len(parts)} devices for {most} {resource}")
            yield Grant(holder, resource, None, slices=len(ids))
            return
        # If ids count cores or slices, each device has the same number of them.
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

    def _found(self, holder: ContainerRef, part: AnnotatedShare) -> Device | None:
        device = self.device(part)
        if device is None:
            text = f"{part.device.uuid[:60]!r} is not a {self.maker} device of this node"
            self.object_to_container(holder, part.key, text)
        return device

    def _parts(self, holder: ContainerRef, details: PodDetails) -> AnnotatedShares | None:
        """Return the shares in a pod's annotations by container, None if one of them is malformed."""
        parts_by_container: dict[str, tuple[AnnotatedShare, ...]] = {}
        for key, kind in product(sorted(details.annotations), self.kinds):
            if not kind.key.fullmatch(key):
                continue
            segments = self.read_note(holder, key, details.annotations[key], parse_allocation)
            if segments is None:
                return None
            asks = partial(self._asks, holder, kind.asked or self.resources)
            numbers = segment_by_container(segments, details.containers, asks)
            for name, number in numbers.items():
                given = (AnnotatedShare(kind, key, device, number) for device in segments[number])
                parts_by_container[name] = (*parts_by_container.get(name, ()), *given)
        return parts_by_container

    def _asks(self, holder: ContainerRef, asked: re.Pattern[str], spec: ContainerSpec) -> bool:
        own = holder._replace(container=spec.name)
        return any(map(asked.fullmatch, (*limited(spec), *self.view.held.get(own, ()))))
