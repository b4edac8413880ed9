"""Where GPU instances lie on the memory slices of their GPU, and what lies free between them.

A new GPU instance takes neighbouring memory slices, so that free ones apart from each other cannot be had
as one.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from exporter.model import GpuReading


class Span(NamedTuple):
    """So many memory slices beside each other, from the slice ``start`` on."""

    start: int
    size: int


class MemorySlices(NamedTuple):
    """Memory slices of a GPU; ``adjacent`` are those of the longest free span. None is not known."""

    used: int | None = None
    free: int | None = None
    adjacent: int | None = None


NOT_TOLD = MemorySlices()


def memory_slices(gpu: GpuReading) -> MemorySlices:
    """Count the memory slices of a GPU in MIG mode, where the driver tells the place of every instance."""
    if not gpu.mig_enabled or gpu.mig is None or not gpu.mig_complete or not gpu.up or not gpu.mig_slices:
        return NOT_TOLD
    places = {mig.gi: (mig.gi_start, mig.gi_size) for mig in gpu.mig}
    told = [Span(start, size) for start, size in places.values() if start is not None and size]
    size = slices_of_memory(gpu.mig_slices)
    free = free_spans(told, size) if len(told) == len(places) else None
    if free is None:
        return NOT_TOLD
    left = sum(span.size for span in free)
    return MemorySlices(size - left, left, max((span.size for span in free), default=0))


def slices_of_memory(compute_slices: int) -> int:
    """Return how many memory slices a GPU of so many compute slices has: memory is always halved."""
    return 1 << (compute_slices - 1).bit_length()


def free_spans(taken: Iterable[Span], size: int) -> tuple[Span, ...] | None:
    """Return what lies free on ``size`` slices, in order; None where what is taken cannot all be true."""
    ordered = [Span(0, 0), *sorted(taken), Span(size, 0)]
    between = [
        Span(one.start + one.size, other.start - one.start - one.size) for one, other in pairwise(ordered)
    ]
    if any(span.size < 0 for span in between):
        return None
    return tuple(span for span in between if span.size)
