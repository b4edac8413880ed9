"""Placement of GPU instances on the memory slices of a GPU, and the free slices between them.

A new GPU instance needs adjacent memory slices.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from exporter.model import GpuReading, MigReading, total
from exporter.model.mig_profiles import MigProfiles


class Span(NamedTuple):
    """Adjacent memory slices: ``size`` of them, from the slice ``start`` on."""

    start: int
    size: int


class MemorySlices(NamedTuple):
    """Numbers of memory slices of a GPU; None is unknown."""

    used: int | None = None
    free: int | None = None
    adjacent: int | None = None  # length of the longest free span


def memory_slices(gpu: GpuReading) -> MemorySlices:
    """Return the memory slices of a GPU in MIG mode, if the placement of all its instances is known."""
    if not gpu.mig_enabled or gpu.mig is None or not gpu.mig_complete or not gpu.up or not gpu.mig_slices:
        return MemorySlices()
    free, total = _free(gpu), slices_of_memory(gpu.mig_slices)
    if free is None:
        return MemorySlices()
    left = sum(span.size for span in free)
    return MemorySlices(total - left, left, max((span.size for span in free), default=0))


def free_compute(gpu: GpuReading, used: int | None) -> int | None:
    """Return the compute slices of a GPU in MIG mode that new instances can get; None if unknown.

    ``used``: those of its instances. A compute slice is free if it has a free memory slice: instances with
    more memory than compute take the memory of others, and the last memory slice has no compute slice.
    """
    whole = gpu.mig_slices
    if used is None or whole is None or not gpu.mig_complete:
        return None
    left = max(whole - used, 0)
    free = _free(gpu) if left else ()
    if free is not None:
        return min(left, sum(compute_in(span, whole) for span in free))
    # Without placements: as if each instance lay where it takes the least, and the most, from others.
    instances = {mig.gi: mig for mig in gpu.mig or ()}.values()
    taken = total([mig.memory_slices for mig in instances])
    if taken is None:
        return None
    if taken >= slices_of_memory(whole):
        return 0
    lean = all((mig.memory_slices or 0) <= (mig.instance_slices or 0) for mig in instances)
    return left if lean else None


def compute_in(span: Span, compute_slices: int) -> int:
    """Return the compute slices that fit into a free span of a GPU with ``compute_slices``."""
    return max(min(span.start + span.size, compute_slices) - span.start, 0)


def compute_part(gpu: GpuReading, mig: MigReading) -> float | None:
    """Return a MIG device's part of the GPU's compute slices, None if unknown."""
    if mig.compute_slices is None or not gpu.mig_slices:
        return None
    return mig.compute_slices / gpu.mig_slices


def free_beside(gpu: GpuReading, mig: MigReading) -> int | None:
    """Return the free memory slices next to those of a MIG device; None if placements are unknown."""
    slices = memory_slices(gpu)
    if slices.free is None or mig.gi_start is None or not mig.gi_size:
        return None
    start, end = mig.gi_start, mig.gi_start + mig.gi_size
    return sum(span.size for span in _free(gpu) or () if end == span.start or start == span.start + span.size)


def _free(gpu: GpuReading) -> tuple[Span, ...] | None:
    places = {mig.gi: (mig.gi_start, mig.gi_size) for mig in gpu.mig or ()}
    used = [Span(start, size) for start, size in places.values() if start is not None and size]
    return free_spans(used, slices_of_memory(gpu.mig_slices or 1)) if len(used) == len(places) else None


def slices_of_memory(compute_slices: int) -> int:
    """Return the number of memory slices of a whole GPU: the next power of two, as memory is halved."""
    return 1 << (compute_slices - 1).bit_length()


def free_spans(used: Iterable[Span], size: int) -> tuple[Span, ...] | None:
    """Return the free spans of ``size`` slices, in order; None if used spans overlap or exceed the size."""
    ordered = [Span(0, 0), *sorted(used), Span(size, 0)]
    gaps = [
        Span(one.start + one.size, other.start - one.start - one.size) for one, other in pairwise(ordered)
    ]
    if any(gap.size < 0 for gap in gaps):
        return None
    return tuple(gap for gap in gaps if gap.size)


def profiles_of_models(gpus: Iterable[GpuReading]) -> dict[str, MigProfiles]:
    """Return the MIG profiles by GPU model: those of the first GPU whose driver reports them, if any does."""
    known = [(gpu.identity.model, gpu.mig_profiles) for gpu in gpus if gpu.mig_profiles is not None]
    profiles: dict[str, MigProfiles] = {}
    for model, of_gpu in sorted(known, key=lambda entry: entry[1].source == "table"):
        profiles.setdefault(model, of_gpu)
    return profiles
