"""The form that the table of metrics has from version 1.9 on: a list in which each entry says what it is.

An entry is 64 bits with its number, type and count, then so many values, without any gap. What is in the list
depends on the board and the driver. The numbers are those of the kernel's ``amdgpu_metrics_attr_id``.
"""

import struct
from collections.abc import Iterator, Mapping

HEADER = struct.Struct("<HBBi")
ENTRY = struct.Struct("<Q")
ID_SHIFT, TYPE_SHIFT, ID_MASK, TYPE_MASK, COUNT_MASK = 10, 20, 0x3FF, 0xF, 0x3FF
# By the kernel's number of a type: signed and unsigned, of one to eight bytes.
TYPES = "BbHhIiQq"

Values = tuple[int | None, ...]


def read_attributes(table: bytes) -> Mapping[int, Values]:
    """Return the values of every entry by its number, None for a value of all ones: it says nothing.

    Behind an entry of an unknown type, or one that is cut short, nothing can be read.
    """
    return dict(_entries(table)) if len(table) >= HEADER.size else {}


def _entries(table: bytes) -> Iterator[tuple[int, Values]]:
    size, _, _, count = HEADER.unpack_from(table)
    place, end = HEADER.size, min(size, len(table))
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
