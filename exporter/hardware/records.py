"""Records that a driver fills, read as tuples.

The binding looks at each field of a record for text that it would decode, which takes longer than all else.
"""

from collections import namedtuple
from ctypes import sizeof
from struct import Struct, calcsize
from typing import Any


class Records:
    """Reads arrays of ``record``, a structure of the binding whose fields are numbers.

    A record comes as a named tuple of the same fields.
    """

    def __init__(self, record: Any) -> None:
        names, kinds = zip(*record._fields_, strict=True)
        # Both modules of the standard library name the types of C by these letters and align them as C does.
        letters = "@" + "".join(kind._type_ for kind in kinds)
        self.record = record
        self._layout = Struct(f"{letters}{sizeof(record) - calcsize(letters)}x")
        kind: Any = namedtuple(record.__name__, names)  # type: ignore[misc] # noqa: PYI024 - found at run time
        self._make = kind._make

    def first(self, count: int, array: Any) -> list[Any]:
        """Read the first ``count`` records of an array, or all where there are fewer."""
        filled = memoryview(array).cast("B")[: count * self._layout.size]
        return list(map(self._make, self._layout.iter_unpack(filled)))
