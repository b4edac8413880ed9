"""History: readings of the last hours as records: ranges and series."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from exporter.metrics import CONTAINER, ENTITIES, GPU, MIG, AnyFamily, Family, Level, Number, field_name
from exporter.model import ContainerRow, Snapshot

# The fields kept for each level, by their names in the table of series.
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
# The fields that add up to the use of a GPU, or to what is held of it.
ADDED: Mapping[str, frozenset[str]] = {
    "container": frozenset(FIELDS["container"]),
    "gpu": frozenset({"unattributed_memory_bytes", "unattributed_utilization_ratio"}),
    "mig": frozenset({"unattributed_memory_bytes", "unattributed_utilization_ratio"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which series to read; all by default.

    With ``summing``, the fields of ADDED are divided by the time in which their GPU was known, so that they
    add up to no more than the GPU uses even if holders start and end within a step.
    """

    levels: frozenset[str] = frozenset()  # empty for all levels
    uuid: str = ""  # of one GPU, "" for all
    holder: tuple[str, str, str] | None = None  # namespace, pod, container; container "" is any of the pod
    summing: bool = False

    def has(self, level: str, labels: Mapping[str, str]) -> bool:
        """Return whether the series of a level with these labels is wanted; a holder has containers only."""
        if (self.levels and level not in self.levels) or self.uuid not in ("", labels["uuid"]):
            return False
        if self.holder is None:
            return True
        namespace, pod, container = self.holder
        return (
            level == "container"
            and (labels["namespace"], labels["pod"]) == (namespace, pod)
            and container in ("", labels["container"])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request for history."""

    span: float  # seconds
    end: float | None = None  # Unix time, None for now
    points: int  # maximum number of steps
    wanted: Wanted = field(default_factory=Wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One GPU, MIG device or container over time."""

    level: Literal["container", "gpu", "mig"]
    labels: Mapping[str, str]  # its identity, by the label names of its level
    values: Mapping[str, Sequence[float | None]]  # by field: one value per step, None if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A range of time in steps. Each value is the mean of the known values in its step (see ``Wanted``)."""

    start: float  # Unix time at which the first step begins
    step: float  # seconds
    count: int  # number of steps
    tracks: Collection[Track] = ()
    note: str = ""  # for readers, such as why a part is missing

    @property
    def end(self) -> float:
        """Unix time at which the last step ends."""
        return self.start + self.count * self.step


class NotKeptError(Exception):
    """The range reaches back further than history is kept; the message has the limit."""


# A larger number would be infinity in a cell of 32 bits.
_MOST = 3e38


class SeriesKey(NamedTuple):
    """The identity of a series."""

    level: Level
    values: tuple[str, ...]  # of its IDENTITY_LABELS, in their order


def key_of(row: ContainerRow) -> SeriesKey:
    """Return the key of a container on a device."""
    holder, device = row.holder, row.device
    return SeriesKey("container", (*holder, *device))


def _readers(
    families: Iterable[AnyFamily], fields: Iterable[str]
) -> tuple[Callable[[Any], Number | None], ...]:
    by_name = {field_name(family): family.value for family in families if isinstance(family, Family)}
    return tuple(by_name[name] for name in fields)


# GPUs and MIG devices come first: they are few, needed everywhere, and memory may be too small for all rows.
_KEYS: Mapping[Level, Callable[[Any], SeriesKey]] = {
    "gpu": lambda row: SeriesKey("gpu", (row.identity.uuid,)),
    "mig": lambda row: SeriesKey("mig", row.device),
    "container": key_of,
}
_READERS: Mapping[Level, tuple[Callable[[Any], Number | None], ...]] = {
    "gpu": _readers(GPU, FIELDS["gpu"]),
    "mig": _readers(MIG, FIELDS["mig"]),
    "container": _readers(CONTAINER, FIELDS["container"]),
}


def readings(snapshot: Snapshot) -> Iterator[tuple[SeriesKey, list[Number | None]]]:
    """Yield the key and the values of each GPU, MIG device and container, in the order of FIELDS."""
    for level, readers in _READERS.items():
        for entity in ENTITIES[level](snapshot):
            yield _KEYS[level](entity.row), [_finite(read(entity.row)) for read in readers]


def _finite(value: Number | None) -> Number | None:
    # This excludes NaN too: all comparisons with it are false.
    return value if value is not None and -_MOST <= value <= _MOST else None
