"""vgpu-manager: GPUs shared by a library in the container, which reads its limits from a file.

The plugin writes each container's shares into an annotation of the pod: ``main[0_GPU-..._30_4096];other[]``
has index, UUID, percent and MiB. The scheduler's plan, in another annotation, is not read. The kubelet's ids
(``GPU-...::3``, until spring 2026 ``0:GPU-...:3``) only count slices, and may be of another GPU. The system
has no meter: use is that of processes.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from exporter.model import (
    ContainerFile,
    ContainerRef,
    DeviceKey,
    DeviceUse,
    FileProblem,
    PodDetails,
    SystemFiles,
)
from exporter.model.sums import total
from exporter.sharing.base.reading import Pread, UnusableError, gathered, of_containers, opened, problem
from exporter.sharing.base.system import MEBIBYTE, Claim, Grant, Granted, Read, Roots, System, grouped
from exporter.sharing.base.view import View

NAME = "config/vgpu.config"
# Path in the first releases.
OLD_NAME = "vgpu.config"
MAGIC, LAYOUT, SIZE = 0x56474346, 1, 8192
MOST_BYTES = 1 << 50
DEVICES_BEGIN, DEVICES, DEVICE_SIZE = 512, 16, 128
REGION = DEVICES_BEGIN + DEVICES * DEVICE_SIZE
TRIES = 4

_HEAD = struct.Struct("<IIII")
# Seqlock, padding, uuid, memory limit, physical part of it; then percent and switches.
_DEVICE = struct.Struct("<II48sQQ7i28x")


class _Old(NamedTuple):
    """The layout of a device in an old file, in bytes."""

    size: int
    percent: int  # offset of the percent


_OLD_BEGIN = 248
_OLD = {
    1536: _Old(80, 56),
    **dict.fromkeys((1664, 1672, 2440), _Old(88, 64)),
    **dict.fromkeys((1800, 1848), _Old(96, 64)),
}
_UUID = re.compile(rb"(GPU|MIG)-[0-9A-Za-z/-]{1,42}")


def read_vgpu_manager(roots: Roots) -> SystemFiles:
    """Return the files of all containers; blocks."""
    return gathered(of_containers(roots.vgpu_manager, _of_container))


def _of_container(folder: str, pod: str, container: str) -> Iterator[ContainerFile | FileProblem]:
    for path in (f"{folder}/{NAME}", f"{folder}/{OLD_NAME}"):
        try:
            devices = tuple(_devices(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnusableError) as error:
            yield problem(path, error)
            return
        yield ContainerFile(pod_uid=pod, container=container, devices=devices)
        return


def _devices(path: str) -> Iterator[DeviceUse]:
    with opened(path) as (size, pread):
        if size in _OLD:
            yield from _old_devices(pread, _OLD[size])
            return
        if size != SIZE:
            raise UnusableError(f"has {size} bytes, not {SIZE}")
        magic, layout, region, count = _HEAD.unpack(pread(_HEAD.size, 0))
        if (magic, layout, region, count) != (MAGIC, LAYOUT, REGION, DEVICES):
            raise UnusableError(f"has unknown layout {layout} for {count} devices under {magic:#x}")
        for place in range(DEVICES):
            for _ in range(TRIES):
                device = _DEVICE.unpack(pread(DEVICE_SIZE, DEVICES_BEGIN + place * DEVICE_SIZE))
                if device[0] % 2 == 0:
                    break
            else:
                raise UnusableError("is being written")
            if device[-1]:
                _, _, name, memory, _, percent, _, limited, *_ = device
                yield _use(name, memory, percent, limited)


def _old_devices(pread: Pread, old: _Old) -> Iterator[DeviceUse]:
    """Yield the devices with a name; a soft limit and a switch follow the percent."""
    device = struct.Struct(f"<48sQ{old.percent - 56}xi4xi{old.size - old.percent - 12}x")
    for name, memory, percent, limited in device.iter_unpack(pread(DEVICES * device.size, _OLD_BEGIN)):
        if name[:1] != b"\0":
            yield _use(name, memory, percent, limited)


def _use(name: bytes, memory: int, percent: int, limited: int) -> DeviceUse:
    uuid = name.partition(b"\0")[0]
    if not _UUID.fullmatch(uuid) or memory > MOST_BYTES:
        raise UnusableError(f"has a device {uuid!r} of {memory} bytes")
    whole = percent >= 100
    return DeviceUse(
        device=uuid.decode(),
        memory_limit=memory or None,
        compute_limit=1.0 if whole else percent / 100 if limited and percent > 0 else None,
    )


# The domain of resources and annotations is nvidia.com unless the installation has another.
RESOURCE = re.compile(r"([a-z0-9.-]{1,253})/vgpu-number")
ID = re.compile(r"([0-9]{1,4}:)?(?P<uuid>GPU-[0-9A-Za-z-]{1,64})(?(1):|::)[0-9]{1,6}")
CONTAINER = re.compile(r"([^\[\];]{1,253})\[([^\[\]]*)\]")
DEVICE = re.compile(r"[0-9]{1,4}_([^_,]{1,96})_([0-9]{1,5})_([0-9]{1,9})")
GIVEN = "real-allocated"
LONGEST = 256 * 1024


class Part(NamedTuple):
    """A container's share of a GPU; None is no limit."""

    uuid: str
    memory: int | None  # bytes
    compute: float | None  # share of the GPU


