"""The cells of a GPU with MIG devices or partitions, and of its unpartitioned rest."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from exporter.model import DeviceKey, GpuReading, GpuRow, MigRow
from exporter.model.mig_geometry import Span, compute_in, free_spans, slices_of_memory
from exporter.web.node.pages.picture.cells import (
    Amounts,
    Cell,
    DrawnDevice,
    Stretch,
    empty_box,
    held_box,
    memory_amounts,
    percent,
)
from exporter.web.node.pages.picture.pool_cells import pool
from exporter.web.node.pages.scene import Scene, is_amd, part_name
from exporter.wording import plural

# The page has columns for GPUs with these numbers of memory slices; others are drawn by compute slices.
GRIDS = frozenset({2, 4, 8})
_MIG_SILENT = "compute inside MIG is not measured here"
_PARTITION_SILENT = "compute inside partitions is not measured here"
_NOT_CUT = "not partitioned"
_NO_COMPUTE = "no compute slice left for it"
_NO_MEMORY = "no memory slice left for it"
_UNPLACED = "not known whether it is free: the driver does not report the placement of the MIG devices"
_PERHAPS_CUT = "not known: the list of parts is incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpan:
    """Adjacent memory slices: those of a GPU instance, or free ones."""

    start: int
    size: int
    slices: int | None  # compute slices of the instance, or that fit into the free part
    devices: tuple[DeviceKey, ...] = ()  # () if the part is free


class Partitioning(NamedTuple):
    """The layout of a GPU."""

    size: int  # number of memory slices
    parts: tuple[InstanceSpan, ...]  # from the first slice to the last
    stranded: int | None  # free compute slices without memory


def partitioning_of(reading: GpuReading, rows: Sequence[MigRow]) -> Partitioning | None:
    """Return the layout of a GPU with these MIG devices; None if a placement is not reported."""
    if not reading.mig_slices or not rows:
        return None
    size = slices_of_memory(reading.mig_slices)
    instances = list(_instances(rows))
    placed = [part for part in instances if part is not None]
    gaps = free_spans([Span(part.start, part.size) for part in placed], size)
    if size not in GRIDS or len(placed) < len(instances) or gaps is None:
        return None
    free = [
        InstanceSpan(start=gap.start, size=gap.size, slices=compute_in(gap, reading.mig_slices))
        for gap in gaps
    ]
    parts = sorted((*placed, *free), key=lambda part: part.start)
    return Partitioning(size, tuple(parts), _stranded(reading.mig_slices, placed, free))


def _instances(rows: Sequence[MigRow]) -> Iterator[InstanceSpan | None]:
    """Yield the GPU instances, None for one without a reported placement."""
    ordered = sorted(rows, key=lambda row: (row.reading.gi, row.reading.ci, row.device))
    for _, group in groupby(ordered, key=lambda row: row.reading.gi):
        members = tuple(group)
        reading = members[0].reading
        if reading.gi_start is None or not reading.gi_size:
            yield None
        else:
            devices = tuple(row.device for row in members)
            yield InstanceSpan(
                start=reading.gi_start, size=reading.gi_size, slices=reading.instance_slices, devices=devices
            )


def _stranded(
    compute_slices: int, placed: Collection[InstanceSpan], free: Iterable[InstanceSpan]
) -> int | None:
    used = [part.slices for part in placed if part.slices is not None]
    if len(used) < len(placed):
        return None
    return max(compute_slices - sum(used) - sum(part.slices or 0 for part in free), 0)


class Picture(NamedTuple):
    """What is drawn of a GPU."""

    cells: tuple[Cell, ...]
    stretches: tuple[Stretch, ...] = ()  # the same cells by placement, () if that is not reported
    size: int = 0  # number of memory slices under the stretches
    stranded: str = ""  # compute slices without memory, as text


def device_cell(scene: Scene, device: DrawnDevice) -> Cell:
    """Return the cell of a device: a box if only one container can hold it, else a pool."""
    rows = scene.rows(device.key)
    if device.pooled or len(rows) > 1:
        return pool(scene, device, rows)
    return held_box(scene, device, rows[0]) if rows else empty_box(scene, device)


def mig_picture(scene: Scene, gpu: GpuRow, reading: GpuReading) -> Picture:
    """Return the MIG devices or partitions of a GPU and its free parts.

    By placement if that is reported, else by compute slices in stable order.
    """
    keys = scene.devices_of(gpu.identity.uuid)
    listed = [scene.migs[key] for key in keys if key in scene.migs]
    layout = partitioning_of(reading, listed) if len(listed) == len(keys) else None
    if layout is not None:
        return _placed_picture(scene, gpu, reading, layout)
    cells = [_part_cell(scene, gpu, reading, key, len(keys)) for key in keys]
    slices = [scene.migs[key].reading.compute_slices if key in scene.migs else None for key in keys]
    return Picture((*cells, *_uncut(gpu, reading, slices)))


def _placed_picture(scene: Scene, gpu: GpuRow, reading: GpuReading, layout: Partitioning) -> Picture:
    stretches = tuple(
        Stretch(size=part.size, cells=tuple(_stretch_cells(scene, gpu, reading, part, layout.size)))
        for part in layout.parts
    )
    cells = tuple(cell for stretch in stretches for cell in stretch.cells)
    stranded = layout.stranded if reading.mig_complete else None
    text = f"{plural(stranded, 'compute slice')} left without memory" if stranded else ""
    return Picture(cells, stretches, layout.size, text)


def _stretch_cells(
    scene: Scene, gpu: GpuRow, reading: GpuReading, part: InstanceSpan, size: int
) -> Iterator[Cell]:
    if not part.devices:
        yield _gap(gpu, reading, part, size)
        return
    rows = [scene.migs[key] for key in part.devices]
    sizes = [row.reading.compute_slices for row in rows]
    known = [slices for slices in sizes if slices is not None]
    whole = part.slices if part.slices and len(known) == len(sizes) else None
    for row in rows:
        inside = (row.reading.compute_slices or 0) / whole if whole else 1 / len(rows)
        yield device_cell(scene, _mig_device(gpu, reading, row, part.size / size * min(inside, 1.0)))
    left = whole - sum(known) if whole else 0
    if whole and left > 0:
        yield _free_cell(reading, f"{left} of {whole} slices free", "", part.size / size * left / whole)


def _gap(gpu: GpuRow, reading: GpuReading, part: InstanceSpan, size: int) -> Cell:
    last = part.start + part.size - 1
    where = f"memory slice {last}" if part.size == 1 else f"memory slices {part.start} to {last}"
    title = f"{where} of {gpu.identity.uuid}"
    share = part.size / size
    if not part.slices:
        return _free_cell(reading, "memory only", title, share, _NO_COMPUTE)
    return _free_cell(reading, f"{part.slices} of {reading.mig_slices} slices free", title, share)


def _free_cell(reading: GpuReading, caption: str, title: str, share: float, note: str = _NOT_CUT) -> Cell:
    """Return the cell of an unpartitioned part; unknown if the list of parts is incomplete."""
    known = reading.mig_complete
    return Cell(
        caption=caption if known else "rest of the GPU",
        title=title,
        width=percent(share),
        look="uncut" if known else "unknown",
        note=note if known else _PERHAPS_CUT,
    )


def _part_cell(scene: Scene, gpu: GpuRow, reading: GpuReading, key: DeviceKey, devices: int) -> Cell:
    row = scene.migs.get(key)
    if row is not None:
        share = _compute_share(reading, row) or 1 / devices
        return device_cell(scene, _mig_device(gpu, reading, row, share))
    return Cell(
        caption=part_name(key),
        title=key.mig_uuid,
        width=percent(1 / devices),
        look="missing",
        note="not listed by the driver",
        holder=scene.rows(key)[0].holder,
        state="unknown",
    )


def _compute_share(reading: GpuReading, row: MigRow) -> float | None:
    slices, of = row.reading.compute_slices, reading.mig_slices
    return slices / of if slices and of else None


def _mig_device(gpu: GpuRow, reading: GpuReading, row: MigRow, share: float) -> DrawnDevice:
    """Return a MIG device or partition, to be drawn with this part of the GPU's width."""
    offered = sum(count.offered or 0 for count in row.slices)
    return DrawnDevice(
        key=row.device,
        caption=row.reading.profile or part_name(row.device),
        share=share,
        slices=row.slices,
        replicated=offered > 1,
        pooled=offered > 1,
        holders_known=gpu.holders is not None,
        memory=memory_amounts(row.reading.memory, row.unattributed_memory),
        compute=Amounts(_compute_share(reading, row), row.compute_used, row.unattributed_utilization),
        why_compute=_PARTITION_SILENT if is_amd(gpu) else _MIG_SILENT,
    )


def _uncut(gpu: GpuRow, reading: GpuReading, sizes: Sequence[int | None]) -> Iterator[Cell]:
    """Yield the cell of the unpartitioned compute slices, if placements are not reported."""
    known = [slices for slices in sizes if slices is not None]
    whole = reading.mig_slices
    if len(known) < len(sizes) or (sizes and whole is None):
        return
    left = (whole or 1) - sum(known)
    if left <= 0:
        return
    free = gpu.mig_slices_free if sizes and reading.mig_complete else left
    caption, note = "whole GPU", _UNPLACED
    if sizes:
        caption = f"{left} of {whole} slices {'free' if free else 'left'}"
    if free:
        note = _NOT_CUT
    elif free == 0:
        note = _NO_MEMORY
    yield _free_cell(reading, caption, gpu.identity.uuid, left / (whole or 1), note)
