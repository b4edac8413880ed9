"""vgpu-manager: GPUs shared by a library in the container, which reads its limits from a file.

The plugin writes each container's shares into an annotation of the pod: ``main[0_GPU-..._30_4096];other[]``
has index, UUID, percent and MiB. The scheduler's plan, in another annotation, is not read. The kubelet's ids
(``GPU-...::3``, until spring 2026 ``0:GPU-...:3``) only count slices, and may be of another GPU. The system
has no meter: use is that of processes.
"""

import re
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, NamedTuple

from exporter.model import ContainerFile, ContainerRef, DeviceUse, Problem, SystemFiles
from exporter.sharing.base import MEBIBYTE, Grant, Granted, Meaning, Read, Roots, System, by_device
from exporter.sharing.base.reading import Pread, UnusableError, of_containers, opened, problem

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
_OLD_BEGIN = 248
_UUID = re.compile(rb"(GPU|MIG)-[0-9A-Za-z/-]{1,42}")
# The domain of resources and annotations is nvidia.com unless the installation has another.
RESOURCE = re.compile(r"([a-z0-9.-]{1,253})/vgpu-number")
ID = re.compile(r"([0-9]{1,4}:)?(?P<uuid>GPU-[0-9A-Za-z-]{1,64})(?(1):|::)[0-9]{1,6}")
CONTAINER = re.compile(r"([^\[\];]{1,253})\[([^\[\]]*)\]")
DEVICE = re.compile(r"[0-9]{1,4}_([^_,]{1,96})_([0-9]{1,5})_([0-9]{1,9})")
GIVEN = "real-allocated"
LONGEST = 256 * 1024


class _Old(NamedTuple):
    """The layout of a device in an old file, in bytes."""

    size: int
    percent: int  # offset of the percent


_OLD = {
    1536: _Old(80, 56),
    **dict.fromkeys((1664, 1672, 2440), _Old(88, 64)),
    **dict.fromkeys((1800, 1848), _Old(96, 64)),
}


def read_vgpu_manager(roots: Roots) -> SystemFiles:
    """Return the files of all containers; blocks."""
    problems: list[Problem] = []
    files = [
        ContainerFile(pod_uid=pod, container=container, devices=devices)
        for folder, pod, container in of_containers(roots.vgpu_manager, problems)
        if (devices := _of_container(folder, problems)) is not None
    ]
    return SystemFiles(containers=tuple(files), problems=tuple(problems))


def _of_container(folder: str, problems: list[Problem]) -> tuple[DeviceUse, ...] | None:
    """Return the devices of a container, None without a usable file."""
    for path in (f"{folder}/{NAME}", f"{folder}/{OLD_NAME}"):
        try:
            return tuple(_devices(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnusableError) as error:
            problems.append(problem(path, error))
            break
    return None


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
        for number in range(DEVICES):
            for _ in range(TRIES):
                device = _DEVICE.unpack(pread(DEVICE_SIZE, DEVICES_BEGIN + number * DEVICE_SIZE))
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
    compute = percent / 100 if limited and percent > 0 else None
    if percent >= 100:
        compute = 1.0
    return DeviceUse(device=uuid.decode(), memory_limit=memory or None, compute_limit=compute)


class VgpuManager(System):
    """Holders by annotation, else by file."""

    name = "vgpu-manager"
    isolation = "soft"
    own = RESOURCE
    notes = (re.compile(rf"[a-z0-9.-]{{1,253}}/{GIVEN}"),)
    read: ClassVar[Read | None] = staticmethod(read_vgpu_manager)

    def owns(self, resource: str, device_id: str) -> bool:
        """Return True if an id is a slice of a GPU, under the resource that counts them."""
        return self.knows(resource) and ID.fullmatch(device_id) is not None

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return the GPU on which a slice is allocatable; its holder may have another."""
        match = ID.fullmatch(device_id) if self.knows(resource) else None
        if match is None:
            return None
        return Meaning(self.view.inventory.by_uuid(match["uuid"]), replica=True, nominal=True)

    def grants(self) -> Granted:
        """Return the grants by annotations, else by files."""
        granted = Granted()
        for holder, held in self.view.held.items():
            for resource, ids in held.items():
                domain = RESOURCE.fullmatch(resource)
                if domain is None or not any(map(ID.fullmatch, ids)):
                    continue
                file = self.view.file(self.name, holder)
                shares = self._shares(holder, f"{domain[1]}/{GIVEN}", file)
                if len(shares) > len(ids):
                    text = f"{len(shares)} devices for {len(ids)} {resource}"
                    about = f"{holder.namespace}/{holder.pod}/{holder.container}"
                    self.view.object_to(self.name, "annotation", about, text)
                elif shares:
                    granted.grants += by_device(self._grant(holder, resource, share) for share in shares)
                    granted.settle(holder, [resource])
        return granted

    def _grant(self, holder: ContainerRef, resource: str, share: DeviceUse) -> Grant:
        device = self.view.inventory.by_uuid(share.device)
        memory, compute = share.memory_limit, share.compute_limit
        may_be = self.view.inventory.meant_by_uuid(share.device)
        return Grant(
            holder, resource, device, memory_entitled=memory, compute_entitled=compute, may_be=may_be
        )

    def _shares(self, holder: ContainerRef, key: str, file: ContainerFile | None) -> Collection[DeviceUse]:
        """Return a container's shares. Only its file has whether a share of compute is a limit."""
        annotated = self.read_note(holder, key, self.view.annotations(holder).get(key), parse_shares) or {}
        filed = {use.device: use for use in file.devices} if file is not None else {}
        shares = annotated.get(holder.container, ())
        if not shares:
            return filed.values()
        limits = {uuid: use.compute_limit for uuid, use in filed.items()}
        return [
            replace(share, compute_limit=limits.get(share.device, share.compute_limit)) for share in shares
        ]


def parse_shares(text: str) -> Mapping[str, tuple[DeviceUse, ...]]:
    """Return the shares in an annotation by container; raises ValueError for a malformed entry."""
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters are more than an annotation can have")
    shares: dict[str, tuple[DeviceUse, ...]] = {}
    for piece in filter(None, text.replace(" ", "").split(";")):
        container = CONTAINER.fullmatch(piece)
        if container is None:
            raise ValueError(f"{piece[:60]!r} is not container[devices]")
        shares[container[1]] = tuple(_share(device) for device in container[2].split(",") if device)
    return shares


def _share(text: str) -> DeviceUse:
    device = DEVICE.fullmatch(text)
    if device is None:
        raise ValueError(f"{text[:60]!r} is not number_UUID_percent_MiB")
    return DeviceUse(
        device=device[1],
        memory_limit=int(device[3]) * MEBIBYTE or None,
        compute_limit=int(device[2]) / 100 or None,
    )
