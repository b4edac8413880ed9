"""Alibaba's gpushare and its forks: memory of GPUs in GiB or MiB, without enforcement.

An id is a unit of memory. It contains the UUID of a GPU, but the holder may have another GPU: annotations of
the pod have it, and count once the plugin has confirmed them. On a node with one GPU the plugin needs no
annotation, and leaves the scheduler's unconfirmed.

Forks rename the resource and the annotations: ``rainbond.com/gpu-mem`` goes with
``RAINBOND_COM_GPU_MEM_IDX``.

On nodes of Alibaba's ACK a label has the mode: ``mps`` limits memory by MPS, ``cgpu`` and ``core_mem`` by the
kernel module (``cgpu.py``), all other modes by nothing.

Older annotations have the minor of one GPU for the pod (``ALIYUN_COM_GPU_MEM_IDX``). Newer ones are JSON:
``{"0": {"1": 8}}`` is 8 units of the GPU with minor 1 for the first container, not counting init containers.
A unit is a GiB or a MiB, by the plugin's configuration, which no annotation has.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from exporter.model import ContainerRef, DeviceSharing, only
from exporter.sharing.base import Grant, Granted, Meaning, Offer, System, not_counted, whole_keys
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.reading import parsed

LONGEST = 1 << 16
MOST = 1 << 31
UNITS = (1 << 30, 1 << 20)
# The memory sizes of a node's GPUs differ by less than this factor.
UNLIKE = 16
NO_GPU = "-1"
INDEX_SUFFIX = "_GPU_MEM_IDX"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")

Shares = dict[int, dict[int, int]]
MEMORY = "aliyun.com/gpu-mem"
COMPUTE = re.compile(r"aliyun\.com/gpu-core\.[a-z]+")
ID = re.compile(r"(GPU-[^/:]{1,64})-_-[0-9]{1,9}")
# Annotations of allocations with the annotation that confirms each, in order of precedence.
ALLOCATIONS = (
    ("scheduler.framework.gpushare.allocation", "scheduler.framework.gpushare.assigned"),
    ("gpushare.alibabacloud.com/gpumemory", "gpushare.alibabacloud.com/assigned"),
)
CORES = "gpushare.alibabacloud.com/core-percentage"
UNITS_OF_GPUS = "gpushare.alibabacloud.com/device-resource"
UNITS_OF_A_GPU = "ALIYUN_COM_GPU_MEM_DEV"
# The label of ACK's nodes with the mode.
MODE, MPS = "ack.node.gpu.schedule", "mps"
BY_MODULE, NO_LIMITS = frozenset({"cgpu", "core_mem"}), frozenset({"share", "default", "topology"})
MODULE = "cgpu"


class AnnotatedUnits(NamedTuple):
    """The units by container and minor."""

    shares: Shares
    faults: tuple[str, ...]  # messages about entries that were left out


def parse_number(text: str) -> int:
    """Return a minor or a number of units; raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    return int(text)


def parse_index(text: str) -> int | None:
    """Return the minor of a GPU, None if the scheduler found no GPU; raises ValueError."""
    return None if text == NO_GPU else parse_number(text)


def parse_units(text: str) -> AnnotatedUnits:
    """Return the shares in ``{container: {minor: units}}``; raises ValueError."""
    shares: Shares = {}
    faults = []
    for container, given in parsed(text, dict, LONGEST).items():
        try:
            shares[parse_number(container)] = _counts(given)
        except ValueError as error:
            faults.append(f"container {container[:40]!r}: {error}")
    return AnnotatedUnits(shares, tuple(faults))


def parse_counts(text: str) -> dict[int, int]:
    """Return the units of each GPU in ``{minor: units}``; raises ValueError."""
    return _counts(parsed(text, dict, LONGEST))


def unit_bytes(units: int, total: int | None) -> int | None:
    """Return the bytes of a unit if a GPU of ``total`` bytes has ``units``, None if neither GiB nor MiB fits.

    The plugin counts every GPU as large as the first of its node, so that the nearest unit is taken.
    """
    if units <= 0 or not total:
        return None
    distance, unit = min((max(units * unit / total, total / (units * unit)), unit) for unit in UNITS)
    return unit if distance <= UNLIKE else None


