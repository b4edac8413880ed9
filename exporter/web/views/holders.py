"""The table of holders: one row per container and device, in the order of the snapshot."""

from dataclasses import dataclass
from hashlib import blake2b

from exporter.formats_words import TIMES, UNKNOWN, duration, plural
from exporter.model import ContainerRef, ContainerRow
from exporter.states import STATE_WORDS
from exporter.web.views.bars import Bar, Use, use_bar
from exporter.web.views.scene import Figure, Pair, Scene, answers, number_of
from exporter.web.views.words import ISOLATION, is_of_one_kind, isolation_word

_WHOLE = "whole GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderView:
    """A row of the table; ``id`` is that of its element.

    ``gpu`` is the number of the GPU, "" where the driver does not list it.
    """

    id: str
    holder: ContainerRef
    state: str
    state_word: str
    why_state: str
    idle_for: Figure
    gpu: str
    gpu_uuid: str
    uuid: str
    slice: Figure
    slice_title: str
    isolation: str
    isolation_title: str
    memory: Pair
    memory_bar: Bar
    compute: Pair
    compute_bar: Bar


def row_id(row: ContainerRow) -> str:
    """Name the element of a row: the same for as long as the container has the device."""
    ref = row.holder
    name = "\0".join((ref.namespace, ref.pod, ref.container, *row.device))
    return f"h-{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"


def holder_views(scene: Scene) -> list[HolderView]:
    """Make the rows of the table."""
    return [_view(scene, row) for row in scene.snapshot.containers]


def _view(scene: Scene, row: ContainerRow) -> HolderView:
    state = scene.state(row)
    gpu = scene.gpus.get(row.device.uuid)
    memory, compute = scene.memory(row), scene.compute(row)
    whole = _device_memory(scene, row)
    return HolderView(
        id=row_id(row),
        holder=row.holder,
        state=state,
        state_word=STATE_WORDS[state],
        why_state=scene.why_compute(row) if state == "unknown" else "",
        idle_for=_idle_for(scene, row),
        gpu="" if gpu is None else number_of(gpu),
        gpu_uuid=row.device.uuid,
        uuid=row.device.mig_uuid or row.device.uuid,
        slice=_slice(scene, row),
        slice_title=row.resource,
        isolation=isolation_word(row.isolation),
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
    mig, gpu = scene.migs.get(row.device), scene.gpus.get(row.device.uuid)
    counts = mig.slices if mig else gpu.slices if gpu and (answers(gpu) or gpu.foreign) else ()
    return next((count.offered for count in counts if count.resource == row.resource), None)
