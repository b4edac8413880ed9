"""vgpu-manager: GPUs shared by a library in the container, each container with its limits in a file.

The plugin writes what each container really got into an annotation of the pod, by container:
``main[0_GPU-..._30_4096];other[]``, the number of the device, its UUID, percent and MiB. What the scheduler
had planned stands in another annotation and is not read. The kubelet's ids (``GPU-...::3``, and until spring
2026 ``0:GPU-...:3``) only count: they need not be those of the GPU that was planned. What containers use is
what their processes use.
"""

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from exporter.model import ContainerFile, ContainerRef, DeviceKey, DeviceUse, PodDetails
from exporter.sharing.files.vgpu_manager import read_vgpu_manager
from exporter.sharing.system import Claim, Grant, Granted, Read, System
from exporter.sharing.view import View
from exporter.sums import total

# The domain of resources and annotations is nvidia.com unless the installation has another.
RESOURCE = re.compile(r"([a-z0-9.-]{1,253})/vgpu-number")
ID = re.compile(r"([0-9]{1,4}:)?(?P<uuid>GPU-[0-9A-Za-z-]{1,64})(?(1):|::)[0-9]{1,6}")
CONTAINER = re.compile(r"([^\[\];]{1,253})\[([^\[\]]*)\]")
DEVICE = re.compile(r"[0-9]{1,4}_([^_,]{1,96})_([0-9]{1,5})_([0-9]{1,9})")
GIVEN = "real-allocated"
LONGEST = 256 * 1024
MEBIBYTE = 1 << 20


class Part(NamedTuple):
    """What a container has of a GPU, in bytes and shares of the whole; None is no limit."""

    uuid: str
    memory: int | None
    compute: float | None


Parts = Mapping[str, tuple[Part, ...]]


class VgpuManager(System):
    """The plugin of vgpu-manager."""

    name = "vgpu-manager"
    isolation = "soft"
    notes = (re.compile(rf"[a-z0-9.-]{{1,253}}/{GIVEN}"),)
    read: ClassVar[Read | None] = staticmethod(read_vgpu_manager)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._told: dict[tuple[str, str], Parts] = {}

    def knows(self, resource: str) -> bool:
        """Whether this is the resource that counts slices."""
        return RESOURCE.fullmatch(resource) is not None

    def owns(self, resource: str, device_id: str) -> bool:
        """Whether an id is a slice of a GPU under the resource that counts them."""
        return RESOURCE.fullmatch(resource) is not None and ID.fullmatch(device_id) is not None

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Find the GPU that a slice is offered with; its holder may have another."""
        found = ID.fullmatch(device_id) if RESOURCE.fullmatch(resource) else None
        if found is None:
            return None
        return Claim(self.view.inventory.by_uuid(found["uuid"]), replica=True, nominal=True)

    def grants(self) -> Granted:
        """Tell what containers have by their annotation, else by their file."""
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
        """Return what a container has. Only its file says whether a share of compute is a limit."""
        details = self.view.details(holder)
        told = self._annotated(holder, key, details) if details is not None else {}
        filed = {use.device: Part(use.device, use.memory_limit, use.compute_limit) for use in _uses(file)}
        parts = told.get(holder.container, ())
        if not parts:
            return tuple(filed.values())
        return tuple(
            part._replace(compute=filed[part.uuid].compute) if part.uuid in filed else part for part in parts
        )

    def _annotated(self, holder: ContainerRef, key: str, details: PodDetails) -> Parts:
        place = holder.namespace, holder.pod
        if place not in self._told:
            try:
                self._told[place] = dict(parse_claims(details.annotations.get(key, "")))
            except ValueError as error:
                self._told[place] = {}
                about = f"{holder.namespace}/{holder.pod}: {key}"
                self.view.object_to(self.name, "annotation", about, str(error))
        return self._told[place]


def parse_claims(text: str) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """Yield the containers of an annotation with their devices; raise ValueError at what cannot be read."""
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters are more than an annotation can have")
    for piece in filter(None, text.replace(" ", "").split(";")):
        container = CONTAINER.fullmatch(piece)
        if container is None:
            raise ValueError(f"{piece[:60]!r} is not container[devices]")
        yield container[1], tuple(_part(each) for each in container[2].split(",") if each)


def _part(text: str) -> Part:
    device = DEVICE.fullmatch(text)
    if device is None:
        raise ValueError(f"{text[:60]!r} is not number_UUID_percent_MiB")
    return Part(device[1], int(device[3]) * MEBIBYTE or None, int(device[2]) / 100 or None)


def _uses(file: ContainerFile | None) -> tuple[DeviceUse, ...]:
    return file.devices if file is not None else ()


def _grants(holder: ContainerRef, resource: str, parts: tuple[Part, ...], view: View) -> Iterator[Grant]:
    """Yield one grant for each GPU, and one for all that are not here."""
    of_device: dict[DeviceKey | None, list[Part]] = {}
    for part in parts:
        device = view.inventory.by_uuid(part.uuid)
        of_device.setdefault(device.key if device is not None else None, []).append(part)
    for same in of_device.values():
        yield Grant(
            holder=holder,
            resource=resource,
            device=view.inventory.by_uuid(same[0].uuid),
            slices=len(same),
            memory_entitled=total([part.memory for part in same]),
            compute_entitled=total([part.compute for part in same]),
        )
