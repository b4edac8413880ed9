"""What a snapshot says of the fields that are kept, read as the table of series reads it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from exporter.history.past import FIELDS
from exporter.metrics import CONTAINER, ENTITIES, GPU, MIG, AnyFamily, Family, Level, Number, field_name
from exporter.model import ContainerRow, Snapshot

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
    """Give what is known of each GPU, MIG device and container, in the order of FIELDS."""
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
