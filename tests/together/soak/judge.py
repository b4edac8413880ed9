"""Whether a process has grown: its samples after the warm-up, by how many pods it had seen.

A figure that goes up and down is as flat as a constant one; one that climbs a little each time is not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

WARM_PODS = 5_000
"""What is kept of pods that are gone, the last 4 096 of each kind, is full by then."""
MOST_GROWTH = 3_000_000
"""Bytes, of all that is resident and of what of it is in use, from the warm-up to the end."""
MOST_OBJECTS = 0.25
"""For each pod: a bug that forgets one for each makes it four times as many."""
OBJECTS_SLACK = 4_000
"""So many fewer the history has for a while after a reload of the driver: about forty series."""
MOST_MORE = 2.5
"""Of descriptors, threads and tasks: one or two may come and go."""
STRETCHES = 8
_FEWEST = 4
# Entries come and go with the pods.
_CACHE_SLACK, _CACHE_SHARE = 24, 0.05
_Of = Callable[["Sample"], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A process after a number of polls and pods; sizes in bytes, ``caches`` in entries by name."""

    poll: int
    pods: int
    resident: int
    heap: int
    blocks: int
    descriptors: int
    threads: int
    tasks: int
    caches: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """What was claimed and whether it is so: a figure after the warm-up, at the end, and what it grew by."""

    name: str
    holds: bool
    begin: str
    end: str
    grew: str


class NotEnoughError(Exception):
    """There are too few samples after the warm-up to say anything."""


def judge(samples: Sequence[Sample], full: int) -> list[Claim]:
    """Judge what was sampled once it was warm; at poll ``full`` the history was. Raises NotEnoughError.

    Of memory it is the lowest figure of each stretch: an answer takes some while it is made, and is not
    kept. Of threads and the like nothing is kept of pods that are gone: they are judged from ``full`` on.
    """
    settled = [sample for sample in samples if sample.poll >= full]
    warm = [sample for sample in settled if sample.pods >= WARM_PODS]
    if len(warm) < STRETCHES * _FEWEST:
        raise NotEnoughError(f"{len(warm)} samples after the warm-up, and {STRETCHES * _FEWEST} are needed")
    return [
        _bytes("resident memory, at its lowest", warm, lambda sample: sample.resident),
        _bytes("heap of the C library in use", warm, lambda sample: sample.heap),
        _objects(warm),
        _constant("file descriptors", settled, lambda sample: sample.descriptors),
        _constant("threads", settled, lambda sample: sample.threads),
        _constant("asyncio tasks", settled, lambda sample: sample.tasks),
        *(_cache(name, warm) for name in sorted({name for sample in warm for name in sample.caches})),
    ]


def most(samples: Sequence[Sample]) -> int:
    """Return the most bytes that were resident."""
    return max(sample.resident for sample in samples)


def _lowest(samples: Sequence[Sample], of: _Of) -> list[tuple[float, float]]:
    """Return the pods of each stretch, and the lowest figure in it."""
    return [(median(sample.pods for sample in part), min(map(of, part))) for part in _parts(samples)]


def _usual(samples: Sequence[Sample], of: _Of) -> list[tuple[float, float]]:
    """Return the pods of each stretch, and the median figure in it."""
    return [(median(sample.pods for sample in part), median(map(of, part))) for part in _parts(samples)]


def _parts(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    """Return the run in stretches of equal numbers of samples."""
    edges = [round(place * len(samples) / STRETCHES) for place in range(STRETCHES + 1)]
    return [samples[begin:end] for begin, end in pairwise(edges)]


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Return by how much a figure grows for each pod: the median slope between any two stretches of the run.

    One or two that stand out do not change it, as they would change a line of least squares.
    """
    return median(
        (there[1] - here[1]) / (there[0] - here[0])
        for place, here in enumerate(points)
        for there in points[place + 1 :]
    )


def _grown(points: Sequence[tuple[float, float]]) -> float:
    return _slope(points) * (points[-1][0] - points[0][0])


def _bytes(name: str, samples: Sequence[Sample], of: _Of) -> Claim:
    points = _lowest(samples, of)
    begin, end, slope = points[0][1], points[-1][1], _slope(points)
    grew = f"{(end - begin) / 1e6:+.1f} MB; {slope:+.1f} kB for 1 000 pods"
    holds = max(end - begin, _grown(points)) <= MOST_GROWTH
    return Claim(name, holds, f"{begin / 1e6:.1f} MB", f"{end / 1e6:.1f} MB", grew)


def _objects(samples: Sequence[Sample]) -> Claim:
    points = _lowest(samples, lambda sample: sample.blocks)
    begin, end, slope = points[0][1], points[-1][1], _slope(points)
    grew = f"{end - begin:+,.0f}; {slope * 1000:+,.0f} for 1 000 pods"
    pods = points[-1][0] - points[0][0]
    holds = slope * pods <= max(MOST_OBJECTS * pods, OBJECTS_SLACK)
    return Claim("objects of Python", holds, f"{begin:,.0f}", f"{end:,.0f}", grew)


def _constant(name: str, samples: Sequence[Sample], of: _Of) -> Claim:
    points = _usual(samples, of)
    more = _grown(points)
    return Claim(name, more <= MOST_MORE, f"{points[0][1]:g}", f"{points[-1][1]:g}", f"{more:+.1f}")


def _cache(name: str, samples: Sequence[Sample]) -> Claim:
    points = _usual(samples, lambda sample: sample.caches.get(name, 0))
    begin, end = points[0][1], points[-1][1]
    more = _grown(points)
    holds = more <= _CACHE_SLACK + _CACHE_SHARE * begin
    return Claim(f"entries of {name}", holds, f"{begin:g}", f"{end:g}", f"{more:+.1f}")
