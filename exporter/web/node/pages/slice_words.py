"""The words for what a container holds, and the order of states."""

from collections.abc import Sequence

from exporter.model import ContainerRow, SliceCount
from exporter.model.states import HolderState
from exporter.web.kit.elements import Figure
from exporter.web.node.pages.scene import Scene, answers
from exporter.wording import TIMES, UNKNOWN, plural

# The states of holders, the most urgent first.
URGENCY: Sequence[HolderState] = (
    "unhealthy",
    "contested",
    "over-share",
    "unheld",
    "over-notional",
    "idle-memory",
    "idle",
    "quiet",
    "active",
    "unknown",
)

ISOLATION = {
    "hard": "hardware, kernel or driver keeps its part from others",
    "soft": "software limits each holder; they share the hardware",
    "none": "nothing separates the holders of this device; the entitlement is not enforced",
    "": "not known: no source reports what separates the holders of this device",
}
_WHOLE = "whole GPU"


_BY_CGROUP = "the kernel or the driver keeps its memory within its limit, not its compute"


def isolation_text(row: ContainerRow) -> str:
    """Return the meaning of a holder's isolation."""
    if row.isolation == "hard" and row.memory_limit is not None:
        return _BY_CGROUP
    return ISOLATION.get(row.isolation, "")


def isolation_word(isolation: str) -> str:
    """Return the name of an isolation, a dash if it is unknown."""
    return isolation or UNKNOWN


def is_of_one_kind(row: ContainerRow) -> bool:
    """Return whether the slices of a container are of one resource, not a sum over several."""
    return "," not in row.resource


def slice_of(scene: Scene, row: ContainerRow) -> Figure:
    """Return what a container holds, such as ``1g.5gb`` or ``3 of 10``."""
    if row.slices is None:
        return Figure(UNKNOWN, scene.why_entitled(row))
    if row.slices == 0:
        return Figure("holds nothing")
    profile = _profile(scene, row)
    by_itself = row.isolation == "hard" or (is_of_one_kind(row) and _offered(scene, row) == 1)
    if by_itself and (profile != _WHOLE or row.sharing == "exclusive"):
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
    return (mig.reading.profile if mig is not None else None) or "MIG device"


def _offered(scene: Scene, row: ContainerRow) -> int | None:
    mig = scene.migs.get(row.device) if row.device.mig_uuid else None
    gpu = scene.gpus.get(row.device.uuid)
    counts: Sequence[SliceCount] = ()
    if mig is not None:
        counts = mig.slices
    elif gpu is not None and (answers(gpu) or gpu.unread):
        counts = gpu.slices
    return next((count.offered for count in counts if count.resource == row.resource), None)
