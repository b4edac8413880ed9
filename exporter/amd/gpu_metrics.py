"""Decodes ``gpu_metrics``, the binary table of the power firmware.

Its first four bytes are its size, format and content version. Layouts are those of ``kgd_pp_interface.h`` of
the kernel under the ABI of 64-bit machines; a table of another version or size is not read. Version 1.9
describes itself. The kernel fills the table with ones first, so a field of all ones is unknown.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model.bounds import ALL_ONES, CELSIUS, COUNT, MILLIJOULES, PERCENT, WATTS, Bound, bounded

ATTRIBUTES_HEADER = struct.Struct("<HBBi")
ENTRY = struct.Struct("<Q")
ID_SHIFT, TYPE_SHIFT, ID_MASK, TYPE_MASK, COUNT_MASK = 10, 20, 0x3FF, 0xF, 0x3FF
# Formats of ``struct`` by the kernel's number of a type.
TYPES = "BbHhIiQq"

AttributeValues = tuple[int | None, ...]
TABLE_HEADER = struct.Struct("<HBB")
U16, U32, U64 = "H", "I", "Q"
# Maximum of compute dies of a partition, and of partitions of a GPU.
MOST_DIES, MOST_PARTITIONS = 8, 8
ENERGY_UNITS_PER_JOULE = 1 << 16
# What the fields of Metrics can be.
BOUNDS: Mapping[str, Bound] = {
    "activity": PERCENT,
    "memory_activity": PERCENT,
    "edge": CELSIUS,
    "hotspot": CELSIUS,
    "memory": CELSIUS,
    "watts": WATTS,
    "energy": Bound(0, MILLIJOULES.highest // 1000 * ENERGY_UNITS_PER_JOULE),
    "pcie_replays": COUNT,
}


@dataclass(frozen=True, slots=True)
class PartitionsLayout:
    """Layout of the partitions in a table, in bytes."""

    count: int  # offset of their number
    first: int  # offset of the first one
    size: int  # size of each


class TableLayout(NamedTuple):
    """Layout of one version of the table."""

    size: int  # bytes
    fields: Mapping[str, tuple[int, str]]  # offset and format by field of Metrics
    partitions: PartitionsLayout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The values of a table; None is unknown."""

    # Percent.
    activity: int | None = None
    memory_activity: int | None = None
    # Degrees Celsius.
    edge: int | None = None
    hotspot: int | None = None
    memory: int | None = None
    watts: int | None = None
    # Since the driver was loaded, in 2^-16 joules if the unit is known.
    energy: int | None = None
    pcie_replays: int | None = None
    partitions: tuple[int | None, ...] = ()  # activity of each partition in percent
    # Activity of each compute die in percent, if the table has dies instead of partitions.
    dies: tuple[int, ...] = ()
    energy_unit_known: bool = False  # whether this version defines the unit of energy
    impossible: bool = False  # whether the table has a value that cannot be

    def partition_activity(self, partitions: int | None) -> tuple[int | None, ...]:
        """Return the activity of ``partitions`` partitions in percent; () if the table has other ones."""
        if not self.dies or not partitions or len(self.dies) % partitions:
            return self.partitions if len(self.partitions) == partitions else ()
        size = len(self.dies) // partitions
        parts = (self.dies[first : first + size] for first in range(0, len(self.dies), size))
        return tuple(_mean(part) for part in parts)

    @property
    def energy_millijoules(self) -> int | None:
        """Energy in millijoules; None for 0, as the second GPU of a board is metered with the first."""
        return self.energy * 1000 // ENERGY_UNITS_PER_JOULE if self.energy else None


# Versions 1.1 to 1.3 are equal up to the last of these fields.
_BEFORE_MI300: Mapping[str, tuple[int, str]] = {
    "edge": (4, U16),
    "hotspot": (6, U16),
    "memory": (8, U16),
    "activity": (16, U16),
    "memory_activity": (18, U16),
    "watts": (22, U16),
    "energy": (24, U64),
}


def _mi300(energy: int, pcie_replays: int) -> Mapping[str, tuple[int, str]]:
    """Return the fields of a version for MI300 and later, of which two offsets differ between versions."""
    return {
        "hotspot": (4, U16),
        "memory": (6, U16),
        "watts": (10, U16),
        "activity": (12, U16),
        "memory_activity": (14, U16),
        "energy": (energy, U64),
        "pcie_replays": (pcie_replays, U64),
    }


LAYOUTS: Mapping[tuple[int, int], TableLayout] = {
    (1, 1): TableLayout(96, _BEFORE_MI300),
    (1, 2): TableLayout(104, _BEFORE_MI300),
    (1, 3): TableLayout(120, _BEFORE_MI300),
    (1, 4): TableLayout(288, _mi300(energy=24, pcie_replays=88)),
    (1, 5): TableLayout(328, _mi300(energy=56, pcie_replays=120)),
    (1, 6): TableLayout(1664, _mi300(energy=16, pcie_replays=104), PartitionsLayout(306, 312, 168)),
    (1, 7): TableLayout(2208, _mi300(energy=24, pcie_replays=112), PartitionsLayout(338, 344, 232)),
    (1, 8): TableLayout(3872, _mi300(energy=24, pcie_replays=112), PartitionsLayout(338, 344, 440)),
}
_FIRST_WITH_ENERGY_UNIT = (1, 4)
_OF_PROCESSORS = (2, 3)
# The first version that is a list of attributes, with the number of each that is read.
_SELF_DESCRIBING = (1, 9)
_ATTRIBUTES: Mapping[str, int] = {
    "hotspot": 0,
    "memory": 1,
    "watts": 3,
    "activity": 4,
    "memory_activity": 5,
    "energy": 7,
    "pcie_replays": 25,
}
_DIES_BUSY = 40
_BUSY = struct.Struct(f"<{MOST_DIES}{U32}")


