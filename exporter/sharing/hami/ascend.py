"""HAMi on Huawei's Ascend NPUs: divided into templates by the driver, or shared by a library in containers.

The keys of the annotation and the resource have the name of the chip. Another annotation, named after the
resource, has the template of each device. A template's name begins with its AI cores (``vir05_1c_16g``: 5);
the node's annotation has the AI cores of an NPU. With the library (``huawei.com/vnpu-mode: hami-core``),
cores are percent, and its file has the use of each container.

Nodes are configured for one or the other (``hami-vnpu-core``). On nodes with the library, a pod without a
mode gets a template from plugins up to 1.4.0, and the library from later ones.
"""

import re
import struct
from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from exporter.model import ContainerFile, ContainerRef, DeviceSharing, DeviceUse, Meter, Problem, SystemFiles
from exporter.sharing.base import Meaning, Offer, Read, Roots, unread_device, weakest, whole_keys
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.reading import UnusableError, of_containers, opened, parsed, problem
from exporter.sharing.base.view import View
from exporter.sharing.hami.annotations import Registered
from exporter.sharing.hami.cache_files import filed, names_by_pod
from exporter.sharing.hami.vendor_system import AnnotatedShare, DeviceKind, HamiVendor

NAME = "vnpu_local_shmem"
SLOTS_BEGIN, SLOT_SIZE, MOST_SLOTS = 1080, 80, 64
MOST_BYTES = 1 << 50

_LIMIT = struct.Struct("<Q")
# Two pids (both in the container's pid namespace), bytes on eight NPUs, whether the process is alive.
_SLOT = struct.Struct("<ii8QIi")
MODE = "huawei.com/vnpu-mode"
SOFT = "hami-core"
NODE_SOFT = "hami-vnpu-core"
LONGEST = 64 * 1024
METER = "hami-vnpu"
TEMPLATE = re.compile(r"vir([0-9]{1,3})(?:_.*)?")
# Huawei's own plugin has ids like Ascend910-3.
ID = re.compile(r"(?!Ascend)(.{8,128})-[0-9]{1,4}")


def read_vnpu(roots: Roots) -> SystemFiles:
    """Return the files of all containers."""
    problems: list[Problem] = []
    files = [
        ContainerFile(pod_uid=pod, container=container, devices=devices)
        for folder, pod, container in of_containers(f"{roots.hami_vnpu}/containers", problems)
        if (devices := _of_container(f"{folder}/{NAME}", problems)) is not None
    ]
    return SystemFiles(containers=tuple(files), problems=tuple(problems))


def _of_container(path: str, problems: list[Problem]) -> tuple[DeviceUse, ...] | None:
    """Return the devices in the file of a container, None if that is unusable."""
    try:
        return _devices(path)
    except FileNotFoundError:
        # The folder exists before its file, and already shows that the library limits the container.
        return ()
    except NotADirectoryError:
        return None
    except (OSError, UnusableError) as error:
        problems.append(problem(path, error))
        return None


