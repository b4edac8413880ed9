"""GPUs that a scheduler takes through a pod of its own and gives out in fractions: KAI and run:ai.

The kubelet gives such a GPU to a reservation pod, which has no use for it. The pods that share it own no
device: a label names their group, and the reservation pod of that group has the GPU. What a reservation pod
has is therefore never a holding; the fractions are.
"""

import re
from collections.abc import Container, Iterator, Sequence
from fractions import Fraction
from typing import ClassVar, NamedTuple

from exporter.model import ContainerRef, Meter, PodDetails, PodIdentity
from exporter.sharing.base.inventory import Device, parse_device_id
from exporter.sharing.base.system import Grant, Granted, System, whole_keys
from exporter.sharing.base.view import View
from exporter.sharing.runai import nv_fractions

RESOURCE = "nvidia.com/gpu"
GROUP = "runai-gpu-group"
SEVERAL_GROUPS = GROUP + "/"
RESERVED = "run.ai/reserve_for_gpu_index"
# What a reservation pod says while it has not found its GPU.
NOT_FOUND = "-1"
FRACTION, MEMORY = "gpu-fraction", "gpu-memory"
COUNT, CONTAINER = "gpu-fraction-num-devices", "gpu-fraction-container-name"
RECEIVED = "received-resource-type"
RUNAI = "runai-reservation"
KAI_NAMESPACE, KAI_CONTAINER = "kai-resource-reservation", "resource-reservation"
CONTAINERS = frozenset({KAI_CONTAINER, RUNAI})
NAMESPACES = frozenset({KAI_NAMESPACE, RUNAI})
MEBIBYTE = 1 << 20

_DECIMAL = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,30})?|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,2})?")
_NUMBER = re.compile(r"[0-9]{1,9}")


class Reservation(NamedTuple):
    """The container that reserves a GPU for a group; ``told`` is the GPU as its pod's annotation has it."""

    holder: ContainerRef
    group: str
    told: str


class Share(NamedTuple):
    """What a fraction is of each of its GPUs: bytes, and a part of the GPU; None where it does not say."""

    memory: int | None = None
    part: Fraction | None = None

    def on(self, device: Device) -> tuple[int | None, float | None]:
        """Return bytes and compute; one is worked out from the other where only that is said."""
        total = device.memory
        memory, part = self.memory, self.part
        if total and memory is None and part is not None:
            memory = int(total * part)
        elif total and part is None and memory is not None:
            part = Fraction(memory, total)
        return memory, None if part is None else float(part)


def fraction(text: str) -> Fraction | None:
    """Read a part of a GPU, above 0 and at most 1; None for anything else."""
    value = Fraction(text) if _DECIMAL.fullmatch(text) else Fraction(0)
    return value if 0 < value <= 1 else None


def mebibytes(text: str) -> int | None:
    """Read a positive number of MiB as bytes; None for anything else."""
    value = int(text) if _NUMBER.fullmatch(text) else 0
    return value * MEBIBYTE or None


