"""What HAMi and Volcano's vGPU have in common: GPUs shared by a library in the container, libvgpu.

The scheduler writes into the annotations of a pod what each container has of which GPU, and that is enforced.
The kubelet's ids (``GPU-<uuid>-<n>``, n of the slices that each GPU is offered in) only count slices: the
plugin may give another GPU than the id says. So they are believed only where there is no annotation to be
read. The library's cache tells of a container that runs which GPUs it sees, its limits, and what it uses.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

from exporter.model import (
    ContainerFile,
    ContainerRef,
    ContainerSpec,
    DeviceSharing,
    Meter,
    PodDetails,
    PodIdentity,
)
from exporter.model.sums import total
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.system import Claim, Grant, Granted, Offer, System
from exporter.sharing.base.view import View
from exporter.sharing.hami.annotations import HamiDevice, limited, parse_allocation, places_of
from exporter.sharing.hami.cache_owners import CACHE, filed, in_common, meter_of, names_by_pod

HAMI_KEYS = ("hami.io/vgpu-devices-allocated", "4pd.io/vgpu-ids-new")
VOLCANO_KEYS = ("volcano.sh/vgpu-ids-new",)
SLICE = re.compile(r"(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9]{1,9}")
MIG = "MIG-"
MEBIBYTE = 1 << 20


class Part(NamedTuple):
    """What a container was given of one device. ``device`` is None where it is not here, or not known."""

    device: Device | None
    memory: int | None
    compute: float | None


class Told(NamedTuple):
    """What the annotation of a pod says, by container.

    ``places`` is which segment of it is each container's, ``filed`` under which container its cache is, where
    that is another one.
    """

    devices: Mapping[str, tuple[HamiDevice, ...]]
    places: Mapping[str, int]
    filed: Mapping[str, str]


NOTHING = Told({}, {}, {})


class LibvgpuSystem(System):
    """One of the schedulers that share GPUs by libvgpu. Of its annotations, ``keys``, the first found counts.

    ``lenient``: bad devices in an annotation are left out, as its own reader does.
    """

    isolation = "soft"
    keys: ClassVar[tuple[str, ...]] = ()
    lenient: ClassVar[bool] = False

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._told: dict[str, Told] = {}

    def named(self, resource: str) -> bool:
        """Whether slices of this resource are this system's, where no annotation says whose."""
        raise NotImplementedError

    def knows(self, resource: str) -> bool:
        """Whether slices of a resource may be this system's."""
        return self.named(resource)

    def owns(self, resource: str, device_id: str) -> bool:
        """Whether an id is a slice of a GPU, under a resource that is not another system's."""
        return self.named(resource) and SLICE.fullmatch(device_id) is not None

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Find the GPU that a slice is offered with."""
        # Other plugins have tens of thousands of ids.
        match = SLICE.fullmatch(device_id)
        if match is None or not self.named(resource):
            return None
        return Claim(self.view.inventory.by_uuid(match[1]), replica=True)

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode; the library keeps holders apart, or the hardware on MIG devices."""
        if device.mig is None:
            return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=offer.slices)
        # What is offered are slices of the whole GPU; how many of them this MIG device is, is unknown.
        counted = tuple(count._replace(offered=count.offered or None) for count in offer.slices)
        return DeviceSharing(sharing=self.name, isolation="hard", slices=counted)

    def grants(self) -> Granted:
        """Return what containers have by their annotations, else by their caches."""
        grants: list[Grant] = []
        settled: set[tuple[ContainerRef, str]] = set()
        for holder, resources, ids in self._holders:
            parts = list(self._parts(holder, ids))
            grants += [
                _grant(holder, resources[0], same_device, self._meter(holder, same_device[0].device))
                for same_device in _joined(parts)
            ]
            if parts:
                settled |= {(holder, resource) for resource in resources}
        return Granted(grants=tuple(grants), settled=frozenset(settled))

    def memory(self, device: HamiDevice) -> int | None:
        """Return the limit in bytes that an annotation states, None for none."""
        return device.memory * MEBIBYTE or None

    def device(self, _holder: ContainerRef, _place: int, device: HamiDevice) -> Device | None:
        """Find the device of an annotation, ``place`` in the list of its container.

        An old annotation numbers MIG devices as the driver did when they were made: only where the GPU has a
        single one it is clear which is meant.
        """
        inventory = self.view.inventory
        inside = [
            candidate
            for candidate in inventory.devices
            if candidate.mig and candidate.key.uuid == device.uuid
        ]
        return inside[0] if len(inside) == 1 else inventory.by_uuid(device.uuid)

    @cached_property
    def _holders(self) -> list[tuple[ContainerRef, tuple[str, ...], frozenset[str]]]:
        """List the containers with ids of this system's, which any resources may have, and all these ids.

        MIG devices that the kubelet gave stand apart from slices.
        """
        holders: list[tuple[ContainerRef, tuple[str, ...], frozenset[str]]] = []
        for holder, held in sorted(self.view.held.items()):
            own = {name: ids for name, ids in sorted(held.items()) if self._is_ours(holder, name, ids)}
            sliced = {name: ids for name, ids in own.items() if any(map(SLICE.fullmatch, ids))}
            others = {name: ids for name, ids in own.items() if name not in sliced}
            holders += [
                (holder, tuple(by_resource), frozenset().union(*by_resource.values()))
                for by_resource in (sliced, others)
                if by_resource
            ]
        return holders

    @cached_property
    def _sharers(self) -> Counter[tuple[str, str]]:
        """Count the containers of each pod that have slices: for those, plugins make folders of caches."""
        return Counter(
            (holder.namespace, holder.pod)
            for holder, _, ids in self._holders
            if any(map(SLICE.fullmatch, ids))
        )

    @cached_property
    def _caches(self) -> Mapping[str, set[str]]:
        return names_by_pod(self.view, CACHE)

    @cached_property
    def _resources(self) -> set[str]:
        return {resource for _, resources, _ in self._holders for resource in resources}

    def _is_ours(self, holder: ContainerRef, resource: str, ids: Iterable[str]) -> bool:
        details = self.view.details(holder)
        annotations = details.annotations if details is not None else {}
        annotated = any(key in annotations for key in self.keys)
        others = not annotated and any(key in annotations for key in (*HAMI_KEYS, *VOLCANO_KEYS))
        ours = annotated or (not others and self.named(resource))
        return ours and any(
            SLICE.fullmatch(device_id) or (annotated and device_id.startswith(MIG)) for device_id in ids
        )

    def _parts(self, holder: ContainerRef, ids: frozenset[str]) -> Iterator[Part]:
        """Yield what a container was given; a MIG device of its own is exactly what the kubelet gave."""
        inventory = self.view.inventory
        named = [parse_device_id(device_id) for device_id in sorted(ids) if device_id.startswith(MIG)]
        migs = [inventory.find(device_id) for device_id in named if device_id is not None]
        devices, file = self._devices(holder, ids), self._file(holder)
        if migs:
            yield from map(_whole, migs)
        elif devices:
            for place, device in enumerate(_seen(devices, file, ids)):
                device_here = self.device(holder, place, device)
                if device_here is not None and device_here.mig is not None:
                    yield _whole(device_here)
                else:
                    yield Part(device_here, self.memory(device), device.cores / 100 or None)
        elif file is not None:
            for use in file.devices:
                yield Part(inventory.by_uuid(use.device), use.memory_limit, use.compute_limit)

    def _devices(self, holder: ContainerRef, ids: frozenset[str]) -> tuple[HamiDevice, ...]:
        """Return the devices of an annotation: as many as ids, or the plugin would have given none."""
        devices = self._told_of(holder).devices.get(holder.container, ())
        count = sum(SLICE.fullmatch(device_id) is not None for device_id in ids)
        if not devices or not count or len(devices) == count or (self.lenient and len(devices) < count):
            return devices
        text = f"it has {len(devices)} devices for {holder.container}, which was given {count}"
        self.view.object_to(self.name, "annotation", f"{holder.namespace}/{holder.pod}", text)
        return ()

    def _meter(self, holder: ContainerRef, device: Device | None) -> Meter | None:
        return meter_of(self._file(holder), device)

    def _file(self, holder: ContainerRef) -> ContainerFile | None:
        """Return the cache of a container, which some plugins put under the name of another one.

        HAMi up to 2.8 puts those of all containers of a pod under one name: nobody knows whose it is then.
        """
        pod = self.view.pod(holder)
        here = self._caches.get(pod.uid, set()) if pod is not None else set()
        several = self._sharers[holder.namespace, holder.pod] > 1
        if several and in_common(here, self.view.details(holder)):
            return None
        name = self._told_of(holder).filed.get(holder.container, holder.container)
        return self.view.file(CACHE, holder._replace(container=name))

    def _told_of(self, holder: ContainerRef) -> Told:
        """Return what the annotation of a pod says; nothing where it has none that can be read."""
        pod = self.view.pod(holder)
        if pod is None or pod.details is None:
            return NOTHING
        if pod.uid not in self._told:
            self._told[pod.uid] = self._read_annotation(pod, pod.details)
        return self._told[pod.uid]

    def _read_annotation(self, pod: PodIdentity, details: PodDetails) -> Told:
        key = next((key for key in self.keys if key in details.annotations), None)
        if key is None:
            return NOTHING
        try:
            segments = parse_allocation(details.annotations[key], lenient=self.lenient)
        except ValueError as error:
            self.object_to(pod, key, error)
            return NOTHING
        places = places_of(segments, details.containers, lambda container: self._asks(pod, container))
        devices = {name: segments[place] for name, place in places.items()}
        here = self._caches.get(pod.uid, set())
        return Told(devices, places, filed(here, places, details.containers))

    def _asks(self, pod: PodIdentity, container: ContainerSpec) -> bool:
        held = self.view.held.get(ContainerRef(pod.namespace, pod.name, container.name), {})
        return any(resource in self._resources for resource in (*held, *limited(container)))


