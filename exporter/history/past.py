"""The nouns of history: one stretch of time, and what was known of things in it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from exporter.metrics import CONTAINER, ENTITIES, GPU, MIG, AnyFamily, Family, Level, Number, field_name
from exporter.model import ContainerRow, Snapshot

FIELDS: Mapping[str, tuple[str, ...]] = {
    "container": (
        "memory_used_bytes",
        "memory_entitled_bytes",
        "compute_used_ratio",
        "compute_entitled_ratio",
    ),
    "gpu": (
        "memory_total_bytes",
        "memory_used_bytes",
        "utilization_ratio",
        "unattributed_memory_bytes",
        "unattributed_utilization_ratio",
        "power_watts",
        "temperature_celsius",
    ),
    "mig": ("memory_used_bytes", "unattributed_memory_bytes", "unattributed_utilization_ratio"),
}
"""What is kept of each level, by the names that the table of series gives its fields."""
ADDED: Mapping[str, frozenset[str]] = {
    "container": frozenset(FIELDS["container"]),
    "gpu": frozenset({"unattributed_memory_bytes", "unattributed_utilization_ratio"}),
    "mig": frozenset({"unattributed_memory_bytes", "unattributed_utilization_ratio"}),
}
"""What adds up to what a GPU uses, or is held of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to tell of: of one GPU, of one container or pod, or everything where nothing is named.

    ``holder`` is (namespace, pod, container), where a container "" means that of any name. No ``levels``
    means all of them.

    ``summing`` has the fields of ADDED told so that they add up to no more than their GPU uses, also where
    holders come and go within a step: each for the part of the step in which it was known, of that in which
    the GPU was.
    """

    levels: frozenset[str] = frozenset()
    uuid: str = ""
    holder: tuple[str, str, str] | None = None
    summing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One thing through the time: ``labels`` are its identity (by the names of the labels of its level).

    ``values`` has, by the names of FIELDS, one number per step, None where nothing was known.
    """

    level: Literal["container", "gpu", "mig"]
    labels: Mapping[str, str]
    values: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A stretch of time in ``count`` steps of ``step`` seconds; the first begins at Unix time ``start``.

    A value is the mean of what was known in its step (see ``Wanted.summing``). ``note`` says what a
    reader should know of it, such as why a part is missing; "" where there is nothing to say.
    """

    start: float
    step: float
    count: int
    source: Literal["memory", "prometheus"]
    tracks: Sequence[Track] = field(default_factory=tuple)
    note: str = ""


class NotKeptError(Exception):
    """So much of the past is not kept; the text says how much is."""


class PastReader(Protocol):
    """Something that can tell of the past."""

    async def read(self, *, span: float, end: float | None, points: int, wanted: Wanted) -> Past:
        """Tell of ``span`` seconds up to Unix time ``end`` (None: now) in at most ``points`` steps.

        Raises NotKeptError where that cannot be told.
        """
        ...


# Beyond this a cell would say infinity.
_MOST = 3e38


class Key(NamedTuple):
    """What a series is of: a level, and the values of its labels in their order."""

    level: Level
    values: tuple[str, ...]


def _readers(
    families: Iterable[AnyFamily], fields: Iterable[str]
) -> tuple[Callable[[Any], Number | None], ...]:
    by_name = {field_name(family): family.value for family in families if isinstance(family, Family)}
    return tuple(by_name[name] for name in fields)


# The few that a node cannot be told without stand first: there may not be room for all.
_READERS: Mapping[Level, tuple[Callable[[Any], Number | None], ...]] = {
    "gpu": _readers(GPU, FIELDS["gpu"]),
    "mig": _readers(MIG, FIELDS["mig"]),
    "container": _readers(CONTAINER, FIELDS["container"]),
}


def readings(snapshot: Snapshot) -> Iterator[tuple[Key, list[Number | None]]]:
    """Return what is known of each GPU, MIG device and container, in the order of FIELDS."""
    for level, readers in _READERS.items():
        for entity in ENTITIES[level](snapshot):
            yield Key(level, entity.values), [_finite(read(entity.row)) for read in readers]


def key_of(row: ContainerRow) -> Key:
    """Name the series of a container on a device."""
    holder, device = row.holder, row.device
    values = (holder.namespace, holder.pod, holder.container, *filter(None, device))
    return Key("container", values)


def _finite(value: Number | None) -> Number | None:
    # NaN is not between anything.
    return value if value is not None and -_MOST <= value <= _MOST else None