class Reservations(System):
    """What the two have in common. ``of_runai`` says whose reservations a class is about."""

    of_runai: ClassVar[bool]
    cuts = False
    notes: ClassVar[tuple[re.Pattern[str], ...]] = (
        whole_keys(RESERVED, FRACTION, MEMORY, COUNT, CONTAINER, RECEIVED),
        re.compile(f"{GROUP}(?:/(?P<name>.+))?"),
        nv_fractions.MEMORY_KEY,
        nv_fractions.BINDERS_KEY,
    )
    words = frozenset({"Fraction", *CONTAINERS, *NAMESPACES})
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
        """Return the part that each fraction has of the GPU reserved for its group."""
        own = [
            reservation
            for group in self._reservations.values()
            for reservation in group
            if self._is_own(reservation.holder)
        ]
        nameless = [holder for holder in self.view.held if self._reserves_for_unknown(holder)]
        settled = {
            (holder, resource)
            for holder in (*(reservation.holder for reservation in own), *nameless)
            for resource in self.view.held.get(holder, ())
        }
        return Granted(grants=(*self.of_fractions(), *self._of_unknown(nameless)), settled=frozenset(settled))

    def blind(self) -> bool:
        """Whether GPUs are reserved here, and it is not known for whom."""
        return any(self._reserves_for_unknown(holder) for holder in self.view.held)

    def share(self, pod: PodIdentity, details: PodDetails, _devices: int) -> Share:
        """Read what a pod was given of each of so many devices: what it asked for."""
        asked = details.annotations
        if named := nv_fractions.asking(asked):
            return self._named_share(pod, details, named[0])
        part, memory = fraction(asked.get(FRACTION, "")), mebibytes(asked.get(MEMORY, ""))
        if part is None and FRACTION in asked:
            self.object_to(pod, FRACTION, f"{asked[FRACTION][:100]!r} is no part of a GPU")
        if memory is None and MEMORY in asked:
            self.object_to(pod, MEMORY, f"{asked[MEMORY][:100]!r} is no number of MiB")
        return Share(memory=memory if part is None else None, part=part)

    def meter(self, _pod: PodIdentity, _holder: ContainerRef, _device: Device) -> Meter | None:
        """Return what was measured of a fraction beside its processes."""
        return None

    def container(self, pod: PodIdentity, details: PodDetails) -> ContainerRef:
        """Return the container that a pod's GPU is for: the one that its annotation names, else its first."""
        names = [container.name for container in details.containers]
        first = next((container.name for container in details.containers if not container.init), "")
        named = nv_fractions.asking(details.annotations)
        name = named[0] if named else details.annotations.get(CONTAINER, first)
        if names and name not in names:
            self.object_to(pod, CONTAINER, f"no container is called {name[:100]!r}")
            name = first
        return ContainerRef(pod.namespace, pod.name, name)

    def has(self, _holder: ContainerRef, _details: PodDetails) -> bool:
        """Whether the fraction of a container is one that this class is about."""
        return True

    def _named_share(self, pod: PodIdentity, details: PodDetails, name: str) -> Share:
        """Read what the annotations of one container say of it; those of the pod do not count then."""
        asked, portion = details.annotations, nv_fractions.portion_key(name)
        if len(nv_fractions.asking(asked)) > 1:
            self.object_to(pod, nv_fractions.PREFIX, f"several containers have GPUs; {name[:100]!r} counts")
        key = nv_fractions.memory_key(asked, name)
        memory, part = nv_fractions.memory(asked[key]), fraction(asked.get(portion, ""))
        if memory is None:
            self.object_to(pod, key, f"{asked[key][:100]!r} is no amount of memory")
            return Share()
        if part is None and portion in asked:
            self.object_to(pod, portion, f"{asked[portion][:100]!r} is no part of a GPU")
        return Share(memory, part)

    def of_fractions(self) -> Iterator[Grant]:
        """Yield the parts that the fractions of this class have of the GPUs of their groups."""
        for pod, details in self.fractions:
            groups = [group for group in _groups(details) if self._has(group, details)]
            if not groups:
                continue
            self._check_count(pod, details)
            holder = self.container(pod, details)
            if not self.has(holder, details):
                continue
            share = self.share(pod, details, len(groups))
            for group in groups:
                device = self._device_of(group)
                memory, compute = share.on(device) if device is not None else (None, None)
                yield Grant(
                    holder=holder,
                    resource=RESOURCE,
                    device=device,
                    memory_entitled=memory,
                    compute_entitled=compute,
                    meter=self.meter(pod, holder, device) if device is not None else None,
                )

    def _of_unknown(self, holders: Sequence[ContainerRef]) -> Iterator[Grant]:
        """Count the GPUs that are reserved for containers that cannot be known."""
        for holder in holders:
            for resource, ids in self.view.held[holder].items():
                for device_id in ids:
                    named = parse_device_id(device_id)
                    device = self.view.inventory.find(named) if named is not None else None
                    yield Grant(holder=holder, resource=resource, device=device, for_unknown=True)

    def _has(self, group: str, details: PodDetails) -> bool:
        """Whether a group is this system's; without a reservation, its pod's annotations say so."""
        reservations = self._reservations.get(group)
        if reservations:
            return self._is_own(reservations[0].holder)
        return self.of_runai == any(name.startswith("runai-allocated-") for name in details.annotations)

    def _is_own(self, holder: ContainerRef) -> bool:
        return self.of_runai == (RUNAI in (holder.namespace, holder.container))

    def _reserves_for_unknown(self, holder: ContainerRef) -> bool:
        """Whether a container reserves a GPU, by its names alone, and its pod's object is not known."""
        named = holder.namespace in NAMESPACES and holder.container in CONTAINERS
        return named and self._is_own(holder) and self.view.details(holder) is None

    def _device_of(self, group: str) -> Device | None:
        """Return the GPU of a group; None where it is not here, or where two reservations contradict."""
        devices = {
            device.key: device
            for reservation in self._reservations.get(group, ())
            for device in self._of(reservation)
        }
        return next(iter(devices.values())) if len(devices) == 1 else None

    def _of(self, reservation: Reservation) -> Iterator[Device]:
        held = self.view.held.get(reservation.holder, {})
        parsed = [
            parsed_id
            for ids in held.values()
            for device_id in sorted(ids)
            if (parsed_id := parse_device_id(device_id))
        ]
        devices = [self.view.inventory.find(device_id) for device_id in parsed]
        if not parsed:
            devices = [self._annotated(reservation)]
        yield from (device for device in devices if device is not None)

    def _annotated(self, reservation: Reservation) -> Device | None:
        """Find the GPU by what a reservation pod wrote down: its UUID, or its index in older releases."""
        text = reservation.told
        if text in ("", NOT_FOUND):
            return None
        if _NUMBER.fullmatch(text):
            return self.view.inventory.by_index(int(text))
        parsed = parse_device_id(text)
        if parsed is None or not parsed.uuid or parsed.replica:
            self.object_to(reservation.holder, RESERVED, f"{text[:100]!r} is no UUID and no index of a GPU")
            return None
        return self.view.inventory.find(parsed)

    def _check_count(self, pod: PodIdentity, details: PodDetails) -> None:
        count, groups = details.annotations.get(COUNT, ""), len(_groups(details))
        if count and not (_NUMBER.fullmatch(count) and int(count) == groups):
            text = f"{count[:100]!r} is not the number of the groups that its labels name: {groups}"
            self.object_to(pod, COUNT, text)


