"""What figures are made of: the past added up by holder, and what of it is known.

All lists have one value per step, None where it is not known. A part that is not known is left out of a sum,
and the steps in which that is so are listed besides, so that nobody takes the sum for the whole.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.history.past import Past, Track

Values = Sequence[float | None]
# Cells have seven digits.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What is stacked, by the names that the table of series gives the fields."""

    name: str
    used: str
    entitled: str
    device: str
    unattributed: str
    total: str
    unit: str
    scale: float
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What the holders use, what else is used, and what it is measured against.

    ``parts`` go by name. ``unattributed`` belongs to no known container; ``untold`` is used as well, and it
    cannot be told by whom. ``gaps`` are the steps in which something was not known that is known in others,
    and ``partial`` those in which more may have been used than all of this adds up to. ``unknown`` are the
    names of those of whom nothing is known at all.
    """

    parts: Mapping[str, Values]
    unattributed: Values
    untold: Values
    entitled: Values
    total: Values
    gaps: Sequence[bool]
    partial: Sequence[bool]
    unknown: Sequence[str]


def stack(past: Past, quantity: Quantity, name: Callable[[Track], str]) -> Stack:
    """Add up what the containers use; ``name`` tells whom a track counts for."""
    tracks = {
        level: [track for track in past.tracks if track.level == level] for level in ("container", "gpu")
    }
    parts: dict[str, list[Values]] = {}
    for track in tracks["container"]:
        parts.setdefault(name(track), []).append(track.values[quantity.used])
    added = {each: added_up(values, past.count) for each, values in parts.items()}
    rests = [_rest(gpu, tracks["container"], quantity, past.count) for gpu in tracks["gpu"]]
    seen = [_seen(gpu, past.count) for gpu in tracks["gpu"]]
    devices = [gpu.values[quantity.device] for gpu in tracks["gpu"]]
    return Stack(
        parts={each: values for each, values in added.items() if any_known(values)},
        unattributed=added_up([unattributed for unattributed, _ in rests], past.count),
        untold=added_up([untold for _, untold in rests], past.count),
        entitled=added_up([track.values[quantity.entitled] for track in tracks["container"]], past.count),
        total=_total(tracks["gpu"], quantity, seen, past.count),
        gaps=_gaps([*devices, *seen], past.count),
        partial=_partial(tracks, quantity, past.count),
        unknown=sorted(each for each, values in added.items() if not any_known(values)),
    )


def added_up(lists: Iterable[Values], count: int) -> list[float | None]:
    """Add what is known, step by step."""
    total: list[float | None] = [None] * count
    for values in lists:
        for index, value in enumerate(values):
            if value is not None:
                known = total[index]
                total[index] = value if known is None else known + value
    return total


def any_known(values: Values) -> bool:
    """Whether anything of it is known."""
    return any(value is not None for value in values)


def latest(values: Values) -> float | None:
    """Return the newest value; the step that has only just begun may have none yet."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)


def first_known(past: Past) -> int | None:
    """Return the first step of which anything is known."""
    lists = [values for track in past.tracks for values in track.values.values()]
    firsts = (
        next((index for index, value in enumerate(values) if value is not None), None) for values in lists
    )
    return min((index for index in firsts if index is not None), default=None)


def _rest(
    gpu: Track, containers: Iterable[Track], quantity: Quantity, count: int
) -> tuple[list[float | None], list[float | None]]:
    """Tell what of a GPU's use belongs to no container, and what is left where that is not known."""
    own = [track.values[quantity.used] for track in containers if track.labels["uuid"] == gpu.labels["uuid"]]
    held = added_up(own, count)
    unattributed = list(gpu.values[quantity.unattributed])
    untold = [
        None if used is None else _left(used, part or 0.0, rest)
        for used, part, rest in zip(gpu.values[quantity.device], held, unattributed, strict=True)
    ]
    return unattributed, untold


def _left(used: float, held: float, unattributed: float | None) -> float | None:
    """Tell what is left of a use, None where nothing is that is not told by the rounding of the others."""
    left = max(0.0, used - held - (unattributed or 0.0))
    return left if unattributed is None or left > used * _ROUNDING else None


def _seen(gpu: Track, count: int) -> list[float | None]:
    """Give 1 for each step in which anything of a GPU was known."""
    columns = list(gpu.values.values())
    return [1.0 if any(column[index] is not None for column in columns) else None for index in range(count)]


def _total(gpus: Sequence[Track], quantity: Quantity, seen: list[list[float | None]], count: int) -> Values:
    """Add up what the devices have, where all of them are known."""
    lists = [gpu.values[quantity.total] for gpu in gpus] if quantity.total else seen
    lists = [values for values in lists if any_known(values)]
    gaps = _gaps(lists, count)
    return [None if gap else value for value, gap in zip(added_up(lists, count), gaps, strict=True)]


def _partial(tracks: Mapping[str, Sequence[Track]], quantity: Quantity, count: int) -> list[bool]:
    """Mark the steps in which a GPU does not tell its use; without any, those in which a container does not.

    A container of which nothing at all is known in a step has ended or not begun, and uses nothing.
    """
    if tracks["gpu"]:
        told = [(gpu.values[quantity.device], gpu.values[quantity.unattributed]) for gpu in tracks["gpu"]]
        return [any(used[at] is None and rest[at] is None for used, rest in told) for at in range(count)]
    there = [(track.values[quantity.used], _seen(track, count)) for track in tracks["container"]]
    return [any(used[at] is None and seen[at] is not None for used, seen in there) for at in range(count)]


def _gaps(lists: Iterable[Values], count: int) -> list[bool]:
    """Mark the steps in which something is not known that is known in others."""
    known = [values for values in lists if any_known(values)]
    return [any(values[index] is None for values in known) for index in range(count)]
