"""The table that the power firmware hands out (``gpu_metrics``): binary, and of a layout for each version.

Its first four bytes tell its size, format and content version. The layouts are those of the kernel's
``kgd_pp_interface.h`` under the ABI of 64-bit machines; a table of any other version or size is not read.
Version 1.9 describes itself. The kernel fills a table with ones before it writes what it knows, so a field of
all ones says nothing.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

ATTRIBUTES_HEADER = struct.Struct("<HBBi")
ENTRY = struct.Struct("<Q")
ID_SHIFT, TYPE_SHIFT, ID_MASK, TYPE_MASK, COUNT_MASK = 10, 20, 0x3FF, 0xF, 0x3FF
# By the kernel's number of a type: signed and unsigned, of one to eight bytes.
TYPES = "BbHhIiQq"

Values = tuple[int | None, ...]


def read_attributes(table: bytes) -> Mapping[int, Values]:
    """Return the values of every entry by its number, None for a value of all ones: it says nothing.

    Behind an entry of an unknown type, or one that is cut short, nothing can be read.
    """
    return dict(_entries(table)) if len(table) >= ATTRIBUTES_HEADER.size else {}


def _entries(table: bytes) -> Iterator[tuple[int, Values]]:
    size, _, _, count = ATTRIBUTES_HEADER.unpack_from(table)
    place, end = ATTRIBUTES_HEADER.size, min(size, len(table))
    for _ in range(count):
        if place + ENTRY.size > end:
            return
        (entry,) = ENTRY.unpack_from(table, place)
        kind = entry >> TYPE_SHIFT & TYPE_MASK
        if kind >= len(TYPES):
            return
        form = struct.Struct(f"<{entry & COUNT_MASK}{TYPES[kind]}")
        place += ENTRY.size + form.size
        if place > end:
            return
        yield entry >> ID_SHIFT & ID_MASK, _values(form.unpack_from(table, place - form.size), TYPES[kind])


def _values(found: tuple[int, ...], kind: str) -> Values:
    nothing = (1 << 8 * struct.calcsize(f"<{kind}")) - 1 if kind.isupper() else -1
    return tuple(None if value == nothing else value for value in found)


TABLE_HEADER = struct.Struct("<HBB")
U16, U32, U64 = "H", "I", "Q"
# How many compute dies a partition, and partitions a GPU, can have.
MOST_DIES, MOST_PARTITIONS = 8, 8
ENERGY_UNITS_PER_JOULE = 1 << 16
ALL_THE_TIME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """Where a table counts its partitions, and where the first is with how much room each takes."""

    count: int
    first: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The size of one version's table, and the offset and format of what is read of it."""

    size: int
    fields: Mapping[str, tuple[int, str]]
    partitions: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a table says: percent, degrees Celsius, watts, and 2^-16 joules since the driver was loaded.

    ``partitions`` is how busy each partition is, None for one that is not metered; ``dies`` is how busy the
    dies are that are shared out among them, where the table tells that instead. ``energy_unit_told``: the
    version states what energy is counted in.
    """

    activity: int | None = None
    memory_activity: int | None = None
    edge: int | None = None
    hotspot: int | None = None
    memory: int | None = None
    watts: int | None = None
    energy: int | None = None
    pcie_replays: int | None = None
    partitions: tuple[int | None, ...] = ()
    dies: tuple[int, ...] = ()
    energy_unit_told: bool = False

    def busy(self, partitions: int | None) -> tuple[int | None, ...]:
        """Return how busy each of so many partitions is; () where the table tells of another cut."""
        if not self.dies or not partitions or len(self.dies) % partitions:
            return self.partitions if len(self.partitions) == partitions else ()
        each = len(self.dies) // partitions
        parts = (self.dies[first : first + each] for first in range(0, len(self.dies), each))
        return tuple(_mean(part) for part in parts)

    @property
    def energy_millijoules(self) -> int | None:
        """The energy in millijoules; the second die of a board of two counts none, which is no 0."""
        return self.energy * 1000 // ENERGY_UNITS_PER_JOULE if self.energy else None


# Versions 1.1 to 1.3 differ behind what is read of them.
_BEFORE_MI300: Mapping[str, tuple[int, str]] = {
    "edge": (4, U16),
    "hotspot": (6, U16),
    "memory": (8, U16),
    "activity": (16, U16),
    "memory_activity": (18, U16),
    "watts": (22, U16),
    "energy": (24, U64),
}
_MI300: Mapping[str, tuple[int, str]] = {
    "hotspot": (4, U16),
    "memory": (6, U16),
    "watts": (10, U16),
    "activity": (12, U16),
    "memory_activity": (14, U16),
}
LAYOUTS: Mapping[tuple[int, int], Layout] = {
    (1, 1): Layout(size=96, fields=_BEFORE_MI300),
    (1, 2): Layout(size=104, fields=_BEFORE_MI300),
    (1, 3): Layout(size=120, fields=_BEFORE_MI300),
    (1, 4): Layout(size=288, fields={**_MI300, "energy": (24, U64), "pcie_replays": (88, U64)}),
    (1, 5): Layout(size=328, fields={**_MI300, "energy": (56, U64), "pcie_replays": (120, U64)}),
    (1, 6): Layout(
        size=1664,
        fields={**_MI300, "energy": (16, U64), "pcie_replays": (104, U64)},
        partitions=Partitions(count=306, first=312, size=168),
    ),
    (1, 7): Layout(
        size=2208,
        fields={**_MI300, "energy": (24, U64), "pcie_replays": (112, U64)},
        partitions=Partitions(count=338, first=344, size=232),
    ),
    (1, 8): Layout(
        size=3872,
        fields={**_MI300, "energy": (24, U64), "pcie_replays": (112, U64)},
        partitions=Partitions(count=338, first=344, size=440),
    ),
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
    """Whether a table is of a format that only the graphics inside of processors have."""
    return (
        table is not None
        and len(table) >= TABLE_HEADER.size
        and TABLE_HEADER.unpack_from(table)[1] in _OF_PROCESSORS
    )


def parse(table: bytes | None) -> Metrics:
    """Read a table; one of an unknown version, or cut short, says nothing."""
    if table is None or len(table) < TABLE_HEADER.size:
        return Metrics()
    size, *version = TABLE_HEADER.unpack_from(table)
    if tuple(version) == _SELF_DESCRIBING:
        return _described(table)
    layout = LAYOUTS.get((version[0], version[1]))
    if layout is None or size != layout.size or len(table) < size:
        return Metrics()
    values = {name: _value(table, *place) for name, place in layout.fields.items()}
    return Metrics(
        **_plausible(values),
        partitions=_partitions(table, layout.partitions),
        dies=(),
        energy_unit_told=tuple(version) >= _FIRST_WITH_ENERGY_UNIT,
    )


def _described(table: bytes) -> Metrics:
    told = read_attributes(table)
    values = {name: next(iter(told.get(number, ())), None) for name, number in _ATTRIBUTES.items()}
    dies = _dies(told.get(_DIES_BUSY, ()))
    return Metrics(**_plausible(values), partitions=(), dies=dies, energy_unit_told=True)


def _dies(told: Sequence[int | None]) -> tuple[int, ...]:
    """Return the dies without the room behind them; a gap among them would put each in another's place."""
    busy = [value for value in map(_percent, told) if value is not None]
    return tuple(busy) if busy == list(told[: len(busy)]) else ()


