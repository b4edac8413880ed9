"""KAI-Scheduler, and the base class of KAI and run:ai, which share GPUs that a reservation pod holds.

The kubelet gives the GPU to a reservation pod, which does not use it. The pods that share it have no device
ids: a label has their group, and the reservation pod of that group has the GPU. Fractions are holdings, and
devices of a reservation pod are not.
"""

import re
from collections.abc import Container, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from typing import ClassVar, NamedTuple

from exporter.model import ContainerRef, Meter, PodDetails, PodIdentity, only
from exporter.sharing import gpu_fractions
from exporter.sharing.base import Grant, Granted, System, whole_keys
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.view import View
from exporter.sharing.hami.cache_files import CACHE, meter_of

RESOURCE = "nvidia.com/gpu"
GROUP = "runai-gpu-group"
SEVERAL_GROUPS = GROUP + "/"
RESERVED = "run.ai/reserve_for_gpu_index"
# Annotation of a reservation pod that has not found its GPU yet.
NOT_FOUND = "-1"
FRACTION, MEMORY = "gpu-fraction", "gpu-memory"
COUNT, CONTAINER = "gpu-fraction-num-devices", "gpu-fraction-container-name"
RECEIVED = "received-resource-type"
READ_FRACTION = gpu_fractions.expected(gpu_fractions.fraction, "a fraction of a GPU")
READ_MEBIBYTES = gpu_fractions.expected(gpu_fractions.mebibytes, "a number of MiB")
READ_MEMORY = gpu_fractions.expected(gpu_fractions.memory, "an amount of memory")
RUNAI = "runai-reservation"
KAI_NAMESPACE, KAI_CONTAINER = "kai-resource-reservation", "resource-reservation"
CONTAINERS = frozenset({KAI_CONTAINER, RUNAI})
NAMESPACES = frozenset({KAI_NAMESPACE, RUNAI})


class Reservation(NamedTuple):
    """A container that reserves a GPU for a group."""

    holder: ContainerRef
    group: str
    gpu: str  # UUID or index in the pod's annotation, "" if it has none


class FractionSize(NamedTuple):
    """The size of a fraction on each of its GPUs; None if not stated."""

    memory: int | None = None  # bytes
    part: Fraction | None = None  # share of the GPU

    def on(self, device: Device) -> tuple[int | None, float | None]:
        """Return memory in bytes and the share of compute; a missing one follows from the other."""
        total = device.memory
        memory, part = self.memory, self.part
        if total and memory is None and part is not None:
            memory = int(total * part)
        elif total and part is None and memory is not None:
            part = Fraction(memory, total)
        return memory, None if part is None else float(part)


