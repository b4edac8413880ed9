"""The base class of HAMi and Volcano's vGPU: GPUs shared by libvgpu, a library in the container.

The scheduler writes each container's GPUs and shares into the pod's annotations; libvgpu enforces them. The
kubelet's ids (``GPU-<uuid>-<slice>``) only count slices: the plugin may use another GPU than that of the id,
so that ids count only without a readable annotation. libvgpu's cache has the GPUs, limits and use of a
running container.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

from exporter.model import (
    ContainerFile,
    ContainerRef,
    ContainerSpec,
    DeviceKey,
    DeviceSharing,
    Meter,
    only,
    total,
)
from exporter.model.kubelet import PodName
from exporter.sharing.base import MEBIBYTE, Grant, Granted, Meaning, Offer, System, grouped
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.view import View
from exporter.sharing.hami.annotations import HamiDevice, limited, parse_allocation, segment_by_container
from exporter.sharing.hami.cache_files import CACHE, filed, in_common, meter_of, names_by_pod

HAMI_KEYS = ("hami.io/vgpu-devices-allocated", "4pd.io/vgpu-ids-new")
VOLCANO_KEYS = ("volcano.sh/vgpu-ids-new",)
SLICE = re.compile(r"(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9]{1,9}")
MIG = "MIG-"


class ContainerShare(NamedTuple):
    """A container's share of one device."""

    device: Device | None  # None if it is unknown, or not on this node
    memory: int | None  # bytes
    compute: float | None  # share of the GPU
    may_be: frozenset[DeviceKey] = frozenset()  # the devices that it may be of if ``device`` is None


class PodAnnotation(NamedTuple):
    """The parsed annotation of a pod, by container."""

    devices: Mapping[str, tuple[HamiDevice, ...]]
    segments: Mapping[str, int]  # number of the segment in the annotation
    filed: Mapping[str, str]  # name of the container's cache, if it is another container's


NO_ANNOTATION = PodAnnotation({}, {}, {})


