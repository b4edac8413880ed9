"""``dataclass`` and ``replace`` for the records that each poll makes by the hundred.

To a type checker they are those of the standard library, and it is the one who sees to it that nobody changes
a frozen record. At run time a record is not frozen: its fields are then set directly, which takes 60 % of the
time, and a changed copy is made without a check of each field, in a third of the time (for 17 fields).
"""

import dataclasses
import functools
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    # Records that are frozen refuse the usual way.
    _set = object.__setattr__

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool) -> Any:
        """Make a class whose records are equal, and have the same hash, where all their fields are."""
        return dataclasses.dataclass(slots=slots, kw_only=kw_only, unsafe_hash=frozen)

    def replace(record: Any, /, **changes: Any) -> Any:
        """Copy a record, of whichever ``dataclass``, with other values in some fields."""
        kind = type(record)
        names, values = _fields(kind)
        copy = object.__new__(kind)
        for name, value in zip(names, values(record), strict=True):
            _set(copy, name, value)
        for name, value in changes.items():
            _set(copy, name, value)
        return copy

    @functools.cache
    def _fields(kind: Any) -> Any:
        names = tuple(field.name for field in dataclasses.fields(kind))
        # Of a single name attrgetter gives the value itself instead of a tuple.
        several = len(names) > 1
        return names, operator.attrgetter(*names) if several else lambda record: (getattr(record, *names),)


__all__ = ["dataclass", "replace"]
