"""run:ai: fractions of GPUs that a reservation pod holds, and MIG devices that it creates for pods.

Annotations have the shares of a pod. From run:ai 3.0 on the driver enforces the limits of memory, and an
annotation of the binder shows it; whether the library of earlier releases does is not visible. A pod on a
MIG device has no device ids either; an annotation has the device.
"""

import base64
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from exporter.model import (
    ContainerFile,
    ContainerRef,
    DeviceKey,
    DeviceSharing,
    DeviceUse,
    Meter,
    PodDetails,
    PodIdentity,
    Problem,
    SystemFiles,
    only,
)
from exporter.sharing.base import Grant, Granted, Offer, Read, Roots, whole_keys
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.reading import content, names_or_problem, parsed, problem, reported
from exporter.sharing.base.view import View
from exporter.sharing.gpu_fractions import fraction, is_limited, mebibytes
from exporter.sharing.kai import FractionSize, Reservations, detailed

LONGEST_NOTE = 1 << 16
_RESOURCE = re.compile(r"nvidia\.com/mig-[a-z0-9.+-]{1,60}")
_NUMBER = re.compile(r"[0-9]{1,4}")
_UUID = re.compile(r"MIG-[0-9A-Za-z/-]{1,80}")

MigPosition = tuple[int, int]  # GPU index and position on the GPU
PODS = Path("proc/pod")
METRICS = Path("metrics/gpu")
COMPUTE, MEMORY = "utilization.sm", "memory.allocated"
# More pods and GPUs than any node has.
MOST_PODS, MOST_GPUS = 4096, 64
LONGEST_NUMBER = 32
ALL = 100
_POD = re.compile(r"[0-9a-f-]{32,36}")
_INDEX = re.compile(r"0|[1-9][0-9]{0,3}")
_FILE_NUMBER = re.compile(r"[0-9]{1,18}")
ALLOCATED, ALLOCATED_MEMORY = "runai-allocated-gpus", "runai-allocated-gpu-memory"
ALLOCATIONS = (ALLOCATED, ALLOCATED_MEMORY, "runai-allocated-mig-gpus")
MIG_DEVICE, MIG_MAPPING = "runai-mig-device", "run.ai/mig-mapping"


class AnnotatedMig(NamedTuple):
    """The MIG device of a pod, by uuid, position, or both."""

    resource: str
    uuid: str  # "" if unknown
    position: MigPosition | None


def is_mig(resource: str) -> bool:
    return _RESOURCE.fullmatch(resource) is not None


def parse_mig_device(text: str) -> AnnotatedMig:
    """Return the MIG device in a pod's annotation; raises ValueError."""
    document = parsed(text, dict, LONGEST_NOTE)
    resource, uuid = document.get("name"), document.get("deviceUUID", document.get("instanceid", ""))
    if not isinstance(resource, str) or not is_mig(resource):
        raise ValueError(f"name is not a resource of MIG devices: {str(resource)[:100]!r}")
    if not isinstance(uuid, str) or (uuid and not _UUID.fullmatch(uuid)):
        raise ValueError(f"not a UUID of a MIG device: {str(uuid)[:100]!r}")
    gpu, number = _number(document.get("gpuindex")), _number(document.get("position"))
    position = (gpu, number) if gpu is not None and number is not None else None
    if not uuid and position is None:
        raise ValueError("has neither a UUID nor a place")
    return AnnotatedMig(resource, uuid, position)


def parse_mig_mapping(text: str) -> dict[MigPosition, str]:
    """Return the UUIDs by position in a node's annotation; raises ValueError."""
    decoded = base64.b64decode(text.encode(), validate=True) if len(text) <= LONGEST_NOTE else b""
    return dict(_mapped(parsed(decoded.decode(), dict, LONGEST_NOTE)))


def _mapped(document: Mapping[str, Any]) -> Iterator[tuple[MigPosition, str]]:
    for index, devices in document.items():
        gpu = _number(index)
        for position, uuid in _listed(devices):
            number = _number(position)
            if gpu is None or number is None or not isinstance(uuid, str) or not _UUID.fullmatch(uuid):
                raise ValueError(f"GPU {index[:20]!r} has {str(uuid)[:100]!r} at {str(position)[:20]!r}")
            yield (gpu, number), uuid


