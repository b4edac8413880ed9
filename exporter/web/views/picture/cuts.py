"""Where the parts of a GPU in MIG mode lie on it, and what lies free between them.

A GPU instance takes neighbouring memory slices of its GPU, and as many compute slices at most. A GPU of seven
compute slices has eight of memory, so that the last one can only be had together with those before it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from exporter.attribution.placements import Span, free_spans, slices_of_memory
from exporter.model import DeviceKey, GpuReading, MigReading, MigRow

# The page has columns for GPUs of so many memory slices; others are drawn by their compute slices.
GRIDS = frozenset({2, 4, 8})


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Memory slices that lie beside each other: those of a GPU instance, or free ones without ``devices``.

    ``slices`` are the compute slices that the instance has, or that can be cut of what is free.
    """

    start: int
    size: int
    slices: int | None
    devices: tuple[DeviceKey, ...] = ()


class Cut(NamedTuple):
    """A GPU of ``size`` memory slices in its parts, from the first slice to the last.

    ``stranded`` compute slices are in no instance, and no memory is left that they could be cut with.
    """

    size: int
    parts: tuple[Part, ...]
    stranded: int | None


def cut(reading: GpuReading, rows: Sequence[MigRow]) -> Cut | None:
    """Lay out a GPU with these MIG devices; None where the driver does not tell where each of them lies."""
    if not reading.mig_slices or not rows:
        return None
    size = slices_of_memory(reading.mig_slices)
    instances = list(_instances(rows))
    told = [part for part in instances if part is not None]
    gaps = free_spans([Span(part.start, part.size) for part in told], size)
    if size not in GRIDS or len(told) < len(instances) or gaps is None:
        return None
    free = [_free(gap, reading.mig_slices) for gap in gaps]
    parts = sorted((*told, *free), key=lambda part: part.start)
    return Cut(size, tuple(parts), _stranded(reading.mig_slices, told, free))


def _instances(rows: Sequence[MigRow]) -> Iterator[Part | None]:
    """Give the GPU instances, None for one of which the place is not told."""
    ordered = sorted(rows, key=lambda row: (row.reading.gi, row.reading.ci, row.device))
    for _, same in groupby(ordered, key=lambda row: row.reading.gi):
        members = tuple(same)
        yield _instance(members[0].reading, tuple(row.device for row in members))


def _instance(reading: MigReading, devices: tuple[DeviceKey, ...]) -> Part | None:
    if reading.gi_start is None or not reading.gi_size:
        return None
    return Part(start=reading.gi_start, size=reading.gi_size, slices=reading.instance_slices, devices=devices)


def _free(gap: Span, compute_slices: int) -> Part:
    """Give what lies free, with the compute slices that can be cut of it."""
    slices = max(min(gap.start + gap.size, compute_slices) - gap.start, 0)
    return Part(start=gap.start, size=gap.size, slices=slices)


def _stranded(compute_slices: int, told: Collection[Part], free: Iterable[Part]) -> int | None:
    used = [part.slices for part in told if part.slices is not None]
    if len(used) < len(told):
        return None
    return max(compute_slices - sum(used) - sum(part.slices or 0 for part in free), 0)
