"""The data of figures: use by holder, and the steps in which it is incomplete.

All lists have one value per step, None if unknown. Sums leave unknown parts out; the steps in which a part is
missing are marked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.history import Past, Track

Values = Sequence[float | None]
# Relative error of cells, which have seven digits.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A stacked quantity; fields are names of the table of series."""

    name: str
    used: str  # field of containers
    entitled: str  # field of containers
    device: str  # field of GPUs
    unattributed: str  # field of GPUs
    total: str  # field of GPUs, "" if each GPU counts as 1
    unit: str
    scale: float  # one unit, in the unit of the fields
    digits: int


MEMORY = Quantity(
    name="memory",
    used="memory_used_bytes",
    entitled="memory_entitled_bytes",
    device="memory_used_bytes",
    unattributed="unattributed_memory_bytes",
    total="memory_total_bytes",
    unit="GiB",
    scale=1 << 30,
    digits=3,
)
COMPUTE = Quantity(
    name="compute",
    used="compute_used_ratio",
    entitled="compute_entitled_ratio",
    device="utilization_ratio",
    unattributed="unattributed_utilization_ratio",
    total="",
    unit="GPUs",
    scale=1,
    digits=4,
)
QUANTITIES = (MEMORY, COMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The use of a quantity over time."""

    parts: Mapping[str, Values]  # by holder
    unattributed: Values  # use by no known container
    unassigned: Values  # use that may be by containers with unknown use
    entitled: Values
    total: Values
    gaps: Sequence[bool]  # the steps in which a device has an unknown value that it has in other steps
    partial: Sequence[bool]  # the steps in which the use may be larger than the sum of the above
    unknown: Sequence[str]  # names of holders without any known value


def stack(past: Past, quantity: Quantity, name: Callable[[Track], str]) -> Stack:
    """Return the use by holder; ``name`` returns the holder of a track."""
    tracks = {
        level: [track for track in past.tracks if track.level == level] for level in ("container", "gpu")
    }
    parts: dict[str, list[Values]] = {}
    for track in tracks["container"]:
        parts.setdefault(name(track), []).append(track.values[quantity.used])
    added = {holder: added_up(values, past.count) for holder, values in parts.items()}
    unassigned = [_unassigned(gpu, tracks["container"], quantity, past.count) for gpu in tracks["gpu"]]
    seen = [_seen(gpu, past.count) for gpu in tracks["gpu"]]
    return Stack(
        parts={holder: values for holder, values in added.items() if any_known(values)},
        unattributed=added_up([gpu.values[quantity.unattributed] for gpu in tracks["gpu"]], past.count),
        unassigned=added_up(unassigned, past.count),
        entitled=added_up([track.values[quantity.entitled] for track in tracks["container"]], past.count),
        total=_total(tracks["gpu"], quantity, seen, past.count),
        gaps=_gaps([*(gpu.values[quantity.device] for gpu in tracks["gpu"]), *seen], past.count),
        partial=_partial(tracks, quantity, past.count),
        unknown=sorted(holder for holder, values in added.items() if not any_known(values)),
    )


def added_up(lists: Iterable[Values], count: int) -> list[float | None]:
    """Return the sum of the known values at each step."""
    total: list[float | None] = [None] * count
    for values in lists:
        for index, value in enumerate(values):
            if value is not None:
                known = total[index]
                total[index] = value if known is None else known + value
    return total


def any_known(values: Values) -> bool:
    return any(value is not None for value in values)


def latest(values: Values) -> float | None:
    """Return the newest value: of the last step, or of the one before it if the last has none yet."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)


def first_known(past: Past) -> int | None:
    """Return the index of the first step with a known value."""
    lists = [values for track in past.tracks for values in track.values.values()]
    firsts = (
        next((index for index, value in enumerate(values) if value is not None), None) for values in lists
    )
    return min((index for index in firsts if index is not None), default=None)


def _unassigned(
    gpu: Track, containers: Iterable[Track], quantity: Quantity, count: int
) -> list[float | None]:
    """Return the use of a GPU without its containers' and the unattributed use; None if that is rounding."""
    own = [track.values[quantity.used] for track in containers if track.labels["uuid"] == gpu.labels["uuid"]]
    of_containers, unattributed = added_up(own, count), gpu.values[quantity.unattributed]
    rests: list[float | None] = []
    for used, part, other in zip(gpu.values[quantity.device], of_containers, unattributed, strict=True):
        rest = None if used is None else max(0.0, used - (part or 0.0) - (other or 0.0))
        is_rounding = rest is not None and other is not None and rest <= (used or 0.0) * _ROUNDING
        rests.append(None if is_rounding else rest)
    return rests


def _seen(track: Track, count: int) -> list[float | None]:
    """Return 1 for each step in which a track has a known value."""
    columns = list(track.values.values())
    return [1.0 if any(column[index] is not None for column in columns) else None for index in range(count)]


def _total(gpus: Sequence[Track], quantity: Quantity, seen: list[list[float | None]], count: int) -> Values:
    """Return the total of the devices at each step, None unless all are known."""
    lists = [gpu.values[quantity.total] for gpu in gpus] if quantity.total else seen
    lists = [values for values in lists if any_known(values)]
    gaps = _gaps(lists, count)
    return [None if gap else value for value, gap in zip(added_up(lists, count), gaps, strict=True)]


def _partial(tracks: Mapping[str, Sequence[Track]], quantity: Quantity, count: int) -> list[bool]:
    """Mark the steps in which the use of a GPU is unknown, or without GPUs, that of a container.

    A container without any known value in a step has ended or not started, and uses nothing.
    """
    if tracks["gpu"]:
        pairs = [(gpu.values[quantity.device], gpu.values[quantity.unattributed]) for gpu in tracks["gpu"]]
        return [any(used[at] is None and rest[at] is None for used, rest in pairs) for at in range(count)]
    seen = [(track.values[quantity.used], _seen(track, count)) for track in tracks["container"]]
    return [any(used[at] is None and known[at] is not None for used, known in seen) for at in range(count)]


def _gaps(lists: Iterable[Values], count: int) -> list[bool]:
    """Mark the steps in which a list has no value, of the lists that have values in other steps."""
    known = [values for values in lists if any_known(values)]
    return [any(values[index] is None for values in known) for index in range(count)]
