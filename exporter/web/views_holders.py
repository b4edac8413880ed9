"""The table of holders: one row per container and device, in the order of the snapshot."""

from dataclasses import dataclass

from exporter.formats_words import TIMES, UNKNOWN, duration, total
from exporter.model import ContainerRef, ContainerRow
from exporter.states import STATE_WORDS
from exporter.web.views_bars import Bar, Use, use_bar
from exporter.web.views_scene import Figure, Pair, Scene, anchor_of, answers, number_of

ISOLATION = {
    "hard": "the hardware keeps its memory and compute apart from others",
    "soft": "software limits each holder; they share the hardware",
    "none": "nothing keeps the holders of this device apart; the entitlement is only a fair share",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderView:
    """A row of the table. ``gpu`` is the number of the GPU, "" where the driver does not list it."""

    holder: ContainerRef
    state: str
    state_word: str
    why_state: str
    idle_for: Figure
    gpu: str
    anchor: str
    uuid: str
    slice: Figure
    slice_title: str
    isolation: str
    isolation_title: str
    memory: Pair
    memory_bar: Bar
    compute: Pair
    compute_bar: Bar


def holder_views(scene: Scene) -> list[HolderView]:
    """Make the rows of the table."""
    return [_view(scene, row) for row in scene.snapshot.containers]


def _view(scene: Scene, row: ContainerRow) -> HolderView:
    state = scene.state(row)
    gpu = scene.gpus.get(row.device.uuid)
    memory, compute = scene.memory(row), scene.compute(row)
    whole = _device_memory(scene, row)
    return HolderView(
        holder=row.holder,
        state=state,
        state_word=STATE_WORDS[state],
        why_state=scene.why_compute(row) if state == "unknown" else "",
        idle_for=_idle_for(scene, row),
        gpu="" if gpu is None else number_of(gpu),
        anchor="" if gpu is None else anchor_of(gpu),
        uuid=row.device.mig_uuid or row.device.uuid,
        slice=_slice(scene, row),
        slice_title=row.resource,
        isolation=row.isolation,
        isolation_title=ISOLATION.get(row.isolation, ""),
        memory=memory,
        memory_bar=use_bar(str(memory), state, Use(row.memory_used, row.memory_entitled, whole)),
        compute=compute,
        compute_bar=use_bar(str(compute), state, Use(row.compute_used, row.compute_entitled, 1)),
    )


def _device_memory(scene: Scene, row: ContainerRow) -> int | None:
    mig, gpu = scene.migs.get(row.device), scene.gpus.get(row.device.uuid)
    if mig is not None:
        return mig.reading.memory.total if mig.reading.memory else None
    return gpu.reading.memory.total if gpu and gpu.reading and gpu.reading.memory else None


def _idle_for(scene: Scene, row: ContainerRow) -> Figure:
    if row.compute_used is None:
        return Figure(UNKNOWN, scene.why_compute(row))
    quiet_for = scene.idle_for(row)
    return Figure("" if quiet_for is None else duration(quiet_for))


def _slice(scene: Scene, row: ContainerRow) -> Figure:
    if row.slices is None:
        return Figure(UNKNOWN, scene.memory(row).whole.why or "what it holds here is not known")
    if row.slices == 0:
        return Figure("holds nothing")
    profile = _profile(scene, row)
    if row.isolation == "hard":
        return Figure(profile if row.slices == 1 else f"{row.slices} {TIMES} {profile}")
    share = f"{row.slices} of {_offered(scene, row)}"
    return Figure(share if profile == "whole GPU" else f"{share} of {profile}")


def _profile(scene: Scene, row: ContainerRow) -> str:
    if row.sharing == "vgpu":
        return f"vGPU {row.resource.rpartition('/')[2].replace('_', ' ').removeprefix('NVIDIA ')}"
    if not row.device.mig_uuid:
        return "whole GPU"
    mig = scene.migs.get(row.device)
    return (mig and mig.reading.profile) or "MIG device"


def _offered(scene: Scene, row: ContainerRow) -> str:
    mig, gpu = scene.migs.get(row.device), scene.gpus.get(row.device.uuid)
    counts = mig.slices if mig else gpu.slices if gpu and (answers(gpu) or gpu.foreign) else ()
    return total((count.offered for count in counts if count.resource in row.resource.split(",")), str)