def is_of_processor(table: bytes | None) -> bool:
    """Return whether a table has a format of integrated graphics."""
    return (
        table is not None
        and len(table) >= TABLE_HEADER.size
        and TABLE_HEADER.unpack_from(table)[1] in _OF_PROCESSORS
    )


def parse(table: bytes | None) -> Metrics:
    """Return the values of a table; all unknown for an unknown version, or a truncated table."""
    if table is None or len(table) < TABLE_HEADER.size:
        return Metrics()
    size, *version = TABLE_HEADER.unpack_from(table)
    if tuple(version) == _SELF_DESCRIBING:
        return _self_describing(table)
    layout = LAYOUTS.get((version[0], version[1]))
    if layout is None or size != layout.size or len(table) < size:
        return Metrics()
    values, impossible = _believed({name: _value(table, *place) for name, place in layout.fields.items()})
    partitions, busy_impossible = _partitions(table, layout.partitions)
    return Metrics(
        **values,
        partitions=partitions,
        dies=(),
        energy_unit_known=tuple(version) >= _FIRST_WITH_ENERGY_UNIT,
        impossible=impossible or busy_impossible,
    )


def _self_describing(table: bytes) -> Metrics:
    attributes = dict(_attributes(table))
    values, impossible = _believed(
        {name: next(iter(attributes.get(number, ())), None) for name, number in _ATTRIBUTES.items()}
    )
    slots = attributes.get(_DIES_BUSY, ())
    dies = [value for value in slots if value is not None]
    # Unused slots are last; with a gap between dies, their numbers would be unknown.
    in_order = dies == list(slots[: len(dies)])
    dies_impossible = not all(map(PERCENT.has, dies))
    return Metrics(
        **values,
        partitions=(),
        dies=tuple(dies) if in_order and not dies_impossible else (),
        energy_unit_known=True,
        impossible=impossible or dies_impossible,
    )


def _attributes(table: bytes) -> Iterator[tuple[int, AttributeValues]]:
    """Yield number and values of every attribute; None for an unknown value.

    Ends at an attribute of an unknown type, or beyond the table, as the size of the rest is then unknown.
    """
    if len(table) < ATTRIBUTES_HEADER.size:
        return
    size, _, _, count = ATTRIBUTES_HEADER.unpack_from(table)
    place, end = ATTRIBUTES_HEADER.size, min(size, len(table))
    for _ in range(count):
        if place + ENTRY.size > end:
            return
        (entry,) = ENTRY.unpack_from(table, place)
        number = entry >> TYPE_SHIFT & TYPE_MASK
        if number >= len(TYPES):
            return
        kind = TYPES[number]
        layout = struct.Struct(f"<{entry & COUNT_MASK}{kind}")
        place += ENTRY.size + layout.size
        if place > end:
            return
        unknown = (1 << 8 * struct.calcsize(f"<{kind}")) - 1 if kind.isupper() else -1
        values = layout.unpack_from(table, place - layout.size)
        yield entry >> ID_SHIFT & ID_MASK, tuple(None if value == unknown else value for value in values)


def _believed(values: Mapping[str, int | None]) -> tuple[dict[str, int | None], bool]:
    """Return the values without impossible ones, and whether there were any."""
    checked = {name: bounded(value, BOUNDS[name]) for name, value in values.items()}
    return {name: value for name, (value, _) in checked.items()}, any(bad for _, bad in checked.values())


def _value(table: bytes, offset: int, kind: str) -> int | None:
    layout = struct.Struct(f"<{kind}")
    value: int = layout.unpack_from(table, offset)[0]
    return None if value == (1 << 8 * layout.size) - 1 else value


def _partitions(table: bytes, layout: PartitionsLayout | None) -> tuple[tuple[int | None, ...], bool]:
    """Return the activity of each partition, None for one with an impossible die; and if there is one."""
    count = None if layout is None else _value(table, layout.count, U16)
    if layout is None or count is None or count > MOST_PARTITIONS:
        return (), False
    slots = (_BUSY.unpack_from(table, layout.first + number * layout.size) for number in range(count))
    # Slots of dies that a partition does not have are all ones.
    busy = [[value for value in dies if value not in ALL_ONES] for dies in slots]
    believed = [all(map(PERCENT.has, dies)) for dies in busy]
    means = (_mean(dies) if ok else None for dies, ok in zip(busy, believed, strict=True))
    return tuple(means), not all(believed)


def _mean(values: Sequence[int]) -> int | None:
    return round(sum(values) / len(values)) if values else None
