"""What holds of everything that any decoder returns: types as they are declared, numbers that can be.

The declared types of records are checked at run time, so that ``int | None`` holds no text, no truth value
and no list, however deep it lies. What is not known is None, never a number below zero. Millions of answers
are looked at: what is to be checked of a type is found out once.
"""

import math
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from tests.fuzz.declared import Check, check_of, plain_of

# Names of fields that hold amounts of something: less than none of it is not known, and so is an endless one.
AMOUNT = re.compile(
    r"(^|_)(memory|compute|bytes|total|used|free|slices|units|limit|entitled|energy|watts|count|start)($|_)"
)
# Names of fields that may be negative all the same: distances, and places that are nobody's.
SIGNED = re.compile(r"temperature|margin|index")
# The greatest whole number that a sample, which is a float, can have.
GREATEST = int(1.7976931348623157e308)

Look = Callable[[Any], None]


class BrokenPromiseError(AssertionError):
    """A decoder returned what it promises not to return."""


class Part(NamedTuple):
    """A field of a record: its name, its declared type, and whether it holds an amount.

    ``plain`` are types whose values are of the declared one without a look, ``check`` tells it of others.
    """

    name: str
    plain: frozenset[type]
    check: Check
    amount: bool


def require_sound(told: Any) -> None:
    """Raise BrokenPromiseError unless all records in ``told`` hold what they say that they hold."""
    look = _look(type(told))
    if look is not None:
        look(told)


@cache
def _look(kind: type) -> Look | None:
    """Return what looks at values of a type, and at all that lies in them; None where any is as good."""
    if is_dataclass(kind):
        return _record_look(kind, [field.name for field in fields(kind)])
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _record_look(kind, list(kind._fields))
    if issubclass(kind, Mapping):
        return _look_at_mapping
    if issubclass(kind, list | tuple | AbstractSet):
        return _look_at_each
    if issubclass(kind, float):
        return _look_at_float
    return _look_at_number if kind is int else None


def _record_look(kind: type, names: list[str]) -> Look:
    parts = _parts(kind, names)

    def look(record: Any) -> None:
        for name, plain, check, amount in parts:
            value = getattr(record, name)
            of = type(value)
            if of not in plain and not check(value):
                raise BrokenPromiseError(
                    f"{kind.__name__}.{name} holds {value!r:.200}, which is not of its type"
                )
            if amount and value is not None:
                _require_amounts(value, f"{kind.__name__}.{name}")
            if (deeper := _look(of)) is not None:
                try:
                    deeper(value)
                except BrokenPromiseError as error:
                    raise BrokenPromiseError(f"{kind.__name__}.{name} > {error}") from None

    return look


def _look_at_mapping(told: Mapping[Any, Any]) -> None:
    for key, value in told.items():
        for each in (key, value):
            if (look := _look(type(each))) is not None:
                look(each)


def _look_at_each(told: Any) -> None:
    for each in told:
        if (look := _look(type(each))) is not None:
            look(each)


def _look_at_float(told: float) -> None:
    if math.isnan(told):
        raise BrokenPromiseError("it holds what is not a number")


def _look_at_number(told: int) -> None:
    if not -GREATEST <= told <= GREATEST:
        raise BrokenPromiseError("it holds a number that no sample can have")


def _require_amounts(value: Any, place: str) -> None:
    for each in value.values() if isinstance(value, Mapping) else (value,):
        if isinstance(each, int | float) and not 0 <= each < math.inf:
            raise BrokenPromiseError(f"{place} holds {each!r}: less than nothing, or without end")


def _parts(record: type, names: list[str]) -> tuple[Part, ...]:
    try:
        hints = get_type_hints(record)
    except NameError:
        # Names that are imported for type checkers only; the numbers are checked all the same.
        hints = {}
    return tuple(
        Part(
            name,
            plain_of(hints.get(name, Any)),
            check_of(hints.get(name, Any)),
            bool(AMOUNT.search(name) and not SIGNED.search(name)),
        )
        for name in names
    )