Parts = Mapping[str, tuple[Part, ...]]


class VgpuManager(System):
    """Holders by annotation, else by file."""

    name = "vgpu-manager"
    isolation = "soft"
    notes = (re.compile(rf"[a-z0-9.-]{{1,253}}/{GIVEN}"),)
    read: ClassVar[Read | None] = staticmethod(read_vgpu_manager)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._annotations: dict[tuple[str, str], Parts] = {}

    def knows(self, resource: str) -> bool:
        """Return True if this is the resource that counts slices."""
        return RESOURCE.fullmatch(resource) is not None

    def owns(self, resource: str, device_id: str) -> bool:
        """Return True if an id is a slice of a GPU, under the resource that counts them."""
        return RESOURCE.fullmatch(resource) is not None and ID.fullmatch(device_id) is not None

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Return the GPU on which a slice is allocatable; its holder may have another."""
        match = ID.fullmatch(device_id) if RESOURCE.fullmatch(resource) else None
        if match is None:
            return None
        return Claim(self.view.inventory.by_uuid(match["uuid"]), replica=True, nominal=True)

    def grants(self) -> Granted:
        """Return the grants by annotations, else by files."""
        grants: list[Grant] = []
        settled: set[tuple[ContainerRef, str]] = set()
        for holder, held in self.view.held.items():
            for resource, ids in held.items():
                domain = RESOURCE.fullmatch(resource)
                if domain is None or not any(map(ID.fullmatch, ids)):
                    continue
                file = self.view.file(self.name, holder)
                parts = self._parts(holder, f"{domain[1]}/{GIVEN}", file)
                if len(parts) > len(ids):
                    text = f"{len(parts)} devices for {len(ids)} {resource}"
                    about = f"{holder.namespace}/{holder.pod}/{holder.container}"
                    self.view.object_to(self.name, "annotation", about, text)
                elif parts:
                    grants += _grants(holder, resource, parts, self.view)
                    settled.add((holder, resource))
        return Granted(grants=tuple(grants), settled=frozenset(settled))

    def _parts(self, holder: ContainerRef, key: str, file: ContainerFile | None) -> tuple[Part, ...]:
        """Return a container's shares. Only its file has whether a share of compute is a limit."""
        details = self.view.details(holder)
        annotated = self._annotated(holder, key, details) if details is not None else {}
        uses = file.devices if file is not None else ()
        filed = {use.device: Part(use.device, use.memory_limit, use.compute_limit) for use in uses}
        parts = annotated.get(holder.container, ())
        if not parts:
            return tuple(filed.values())
        return tuple(
            part._replace(compute=filed[part.uuid].compute) if part.uuid in filed else part for part in parts
        )

    def _annotated(self, holder: ContainerRef, key: str, details: PodDetails) -> Parts:
        pod = holder.pod_name
        if pod not in self._annotations:
            try:
                self._annotations[pod] = dict(parse_claims(details.annotations.get(key, "")))
            except ValueError as error:
                self._annotations[pod] = {}
                self.object_to(holder, key, error)
        return self._annotations[pod]


def parse_claims(text: str) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """Yield (container, shares) of an annotation; raises ValueError at a malformed entry."""
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters are more than an annotation can have")
    for piece in filter(None, text.replace(" ", "").split(";")):
        container = CONTAINER.fullmatch(piece)
        if container is None:
            raise ValueError(f"{piece[:60]!r} is not container[devices]")
        yield container[1], tuple(_part(device) for device in container[2].split(",") if device)


def _part(text: str) -> Part:
    device = DEVICE.fullmatch(text)
    if device is None:
        raise ValueError(f"{text[:60]!r} is not number_UUID_percent_MiB")
    return Part(device[1], int(device[3]) * MEBIBYTE or None, int(device[2]) / 100 or None)


def _grants(holder: ContainerRef, resource: str, parts: tuple[Part, ...], view: View) -> Iterator[Grant]:
    """Yield one grant for each GPU, and one for all that are not on this node."""

    def device_key(part: Part) -> DeviceKey | None:
        device = view.inventory.by_uuid(part.uuid)
        return device.key if device is not None else None

    for device_parts in grouped(parts, device_key):
        yield Grant(
            holder=holder,
            resource=resource,
            device=view.inventory.by_uuid(device_parts[0].uuid),
            slices=len(device_parts),
            memory_entitled=total([part.memory for part in device_parts]),
            compute_entitled=total([part.compute for part in device_parts]),
        )
