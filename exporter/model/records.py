"""``dataclass`` and ``replace`` for the records that each poll makes by the hundred.

To a type checker they are those of the standard library, and it is the one who sees to it that nobody changes
a frozen record. At run time a record is not frozen: its fields are then set directly, which takes 60 % of the
time, and a changed copy is made without a check of each field, in half the time (for 16 fields).
"""

import dataclasses
import functools
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool) -> Any:
        """Make a class whose records are equal, and have the same hash, where all their fields are."""
        return dataclasses.dataclass(slots=slots, kw_only=kw_only, unsafe_hash=frozen)

    def replace(record: Any, /, **changes: Any) -> Any:
        """Copy a record, of whichever ``dataclass``, with other values in some fields."""
        kind = type(record)
        names, values = _fields(kind)
        return kind(**(dict(zip(names, values(record), strict=True)) | changes))

    @functools.cache
    def _fields(kind: Any) -> Any:
        names = tuple(field.name for field in dataclasses.fields(kind))
        # Of a single name attrgetter gives the value itself instead of a tuple.
        several = len(names) > 1
        return names, operator.attrgetter(*names) if several else lambda record: (getattr(record, *names),)


__all__ = ["dataclass", "replace"]
