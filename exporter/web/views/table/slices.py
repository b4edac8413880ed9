"""What a container holds of a device, in the words of those who cut it."""

from exporter.formats_words import TIMES, UNKNOWN, plural
from exporter.model import ContainerRow
from exporter.web.views.scene import Figure, Scene, answers
from exporter.web.views.words import is_of_one_kind

_WHOLE = "whole GPU"


def slice_of(scene: Scene, row: ContainerRow) -> Figure:
    """Name what a container holds, such as ``1g.5gb`` or ``3 of 10``."""
    if row.slices is None:
        return Figure(UNKNOWN, scene.why_entitled(row))
    if row.slices == 0:
        return Figure("holds nothing")
    profile = _profile(scene, row)
    if row.isolation == "hard" and (profile != _WHOLE or row.sharing == "exclusive"):
        return Figure(profile if row.slices == 1 else f"{row.slices} {TIMES} {profile}")
    share = _share(scene, row, row.slices)
    return Figure(share if profile == _WHOLE else f"{share} of {profile}")


def _share(scene: Scene, row: ContainerRow, slices: int) -> str:
    if not is_of_one_kind(row):
        return plural(slices, "unit")
    offered = _offered(scene, row)
    return plural(slices, "slice") if offered is None else f"{slices} of {offered}"


def _profile(scene: Scene, row: ContainerRow) -> str:
    if row.sharing == "vgpu":
        return f"vGPU {row.resource.rpartition('/')[2].replace('_', ' ').removeprefix('NVIDIA ')}"
    if not row.device.mig_uuid:
        return _WHOLE
    mig = scene.migs.get(row.device)
    return (mig and mig.reading.profile) or "MIG device"


def _offered(scene: Scene, row: ContainerRow) -> int | None:
    mig = scene.migs.get(row.device) if row.device.mig_uuid else None
    gpu = scene.gpus.get(row.device.uuid)
    counts = mig.slices if mig else gpu.slices if gpu and (answers(gpu) or gpu.foreign) else ()
    for count in counts:
        if count.resource == row.resource:
            return count.offered
    return None
