"""Promises of all decoders: values have their declared types, and numbers are possible.

The declared types of records are checked at run time, at any depth. An unknown value is None, never negative.
Millions of results are checked: the checks of a type are made once.
"""

import math
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from tests.together.fuzz.declared import Check, check_of, plain_of

# Names of fields with amounts, which are neither negative nor infinite.
AMOUNT = re.compile(
    r"(^|_)(memory|compute|bytes|total|used|free|slices|units|limit|entitled|energy|watts|count|start)($|_)"
)
# Names of fields that may be negative: distances, and indexes of nothing.
SIGNED = re.compile(r"temperature|margin|index")
# The greatest whole number that a sample can have.
GREATEST = int(1.7976931348623157e308)

Look = Callable[[Any], None]


class BrokenPromiseError(AssertionError):
    """A decoder returned what it promises not to return."""


class Part(NamedTuple):
    """A field of a record.

    Values of the ``plain`` types have its declared type; ``check`` tests others. ``amount``: it is an amount.
    """

    name: str
    plain: frozenset[type]
    check: Check
    amount: bool


def require_sound(result: Any) -> None:
    """Raise BrokenPromiseError unless all records in ``result`` keep the promises."""
    look = _look(type(result))
    if look is not None:
        look(result)


@cache
def _look(kind: type) -> Look | None:
    """Return the check of values of a type, and of all values in them; None if there is none."""
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


def _look_at_mapping(result: Mapping[Any, Any]) -> None:
    for key, value in result.items():
        for each in (key, value):
            if (look := _look(type(each))) is not None:
                look(each)


def _look_at_each(result: Any) -> None:
    for each in result:
        if (look := _look(type(each))) is not None:
            look(each)


def _look_at_float(result: float) -> None:
    if math.isnan(result):
        raise BrokenPromiseError("it holds what is not a number")


def _look_at_number(result: int) -> None:
    if not -GREATEST <= result <= GREATEST:
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
