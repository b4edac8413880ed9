"""The page of one GPU: its slices and holders, what has befallen it, its links, and all its readings."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from exporter.model import GpuRow
from exporter.web.views.events import event_views
from exporter.web.views.picture.gpus import gpu_view
from exporter.web.views.picture.parts import is_amd, part_name
from exporter.web.views.processes import processes_of_gpu
from exporter.web.views.readings import ReadingGroup, gpu_readings, mig_readings, vgpu_readings
from exporter.web.views.scene import Scene, answers
from exporter.web.views.topology import topology_rows

_WATCHED = "None since this exporter was started."
_UNWATCHED = "The driver does not report the events of this GPU: the node's kernel log has its XIDs."
_UNWATCHED_AMD = "Events of AMD GPUs are not read: the node's kernel log has them."
_UNWATCHED_FOREIGN = "Events of this device are not read by this exporter."


@dataclass(frozen=True, slots=True)
class PartView:
    """The readings of one MIG device, partition or vGPU."""

    name: str
    uuid: str
    groups: list[ReadingGroup]


def gpu_context(scene: Scene, gpu: GpuRow) -> dict[str, Any]:
    """Give what the template of the page is filled with."""
    uuid = gpu.identity.uuid
    groups = gpu_readings(gpu)
    return {
        "gpu": gpu_view(scene, gpu),
        "processes": processes_of_gpu(scene, gpu),
        "events": event_views(scene, uuid),
        "no_events": _no_events(gpu),
        "topology": () if gpu.foreign else topology_rows(scene),
        "groups": groups,
        "missing": [group for group in groups if group.why and answers(gpu)],
        "parts": [*_migs(scene, gpu), *_vgpus(scene, uuid)],
    }


def _no_events(gpu: GpuRow) -> str:
    if gpu.foreign:
        return _UNWATCHED_FOREIGN
    unwatched = _UNWATCHED_AMD if is_amd(gpu) else _UNWATCHED
    return _WATCHED if gpu.watched else unwatched


def _migs(scene: Scene, gpu: GpuRow) -> Iterator[PartView]:
    for mig in scene.snapshot.migs:
        if mig.device.uuid == gpu.identity.uuid:
            number = str(mig.reading.gi) if is_amd(gpu) else f"{mig.reading.gi}/{mig.reading.ci}"
            name = f"{part_name(mig.device)} {number} {mig.reading.profile or ''}"
            yield PartView(name, mig.device.mig_uuid, mig_readings(mig))


def _vgpus(scene: Scene, uuid: str) -> Iterator[PartView]:
    for row in scene.snapshot.vgpus:
        if row.uuid == uuid:
            name = row.reading.type_name or ""
            yield PartView(f"vGPU {name.removeprefix('NVIDIA ')}", row.reading.uuid, vgpu_readings(row))