class Reservations(System):
    """Fractions of reserved GPUs."""

    of_runai: ClassVar[bool]  # whether the class is for run:ai's reservations, or KAI's
    ids_are_slices = False
    notes: ClassVar[tuple[re.Pattern[str], ...]] = (
        whole_keys(RESERVED, FRACTION, MEMORY, COUNT, CONTAINER, RECEIVED),
        re.compile(f"{GROUP}(?:/(?P<name>.+))?"),
        gpu_fractions.MEMORY_KEY,
        gpu_fractions.BINDERS_KEY,
    )
    blind_without_pods = "which containers share the GPUs that reservation pods hold"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.fractions = [(pod, details) for pod, details in detailed(view) if _is_fraction(details)]
        used = {group for _, details in self.fractions for group in _groups(details)}
        self._reservations: dict[str, list[Reservation]] = {}
        for pod, details in detailed(view):
            for reservation in _reservations(pod, details, used):
                self._reservations.setdefault(reservation.group, []).append(reservation)

    def grants(self) -> Granted:
        """Return the grants of fractions of the GPUs reserved for their groups."""
        reserving = [reservation.holder for group in self._reservations.values() for reservation in group]
        nameless = [holder for holder in self.view.held if self._reserves_for_unknown(holder)]
        granted = Granted(grants=[*self.of_fractions(), *self._of_unknown(nameless)])
        for holder in (*filter(self._is_own, reserving), *nameless):
            granted.settle(holder, self.view.held.get(holder, ()))
        return granted

    def blind(self) -> bool:
        """Return True if a GPU is reserved here for unknown pods."""
        return any(self._reserves_for_unknown(holder) for holder in self.view.held)

    def size(self, pod: PodIdentity, details: PodDetails, _devices: int) -> FractionSize:
        """Return the size of a pod's fraction of each of its devices: its request."""
        asked = details.annotations
        if named := gpu_fractions.asking(asked):
            return self._named_size(pod, details, named[0])
        part = self.read_note(pod, FRACTION, asked.get(FRACTION), READ_FRACTION)
        memory = self.read_note(pod, MEMORY, asked.get(MEMORY), READ_MEBIBYTES)
        return FractionSize(memory=memory if part is None else None, part=part)

    def meter(self, _pod: PodIdentity, _holder: ContainerRef, _device: Device) -> Meter | None:
        """Return the system's own figures for a fraction."""
        raise NotImplementedError

    def container(self, pod: PodIdentity, details: PodDetails) -> ContainerRef:
        """Return the container that uses a pod's GPU: that of its annotation, else its first."""
        names = [container.name for container in details.containers]
        first = next((container.name for container in details.containers if not container.init), "")
        named = gpu_fractions.asking(details.annotations)
        name = named[0] if named else details.annotations.get(CONTAINER, first)
        if names and name not in names:
            self.object_to(pod, CONTAINER, f"no container is called {name[:100]!r}")
            name = first
        return ContainerRef(pod.namespace, pod.name, name)

    def has(self, _holder: ContainerRef, _details: PodDetails) -> bool:
        """Return True if the fraction of a container belongs to this class."""
        return True

    def _named_size(self, pod: PodIdentity, details: PodDetails, name: str) -> FractionSize:
        """Return the size in a container's annotations, which replace those of the pod."""
        asked, portion = details.annotations, gpu_fractions.portion_key(name)
        if len(gpu_fractions.asking(asked)) > 1:
            text = f"several containers request GPUs; {name[:100]!r} counts"
            self.object_to(pod, gpu_fractions.PREFIX, text)
        key = gpu_fractions.memory_key(asked, name)
        memory = self.read_note(pod, key, asked[key], READ_MEMORY)
        if memory is None:
            return FractionSize()
        part = self.read_note(pod, portion, asked.get(portion), READ_FRACTION)
        return FractionSize(memory, part)

    def of_fractions(self) -> Iterator[Grant]:
        """Yield the grants of this class's fractions, of the GPUs of their groups."""
        for pod, details in self.fractions:
            groups = [group for group in _groups(details) if self._has(group, details)]
            if not groups:
                continue
            self._check_count(pod, details)
            holder = self.container(pod, details)
            if not self.has(holder, details):
                continue
            size = self.size(pod, details, len(groups))
            for group in groups:
                device = self._device_of(group)
                memory, compute = size.on(device) if device is not None else (None, None)
                yield Grant(
                    holder=holder,
                    resource=RESOURCE,
                    device=device,
                    memory_entitled=memory,
                    compute_entitled=compute,
                    meter=self.meter(pod, holder, device) if device is not None else None,
                )

    def _of_unknown(self, holders: Sequence[ContainerRef]) -> Iterator[Grant]:
        """Yield grants of GPUs that are reserved for unknown containers."""
        for holder in holders:
            for resource, ids in self.view.held[holder].items():
                for device_id in ids:
                    device = self.view.inventory.find(parse_device_id(device_id))
                    yield Grant(holder, resource, device, for_unknown=True)

    def _has(self, group: str, details: PodDetails) -> bool:
        """Return True if a group belongs to this system, by its reservation, else by pod annotations."""
        reservations = self._reservations.get(group)
        if reservations:
            return self._is_own(reservations[0].holder)
        return self.of_runai == any(name.startswith("runai-allocated-") for name in details.annotations)

    def _is_own(self, holder: ContainerRef) -> bool:
        return self.of_runai == (RUNAI in (holder.namespace, holder.container))

    def _reserves_for_unknown(self, holder: ContainerRef) -> bool:
        """Return True if a container has the names of a reservation and its pod's details are unknown."""
        named = holder.namespace in NAMESPACES and holder.container in CONTAINERS
        return named and self._is_own(holder) and self.view.details(holder) is None

    def _device_of(self, group: str) -> Device | None:
        """Return the GPU of a group; None if it is not on this node, or if two reservations differ."""
        reservations = self._reservations.get(group, ())
        devices = {device.key: device for each in reservations for device in self._of(each)}
        return only(devices.values())

    def _of(self, reservation: Reservation) -> Iterator[Device]:
        """Yield the GPUs of a reservation, by its ids, else by its pod's annotation."""
        ids = chain.from_iterable(self.view.held.get(reservation.holder, {}).values())
        parsed = [device_id for device_id in map(parse_device_id, sorted(ids)) if device_id is not None]
        devices = [self.view.inventory.find(device_id) for device_id in parsed]
        if not parsed:
            devices = [self._annotated(reservation)]
        yield from (device for device in devices if device is not None)

    def _annotated(self, reservation: Reservation) -> Device | None:
        """Return the GPU in a reservation pod's annotation: a UUID, in older releases an index."""
        text = reservation.gpu
        if text in ("", NOT_FOUND):
            return None
        if (index := gpu_fractions.whole_number(text)) is not None:
            return self.view.inventory.by_index(index)
        parsed = parse_device_id(text)
        if parsed is None or not parsed.uuid or parsed.replica:
            problem = f"{text[:100]!r} is neither a UUID nor an index of a GPU"
            self.object_to(reservation.holder, RESERVED, problem)
            return None
        return self.view.inventory.find(parsed)

    def _check_count(self, pod: PodIdentity, details: PodDetails) -> None:
        count, groups = details.annotations.get(COUNT, ""), len(_groups(details))
        if count and gpu_fractions.whole_number(count) != groups:
            self.object_to(pod, COUNT, f"{count[:100]!r} is not the number of groups in its labels: {groups}")