def index_key(annotations: Iterable[str], resource: str) -> str | None:
    """Return the key of the annotation with a resource's GPU index: it has the resource's domain.

    Without such a key, the only key of this kind is returned, else None.
    """
    wanted = re.sub("[^A-Z0-9]", "_", resource.partition("/")[0].upper()) + INDEX_SUFFIX
    keys = [key for key in annotations if key.endswith(INDEX_SUFFIX)]
    if wanted in keys:
        return wanted
    return only(keys)


def _counts(given: object) -> dict[int, int]:
    if not isinstance(given, Mapping) or not all(type(count) is int for count in given.values()):
        raise ValueError("is not an object of whole numbers")
    if not all(0 <= count < MOST for count in given.values()):
        raise ValueError("has a number out of bounds")
    return {parse_number(minor): units for minor, units in given.items()}


class HeldUnits(NamedTuple):
    """A container's units of a resource."""

    holder: ContainerRef
    resource: str
    units: int


class Gpushare(System):
    """Holders by annotation."""

    name = "gpushare"
    isolation = "none"
    notes = (
        whole_keys(*(key for keys in ALLOCATIONS for key in keys), CORES, UNITS_OF_GPUS, MODE),
        re.compile("[A-Z0-9_]{1,80}_GPU_MEM_(?:IDX|DEV|ASSIGNED)"),
    )
    blind_without_pods = "which GPU a container has"

    @cached_property
    def _offered(self) -> Counter[tuple[str, str]]:
        """The number of allocatable units by resource and UUID; a plugin may have tens of thousands."""
        offered = self.view.allocations.offered or ()
        matches = ((resource, ID.fullmatch(device_id)) for resource, device_id in offered)
        return Counter((resource, match[1]) for resource, match in matches if match is not None)

    @cached_property
    def _named(self) -> Mapping[str, Device | None]:
        """The GPUs that ids name, by UUID."""
        held = (ID.fullmatch(device_id) for _, _, device_id in self.view.allocations.allocated)
        uuids = {uuid for _, uuid in self._offered} | {match[1] for match in held if match is not None}
        return {uuid: self.view.inventory.by_uuid(uuid) for uuid in uuids}

    @cached_property
    def _only(self) -> Device | None:
        """The GPU of a node with one GPU, whose units need no annotation."""
        devices = self.view.inventory.devices
        gpus = {device.key.uuid for device in devices if device.gpu.identity.vendor == "nvidia"}
        return next(iter(self._named.values())) if len(gpus) == 1 and gpus == set(self._named) else None

    @cached_property
    def _of_ack(self) -> bool:
        """Whether a pod here has annotations of ACK's scheduler."""
        keys = {key for keys in ALLOCATIONS for key in keys}
        return any(keys.intersection(self.view.annotations(holder)) for holder in self.view.held)

    def owns(self, resource: str, device_id: str) -> bool:
        """Return True if an id is a unit of memory, whatever its resource is called."""
        return resource == MEMORY or ID.fullmatch(device_id) is not None

    def blind(self) -> bool:
        """Return True if annotations are not readable and the node has several GPUs."""
        return self._only is None and super().blind()

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return the GPU on which a unit is allocatable; its holder may have another."""
        if (match := ID.fullmatch(device_id)) is not None:
            return Meaning(self.view.inventory.by_uuid(match[1]), replica=True, nominal=True)
        return Meaning(nominal=True) if resource == MEMORY or COMPUTE.fullmatch(resource) else None

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode; units are unknown if models differ: the plugin offers the first GPU's for each."""
        models = {device.gpu.identity.model for device in self._named.values() if device is not None}
        counted = not_counted(offer.slices) if len(models) > 1 else offer.slices
        return DeviceSharing(sharing=self.name, isolation=self.isolation_on(device), slices=counted)

    def isolation_on(self, device: Device) -> str:
        """Return the isolation by the mode of the node, "" if that is unknown."""
        if self.uses_mps(device):
            return "soft"
        # Containers with an instance in the module are cGPU's. A node has one mode.
        by_module = bool(self.view.files(MODULE).names)
        if self.view.facts.node is None:
            return self.isolation if by_module or not self._of_ack else ""
        mode = self.view.node_labels.get(MODE, "default")
        return self.isolation if mode in NO_LIMITS or (mode in BY_MODULE and by_module) else ""

    def uses_mps(self, device: Device) -> bool:
        """Return True if the node's label or the device shows MPS."""
        by_device = device.has_mps_clients or device.gpu.compute_mode == "exclusive_process"
        return by_device or self.view.node_labels.get(MODE) == MPS

    def grants(self) -> Granted:
        """Return the grants of all containers with units, by their annotations."""
        granted = Granted()
        for holder, held in self.view.held.items():
            for resource, ids in held.items():
                if not any(self.owns(resource, device_id) for device_id in ids):
                    continue
                grants = self._of(HeldUnits(holder, resource, len(ids)))
                granted.grants += grants
                if grants:
                    granted.settle(holder, [resource, *filter(COMPUTE.fullmatch, held)])
        return granted

    def _of(self, part: HeldUnits) -> tuple[Grant, ...]:
        annotations = self.view.annotations(part.holder)
        for key, assigned in ALLOCATIONS:
            if annotations.get(key):
                confirmed = annotations.get(assigned) == "true"
                units_by_minor = self._units(part, key) if confirmed else {}
                return tuple(
                    self._on(minor, part._replace(units=units))
                    for minor, units in units_by_minor.items()
                    if units
                )
        key_of_index = index_key(annotations, part.resource)
        if key_of_index is not None:
            return self._by_index(part, key_of_index)
        return self._by_itself(part)

    def _by_itself(self, part: HeldUnits) -> tuple[Grant, ...]:
        return (self._grant(part, self._only),) if self._only is not None else ()

    def _units(self, part: HeldUnits, key: str) -> Mapping[int, int]:
        """Return the units by minor in an allocation; {} if they exceed the kubelet's."""
        units_by_minor = self._shares(part.holder, key)
        if sum(units_by_minor.values()) <= part.units:
            return units_by_minor
        self.object_to(part.holder, key, f"gives {part.holder.container} more than it has of {part.resource}")
        return {}

    def _by_index(self, part: HeldUnits, key: str) -> tuple[Grant, ...]:
        annotations = self.view.annotations(part.holder)
        prefix = key.removesuffix("IDX")
        if annotations.get(f"{prefix}ASSIGNED") != "true":
            return self._by_itself(part)
        minor = self.read_note(part.holder, key, annotations[key], parse_index)
        if minor is None:
            return ()
        return (self._on(minor, part, f"{prefix}DEV"),)

    def _on(self, minor: int, part: HeldUnits, key_of_units: str = UNITS_OF_A_GPU) -> Grant:
        inventory = self.view.inventory
        grant = self._grant(part, inventory.by_minor(minor), key_of_units)
        return replace(grant, may_be=inventory.meant_by_minor(minor))

    def _grant(self, part: HeldUnits, device: Device | None, key_of_units: str = UNITS_OF_A_GPU) -> Grant:
        unit = self._unit(part, device, key_of_units) if device is not None else None
        percent = self._percent(part.holder, device) if device is not None else None
        return Grant(
            holder=part.holder,
            resource=part.resource,
            device=device,
            slices=part.units,
            memory_entitled=None if unit is None else unit * part.units,
            compute_entitled=None if percent is None else percent / 100,
        )

    def _percent(self, holder: ContainerRef, device: Device) -> int | None:
        """Return the allocated percent of a GPU's compute; None if only memory was allocated."""
        shares, minor = self._shares(holder, CORES), device.gpu.identity.minor
        return None if minor is None else shares.get(minor) or None

    def _unit(self, part: HeldUnits, device: Device, key: str) -> int | None:
        """Return the bytes of a unit, by the number of units of a GPU in annotations, else by its ids."""
        holder, annotations = part.holder, self.view.annotations(part.holder)
        by_minor = self.read_note(holder, UNITS_OF_GPUS, annotations.get(UNITS_OF_GPUS), parse_counts) or {}
        minor = device.gpu.identity.minor
        listed = by_minor.get(minor) if minor is not None else None
        number = self.read_note(holder, key, annotations.get(key), parse_number)
        return unit_bytes(listed or number or self._offered[part.resource, device.key.uuid], device.memory)

    def _shares(self, holder: ContainerRef, key: str) -> Mapping[int, int]:
        """Return a container's share in an annotation, by minor."""
        text, names = self.view.annotations(holder).get(key), self.view.main_containers(holder)
        if text is None or holder.container not in names:
            return {}
        allocation = self.read_note(holder, key, text, parse_units)
        if allocation is None:
            return {}
        for fault in allocation.faults:
            self.object_to(holder, key, fault)
        return allocation.shares.get(names.index(holder.container), {})