def _listed(devices: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(devices, dict):
        yield from devices.items()
    elif isinstance(devices, list) and all(isinstance(item, dict) for item in devices):
        yield from ((item.get("position"), item.get("device_uuid")) for item in devices)
    else:
        raise ValueError(f"neither a list nor an object of MIG devices: {str(devices)[:100]!r}")


def _number(value: Any) -> int | None:
    """Return an index, which is a number or, in some releases, a string of digits."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return value if type(value) is int and 0 <= value < 10000 else None


def read_runai(roots: Roots) -> SystemFiles:
    """Return the use of every pod; ``device`` is a GPU index; blocks, never raises."""
    root, problems = roots.run, list[Problem]()
    files = [
        ContainerFile(pod_uid=uid, devices=devices)
        for uid in names_or_problem(root / PODS, MOST_PODS, problems)
        if _POD.fullmatch(uid) and (devices := tuple(_devices(root / PODS / uid / METRICS, problems)))
    ]
    return SystemFiles(containers=tuple(files), problems=tuple(problems))


def _devices(folder: Path, problems: list[Problem]) -> Iterator[DeviceUse]:
    for index in names_or_problem(folder, MOST_GPUS, problems):
        if _INDEX.fullmatch(index):
            percent = _file_number(folder / index / COMPUTE, ALL, problems)
            memory = _file_number(folder / index / MEMORY, None, problems)
            compute = None if percent is None else percent / ALL
            yield DeviceUse(device=index, memory_used=memory, compute_used=compute)


def _file_number(path: Path, most: int | None, problems: list[Problem]) -> int | None:
    with reported(path, problems):
        text = content(path, LONGEST_NUMBER).decode("ascii", "backslashreplace").strip()
        if _FILE_NUMBER.fullmatch(text) and (most is None or int(text) <= most):
            return int(text)
        if text:
            problems.append(problem(path, f"{text!r} is not a valid number"))
    return None


class Runai(Reservations):
    """Fractions and MIG devices of run:ai."""

    name = "runai"
    isolation = ""
    of_runai = True
    notes = (*Reservations.notes, whole_keys(*ALLOCATIONS, MIG_DEVICE, MIG_MAPPING))
    read: ClassVar[Read | None] = staticmethod(read_runai)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        # Whether the driver limits each fraction of a GPU.
        self._limits: dict[DeviceKey, list[bool]] = defaultdict(list)

    def grants(self) -> Granted:
        granted = super().grants()
        for grant in granted.grants:
            if grant.device is not None:
                limited = is_limited(self.view.annotations(grant.holder), grant.holder.container)
                self._limits[grant.device.key].append(limited)
        granted.grants += self._of_mig()
        return granted

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode: MIG with hard isolation, or fractions, hard if the driver limits all of them."""
        if device.mig is not None:
            return DeviceSharing(sharing="mig", isolation="hard", slices=offer.slices)
        limits = self._limits[device.key]
        isolation = "hard" if limits and all(limits) else self.isolation
        return replace(super().sharing(device, offer), isolation=isolation)

    def size(self, pod: PodIdentity, details: PodDetails, devices: int) -> FractionSize:
        """Return the allocated size; for several GPUs the annotation has a total, and the request counts."""
        annotations = details.annotations
        memory = mebibytes(annotations.get(ALLOCATED_MEMORY, ""))
        part = fraction(annotations.get(ALLOCATED, ""))
        if devices == 1 and memory is not None and part is not None:
            return FractionSize(memory, part)
        return super().size(pod, details, devices)

    def meter(self, pod: PodIdentity, _holder: ContainerRef, device: Device) -> Meter | None:
        """Return run:ai's figures for the pod, whose fractions are of one container."""
        index, containers = str(device.gpu.identity.index), self.view.files(self.name).containers
        uses = chain.from_iterable(file.devices for file in containers if file.pod_uid == pod.uid)
        use = only(use for use in uses if use.device == index)
        if use is None:
            return None
        return Meter(source=self.name, memory=use.memory_used, compute=use.compute_used)

    def _of_mig(self) -> Iterator[Grant]:
        """Yield the grants of MIG devices, except to containers with MIG ids of the kubelet."""
        for pod, details in detailed(self.view):
            text = details.annotations.get(MIG_DEVICE) or None
            mig = self.read_note(pod, MIG_DEVICE, text, parse_mig_device)
            if mig is None:
                continue
            holder, device = self.container(pod, details), self._device(mig)
            if any(map(is_mig, self.view.held.get(holder, ()))):
                continue
            yield Grant(
                holder=holder,
                resource=mig.resource,
                device=device,
                memory_entitled=device.memory if device is not None else None,
                compute_entitled=device.compute if device is not None else None,
                exclusive=True,
            )

    def _device(self, mig: AnnotatedMig) -> Device | None:
        uuid = mig.uuid or (self._mapping.get(mig.position, "") if mig.position is not None else "")
        device = self.view.inventory.by_uuid(uuid)
        return device if device is not None and device.mig is not None else None

    @cached_property
    def _mapping(self) -> dict[MigPosition, str]:
        text = self.view.node_annotations.get(MIG_MAPPING, "")
        try:
            return parse_mig_mapping(text) if text else {}
        except ValueError as error:
            self.view.object_to(self.name, "node", MIG_MAPPING, str(error))
            return {}