def detailed(view: View) -> Iterator[tuple[PodIdentity, PodDetails]]:
    """Yield the pods with known details."""
    return ((pod, pod.details) for pod in view.pods if pod.details is not None)


def _groups(details: PodDetails) -> list[str]:
    """Return the groups of a pod: one for each GPU that it shares."""
    labels = details.labels.items()
    return sorted({text for name, text in labels if text and f"{name}/".startswith(SEVERAL_GROUPS)})


def _is_fraction(details: PodDetails) -> bool:
    """Return True if a pod has fractions of GPUs; it has no label with a group until it is bound."""
    received = details.annotations.get(RECEIVED) or "Fraction"
    return received == "Fraction" and bool(_groups(details)) and (_asks(details) or not _reserving(details))


def _reservations(pod: PodIdentity, details: PodDetails, used: Container[str]) -> Iterator[Reservation]:
    """Yield the reservations of a pod. Outside known namespaces, only if another pod shares the GPU.

    A pod that only looks like a reservation would otherwise hide its own holding.
    """
    group = details.labels.get(GROUP, "")
    if group and not _asks(details) and (pod.namespace in NAMESPACES or group in used):
        for name in _reserving(details):
            holder = ContainerRef(pod.namespace, pod.name, name)
            yield Reservation(holder, group, details.annotations.get(RESERVED, ""))


def _asks(details: PodDetails) -> bool:
    asked = details.annotations
    return FRACTION in asked or MEMORY in asked or bool(gpu_fractions.asking(asked))


def _reserving(details: PodDetails) -> list[str]:
    return [container.name for container in details.containers if container.name in CONTAINERS]


class Kai(Reservations):
    """KAI's fractions without enforcement.

    A pod requests a fraction of a GPU, or an amount of its memory, which KAI converts to a fraction. Memory
    is limited only if the cluster is configured for it: by NvFractions, or by HAMi's library libvgpu, whose
    cache shows it.
    """

    name = "kai"
    isolation = "none"
    of_runai = False
    limited: ClassVar[bool] = False  # whether the class is for fractions with a memory limit

    def has(self, holder: ContainerRef, details: PodDetails) -> bool:
        """Return True if the limit of a container's memory is as this class has it."""
        # libvgpu may have a limit for a container without KAI, too.
        file = self.view.file(CACHE, holder)
        by_library = file is not None and any(use.memory_limit is not None for use in file.devices)
        by_annotation = gpu_fractions.is_limited(details.annotations, holder.container)
        return self.limited == (by_annotation or by_library)

    def meter(self, _pod: PodIdentity, holder: ContainerRef, device: Device) -> Meter | None:
        """Return libvgpu's figures if it is in the container."""
        return meter_of(self.view.file(CACHE, holder), device)


class KaiLimited(Kai):
    """Fractions with a memory limit."""

    isolation = "soft"
    limited = True

    def grants(self) -> Granted:
        """Return the grants of fractions only: Kai settles the reservations of both classes."""
        return Granted(grants=list(self.of_fractions()))