class LibvgpuSystem(System):
    """A scheduler that shares GPUs by libvgpu.

    Slices of a resource that it knows belong to it unless an annotation differs.
    """

    isolation = "soft"
    keys: ClassVar[tuple[str, ...]] = ()  # keys of its annotations; the first in a pod counts
    lenient: ClassVar[bool] = False  # skip malformed devices in an annotation

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._annotations: dict[PodName, PodAnnotation] = {}

    def owns(self, resource: str, device_id: str) -> bool:
        """Return True if an id is a slice of a GPU, under a resource of this system."""
        return self.knows(resource) and SLICE.fullmatch(device_id) is not None

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        # First the id: other plugins have tens of thousands of ids.
        match = SLICE.fullmatch(device_id)
        if match is None or not self.knows(resource):
            return None
        return Meaning(self.view.inventory.by_uuid(match[1]), replica=True)

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode; isolation is soft by the library, hard on MIG devices."""
        if device.mig is None:
            return super().sharing(device, offer)
        # Allocatable slices are of the whole GPU: the number for this MIG device is unknown.
        counted = tuple(count._replace(offered=count.offered or None) for count in offer.slices)
        return DeviceSharing(sharing=self.name, isolation="hard", slices=counted)

    def grants(self) -> Granted:
        """Return the grants by annotations, else by caches."""
        granted = Granted()
        for holder, resources, ids in self._holders:
            parts = list(self._parts(holder, ids))
            for same_device in grouped(parts, lambda part: None if part.device is None else part.device.key):
                meter = meter_of(self._file(holder), same_device[0].device)
                granted.grants.append(_grant(holder, resources[0], same_device, meter))
            if parts:
                granted.settle(holder, resources)
        return granted

    def memory(self, device: HamiDevice) -> int | None:
        """Return the memory limit of an annotation in bytes, None if it has none."""
        return device.memory * MEBIBYTE or None

    def device(self, _holder: ContainerRef, _position: int, device: HamiDevice) -> Device | None:
        """Return the device of an annotation, at ``position`` in the container's segment.

        Old annotations have the driver's numbers of MIG devices when they were made: the MIG device is known
        only if the GPU has a single one.
        """
        inventory = self.view.inventory
        migs = (mig for mig in inventory.devices if mig.mig and mig.key.uuid == device.uuid)
        return only(migs) or inventory.by_uuid(device.uuid)

    @cached_property
    def _holders(self) -> list[tuple[ContainerRef, tuple[str, ...], frozenset[str]]]:
        """(container, resources, ids) with ids of this system; MIG devices are separate from slices."""
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
    def _sharers(self) -> Counter[PodName]:
        """The number of containers with slices by pod: for those, plugins make folders of caches."""
        return Counter(holder.pod_name for holder, _, ids in self._holders if any(map(SLICE.fullmatch, ids)))

    @cached_property
    def _caches(self) -> Mapping[str, set[str]]:
        return names_by_pod(self.view, CACHE)

    @cached_property
    def _resources(self) -> set[str]:
        return {resource for _, resources, _ in self._holders for resource in resources}

    def _is_ours(self, holder: ContainerRef, resource: str, ids: Iterable[str]) -> bool:
        annotations = self.view.annotations(holder)
        annotated = any(key in annotations for key in self.keys)
        others = not annotated and any(key in annotations for key in (*HAMI_KEYS, *VOLCANO_KEYS))
        ours = annotated or (not others and self.knows(resource))
        return ours and any(
            SLICE.fullmatch(device_id) or (annotated and device_id.startswith(MIG)) for device_id in ids
        )

    def _parts(self, holder: ContainerRef, ids: frozenset[str]) -> Iterator[ContainerShare]:
        """Yield a container's shares, by its MIG ids, else its annotation, else its cache."""
        inventory = self.view.inventory
        migs = [device_id for device_id in sorted(ids) if device_id.startswith(MIG)]
        devices, file = self._devices(holder, ids), self._file(holder)
        if migs:
            for device_id in migs:
                share = _whole(inventory.find(parse_device_id(device_id)))
                yield share._replace(may_be=inventory.meant_by_id(device_id) or frozenset())
        elif devices:
            for position, device in enumerate(_seen(devices, file, ids)):
                device_here = self.device(holder, position, device)
                if device_here is not None and device_here.mig is not None:
                    yield _whole(device_here)
                else:
                    compute, may_be = device.cores / 100 or None, inventory.meant_by_uuid(device.uuid)
                    yield ContainerShare(device_here, self.memory(device), compute, may_be)
        elif file is not None:
            for use in file.devices:
                device_here, may_be = inventory.by_uuid(use.device), inventory.meant_by_uuid(use.device)
                yield ContainerShare(device_here, use.memory_limit, use.compute_limit, may_be)

    def _devices(self, holder: ContainerRef, ids: frozenset[str]) -> tuple[HamiDevice, ...]:
        """Return the devices in an annotation; () if their number is not that of the kubelet's slices."""
        devices = self._annotation(holder).devices.get(holder.container, ())
        count = sum(SLICE.fullmatch(device_id) is not None for device_id in ids)
        if not devices or not count or len(devices) == count or (self.lenient and len(devices) < count):
            return devices
        text = f"has {len(devices)} devices for {holder.container}, which holds {count}"
        self.view.object_to(self.name, "annotation", f"{holder.namespace}/{holder.pod}", text)
        return ()

    def _file(self, holder: ContainerRef) -> ContainerFile | None:
        """Return the cache of a container, which some plugins name after another container.

        HAMi up to 2.8 gives all containers of a pod the same name: then the cache's container is unknown.
        """
        pod = self.view.pod(holder)
        here = self._caches.get(pod.uid, set()) if pod is not None else set()
        several = self._sharers[holder.pod_name] > 1
        if several and in_common(here, self.view.main_containers(holder)):
            return None
        name = self._annotation(holder).filed.get(holder.container, holder.container)
        return self.view.file(CACHE, holder._replace(container=name))

    def _annotation(self, holder: ContainerRef) -> PodAnnotation:
        """Return the parsed annotation of a container's pod; empty if it is missing or malformed."""
        if holder.pod_name not in self._annotations:
            self._annotations[holder.pod_name] = self._parse(holder)
        return self._annotations[holder.pod_name]

    def _parse(self, holder: ContainerRef) -> PodAnnotation:
        pod = self.view.pod(holder)
        annotations = self.view.annotations(holder)
        key = next((key for key in self.keys if key in annotations), None)
        if pod is None or pod.details is None or key is None:
            return NO_ANNOTATION
        segments = self.read_note(
            holder, key, annotations[key], partial(parse_allocation, lenient=self.lenient)
        )
        if segments is None:
            return NO_ANNOTATION
        containers = pod.details.containers
        numbers = segment_by_container(segments, containers, partial(self._asks, holder))
        devices = {name: segments[number] for name, number in numbers.items()}
        return PodAnnotation(devices, numbers, filed(self._caches.get(pod.uid, set()), numbers, containers))

    def _asks(self, holder: ContainerRef, container: ContainerSpec) -> bool:
        held = self.view.held.get(holder._replace(container=container.name), {})
        return any(resource in self._resources for resource in (*held, *limited(container)))


def _whole(device: Device | None) -> ContainerShare:
    """Return a whole MIG device as a share."""
    if device is None:
        return ContainerShare(None, None, None)
    return ContainerShare(device, device.memory, device.compute)


def _seen(
    devices: tuple[HamiDevice, ...], file: ContainerFile | None, ids: frozenset[str]
) -> tuple[HamiDevice, ...]:
    """Return the devices with the uuids of the kubelet's ids, if the plugin preferred these.

    It did if the container's cache has the GPUs of its ids, and not those of its annotation.
    """
    names = sorted(match[1] for device_id in ids if (match := SLICE.fullmatch(device_id)))
    seen = sorted(use.device for use in file.devices) if file is not None else []
    if seen != names or len(seen) != len(devices) or seen == sorted(device.uuid for device in devices):
        return devices
    return tuple(device._replace(uuid=uuid) for device, uuid in zip(devices, names, strict=True))


def _grant(
    holder: ContainerRef, resource: str, parts: Sequence[ContainerShare], meter: Meter | None
) -> Grant:
    device = parts[0].device
    alone = device is not None and device.mig is not None
    # A MIG device that is listed twice is one device.
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
        may_be=frozenset().union(*(part.may_be for part in counted)),
    )