def _plausible(values: Mapping[str, int | None]) -> dict[str, int | None]:
    """Keep what can be: attributes may be of signed types, and there is nothing here of less than nothing."""
    found = {name: None if value is None or value < 0 else value for name, value in values.items()}
    shares = {name: _percent(found[name]) for name in ("activity", "memory_activity")}
    return {**found, **shares}


def _value(table: bytes, offset: int, kind: str) -> int | None:
    form = struct.Struct(f"<{kind}")
    value: int = form.unpack_from(table, offset)[0]
    return None if value == (1 << 8 * form.size) - 1 else value


def _percent(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= ALL_THE_TIME else None


def _partitions(table: bytes, where: Partitions | None) -> tuple[int | None, ...]:
    count = None if where is None else _value(table, where.count, U16)
    if where is None or count is None or count > MOST_PARTITIONS:
        return ()
    return tuple(_busy(table, where.first + number * where.size) for number in range(count))


def _busy(table: bytes, offset: int) -> int | None:
    """Return the mean over the dies of a partition; the room of those that it does not have is all ones."""
    return _mean([value for value in _BUSY.unpack_from(table, offset) if value <= ALL_THE_TIME])


def _mean(told: Sequence[int]) -> int | None:
    return round(sum(told) / len(told)) if told else None