def _whole(device: Device | None) -> Part:
    """Return all of a MIG device."""
    if device is None:
        return Part(None, None, None)
    return Part(device, device.memory, device.compute)


def _seen(
    devices: tuple[HamiDevice, ...], file: ContainerFile | None, ids: frozenset[str]
) -> tuple[HamiDevice, ...]:
    """Correct which GPUs a container was given where the plugin preferred the kubelet's choice.

    That is so where the container sees the GPUs that its ids name, and not those of its annotation.
    """
    names = sorted(match[1] for device_id in ids if (match := SLICE.fullmatch(device_id)))
    seen = sorted(use.device for use in file.devices) if file is not None else []
    if seen != names or len(seen) != len(devices) or seen == sorted(device.uuid for device in devices):
        return devices
    return tuple(device._replace(uuid=uuid) for device, uuid in zip(devices, names, strict=True))


def _joined(parts: Iterable[Part]) -> Iterator[Sequence[Part]]:
    """Put together what is of the same device."""
    joined: dict[object, list[Part]] = defaultdict(list)
    for part in parts:
        joined[part.device.key if part.device is not None else None].append(part)
    yield from joined.values()


def _grant(holder: ContainerRef, resource: str, parts: Sequence[Part], meter: Meter | None) -> Grant:
    device = parts[0].device
    alone = device is not None and device.mig is not None
    # A MIG device that is told twice is still one.
    counted = parts[:1] if alone else parts
    return Grant(
        holder=holder,
        resource=resource,
        device=device,
        slices=len(counted),
        memory_entitled=total([part.memory for part in counted]),
        compute_entitled=total([part.compute for part in counted]),
        meter=meter,
        exclusive=alone,
    )