def detailed(view: View) -> Iterator[tuple[PodIdentity, PodDetails]]:
    """List the pods whose objects are known."""
    return ((pod, pod.details) for pod in view.pods if pod.details is not None)


def _groups(details: PodDetails) -> list[str]:
    """List the groups of a pod: one for each GPU that it has a part of."""
    labels = details.labels.items()
    return sorted({text for name, text in labels if text and f"{name}/".startswith(SEVERAL_GROUPS)})


def _is_fraction(details: PodDetails) -> bool:
    """Whether a pod was given parts of GPUs: before it is bound, no label names a group."""
    received = details.annotations.get(RECEIVED) or "Fraction"
    return received == "Fraction" and bool(_groups(details)) and (_asks(details) or not _reserving(details))


def _reservations(pod: PodIdentity, details: PodDetails, used: Container[str]) -> Iterator[Reservation]:
    """List what a pod reserves. In a namespace that is not known for it, somebody must share the GPU.

    A pod that only looks like a reservation would else hide what it holds.
    """
    group = details.labels.get(GROUP, "")
    if group and not _asks(details) and (pod.namespace in NAMESPACES or group in used):
        for name in _reserving(details):
            holder = ContainerRef(pod.namespace, pod.name, name)
            yield Reservation(holder, group, details.annotations.get(RESERVED, ""))


def _asks(details: PodDetails) -> bool:
    asked = details.annotations
    return FRACTION in asked or MEMORY in asked or bool(nv_fractions.asking(asked))


def _reserving(details: PodDetails) -> list[str]:
    return [container.name for container in details.containers if container.name in CONTAINERS]