def _devices(path: str) -> tuple[DeviceUse, ...]:
    """Return the sum over a container's NPUs as one device without a name; () before its first use."""
    with opened(path) as (size, pread):
        if size < SLOTS_BEGIN + SLOT_SIZE:
            raise UnusableError(f"has {size} bytes, too few for one process")
        count = min((size - SLOTS_BEGIN) // SLOT_SIZE, MOST_SLOTS)
        limit = _LIMIT.unpack(pread(_LIMIT.size, 0))[0]
        slots = list(_SLOT.iter_unpack(pread(count * SLOT_SIZE, SLOTS_BEGIN)))
    if limit == 0 and not any(slot[-2] for slot in slots):
        return ()
    used = sum(sum(slot[2:10]) for slot in slots if slot[-2])
    if max(limit, used) > MOST_BYTES:
        raise UnusableError("has more bytes than any device")
    return (DeviceUse(device="", memory_limit=limit or None, memory_used=used),)


class HamiAscend(HamiVendor):
    """Huawei's NPUs."""

    name = "hami-ascend"
    maker = "huawei"
    blind_without_pods = "which containers have which part of which NPU"
    kinds = (DeviceKind(re.compile(r"hami\.io/(?:Ascend[^/]+|ascend(?:310p)?)-devices-allocated")),)
    resources = re.compile(r"huawei\.com/Ascend.+")
    counting = re.compile(r"huawei\.com/Ascend(?!.*-(?:memory|core)$).+")
    own = counting
    notes = (whole_keys(MODE, NODE_SOFT),)
    registers = re.compile(r"hami\.io/node-register-Ascend[^/]+")
    read: ClassVar[Read | None] = staticmethod(read_vnpu)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        # The isolation of each NPU's holders, by uuid.
        self._isolations: dict[str, set[str]] = defaultdict(set)
        own = (ids for resource, ids in view.offered.items() if self.knows(resource))
        known = {ID.fullmatch(device_id) for ids in own for device_id in ids}
        uuids = sorted({match[1] for match in known if match is not None})
        # Without registered indexes, the order of the uuids counts.
        self.registered = {uuid: Registered(index, None) for index, uuid in enumerate(uuids)} | {
            uuid: npu._replace(cores=None) if self._node_is_soft else npu
            for uuid, npu in self.registered.items()
        }

    def owns(self, resource: str, device_id: str) -> bool:
        """Return True if an id is HAMi's of a slice of an NPU."""
        return super().owns(resource, device_id) and ID.fullmatch(device_id) is not None

    def meaning(self, resource: str, device_id: str) -> Meaning | None:
        """Return the NPU on which a slice is allocatable; its holder may have another."""
        match = ID.fullmatch(device_id) if self.owns(resource, device_id) else None
        if match is None:
            return None
        listed = self.registered.get(match[1])
        index = listed.number if listed is not None else None
        device = unread_device(self.maker, match[1], resource.partition("/")[2], index)
        return Meaning(device, replica=True, nominal=True)

    def sharing(self, device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode; isolation is soft by the library, hard by the driver's templates."""
        isolation = weakest(self._isolations[device.key.uuid])
        return replace(super().sharing(device, offer), isolation=isolation)

    def compute(self, holder: ContainerRef, part: AnnotatedShare) -> float | None:
        """Return the limit of the library, or the template's share of the NPU's AI cores."""
        isolation = self._isolation(holder)
        self._isolations[part.device.uuid].add(isolation)
        if isolation == "soft":
            return part.device.cores / part.kind.full or None
        template = self._templates(holder, part).get(part.device.uuid)
        if template is None or isolation != "hard":
            return None
        if not template:
            return 1.0
        listed, cores = self.registered.get(part.device.uuid), TEMPLATE.fullmatch(template)
        if cores is None or listed is None or not listed.cores:
            return None
        return int(cores[1]) / listed.cores

    def exclusive(self, part: AnnotatedShare, holder: ContainerRef) -> bool:
        """Return True if the NPU was allocated whole: it has no template."""
        hard = self._isolation(holder) == "hard"
        return hard and self._templates(holder, part).get(part.device.uuid) == ""

    def meter(self, holder: ContainerRef, count: int) -> Meter | None:
        """Return the library's figures if the container has one NPU: the file has no device names."""
        file = self._file(holder) if count == 1 and self._isolation(holder) == "soft" else None
        if file is None or not file.devices:
            return None
        return Meter(source=METER, memory=file.devices[0].memory_used, memory_only=True)

    @cached_property
    def _names(self) -> dict[str, set[str]]:
        return names_by_pod(self.view, self.name)

    def _file(self, holder: ContainerRef) -> ContainerFile | None:
        """Return the file of a container; it has another container's name if Volcano left out segments."""
        pod = self.view.pod(holder)
        if pod is None or pod.details is None:
            return None
        parts_by_container = self._parts(holder, pod.details) or {}
        segments = {name: parts[0].segment for name, parts in parts_by_container.items()}
        names = filed(self._names.get(pod.uid, set()), segments, pod.details.containers)
        return self.view.file(
            self.name, holder._replace(container=names.get(holder.container, holder.container))
        )

    @property
    def _node_is_soft(self) -> bool:
        """Return True if the node is configured for the library; its registered cores are then percent."""
        return self.view.node_annotations.get(NODE_SOFT) == "true"

    def _isolation(self, holder: ContainerRef) -> str:
        """Return the isolation of a container, "" if unknown.

        A pod without a mode has the library if the plugin made a folder for it. Without a folder on a node
        with the library, the plugin may be older, or its folders are not mounted.
        """
        mode = self.view.annotations(holder).get(MODE, "")
        if mode:
            return "soft" if mode == SOFT else "hard"
        pod = self.view.pod(holder)
        if pod is not None and pod.uid in self._names:
            return "soft"
        return "" if self._node_is_soft else "hard"

    def _templates(self, holder: ContainerRef, part: AnnotatedShare) -> dict[str, str]:
        """Return the templates of a pod's NPUs by uuid, "" for a whole NPU."""
        key = part.key.removeprefix("hami.io/").removesuffix("-devices-allocated")
        text = self.view.annotations(holder).get(f"huawei.com/{key}")
        if text is None:
            return {}
        try:
            listed: list[Any] = parsed(text, list, LONGEST)
        except ValueError:
            listed = [None]
        if not all(isinstance(npu, dict) for npu in listed):
            self.object_to(holder, f"huawei.com/{key}", f"{text[:60]!r} is not a list of NPUs")
            return {}
        pairs = ((npu.get("UUID"), npu.get("temp", "")) for npu in listed)
        return {uuid: name for uuid, name in pairs if isinstance(uuid, str) and isinstance(name, str)}
