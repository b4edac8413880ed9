"""What holds of everything that any decoder returns: types as they are declared, numbers that can be.

The declared types of records are checked at run time, so that ``int | None`` holds no text, no truth value
and no list, however deep it lies. What is not known is None, never a number below zero.
"""

import math
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

# Names of fields that hold amounts of something: less than none of it is not known, and so is an endless one.
AMOUNT = re.compile(
    r"(^|_)(memory|compute|bytes|total|used|free|slices|units|limit|entitled|energy|watts|count|start)($|_)"
)
# Names of fields that may be negative all the same: distances, and places that are nobody's.
SIGNED = re.compile(r"temperature|margin|index")


class BrokenPromiseError(AssertionError):
    """A decoder returned what it promises not to return."""


def require_sound(told: Any, where: str = "") -> None:
    """Raise BrokenPromiseError unless all records in ``told`` hold what they say that they hold."""
    if is_dataclass(told) and not isinstance(told, type):
        _require_record(told, where, [(field.name, getattr(told, field.name)) for field in fields(told)])
    elif isinstance(told, tuple) and hasattr(told, "_fields"):
        _require_record(told, where, list(zip(told._fields, told, strict=True)))
    elif isinstance(told, Mapping):
        for key, value in told.items():
            require_sound(key, where)
            require_sound(value, where)
    elif isinstance(told, list | tuple | AbstractSet):
        for each in told:
            require_sound(each, where)
    else:
        _require_number(told, where)


def _require_record(record: Any, where: str, pairs: list[tuple[str, Any]]) -> None:
    of = type(record)
    checks = _checks(of)
    for name, value in pairs:
        place = f"{where}{of.__name__}.{name}"
        if name in checks and not checks[name](value):
            raise BrokenPromiseError(f"{place} holds {value!r:.200}, which is not of its type")
        if AMOUNT.search(name) and not SIGNED.search(name):
            _require_amounts(value, place)
        require_sound(value, f"{place} > ")


def _require_amounts(value: Any, place: str) -> None:
    for each in value.values() if isinstance(value, Mapping) else (value,):
        if isinstance(each, int | float) and not 0 <= each < math.inf:
            raise BrokenPromiseError(f"{place} holds {each!r}: less than nothing, or without end")


def _require_number(value: Any, where: str) -> None:
    if isinstance(value, float) and math.isnan(value):
        raise BrokenPromiseError(f"{where} holds what is not a number")
    if type(value) is int:
        try:
            float(value)
        except OverflowError:
            raise BrokenPromiseError(f"{where} holds a number that no sample can have") from None


Check = Callable[[Any], bool]


@cache
def _checks(record: type) -> dict[str, Check]:
    try:
        hints = get_type_hints(record)
    except NameError:
        # Names that are imported for type checkers only; the numbers are checked all the same.
        return {}
    return {name: _check(hint) for name, hint in hints.items()}


def _check(hint: Any) -> Check:
    """Make what tells whether a value is of a type; what cannot be told is taken to be."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of([_check(each) for each in arguments])
    if origin is Literal:
        return lambda value: value in arguments
    if origin is tuple:
        return _tuple_check(arguments)
    if origin is not None and isinstance(origin, type):
        return _container_check(origin, [_check(each) for each in arguments])
    return _plain_check(hint)


def _plain_check(hint: Any) -> Check:
    if hint is None or hint is types.NoneType:
        return lambda value: value is None
    if hint is float:
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type) and not isinstance(hint, TypeVar):
        return lambda value: isinstance(value, hint)
    return lambda _value: True


def _one_of(checks: Sequence[Check]) -> Check:
    return lambda value: any(check(value) for check in checks)


def _tuple_check(arguments: tuple[Any, ...]) -> Check:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        each = _check(arguments[0])
        return lambda value: isinstance(value, tuple) and all(map(each, value))
    parts = [_check(each) for each in arguments]
    return lambda value: (
        isinstance(value, tuple)
        and len(value) == len(parts)
        and all(check(each) for check, each in zip(parts, value, strict=True))
    )


def _container_check(origin: type, parts: list[Check]) -> Check:
    if issubclass(origin, Mapping) and parts:
        of_key, of_value = parts
        return lambda value: (
            isinstance(value, Mapping) and all(of_key(key) and of_value(each) for key, each in value.items())
        )
    if issubclass(origin, AbstractSet | Sequence) and parts:
        return lambda value: isinstance(value, origin) and all(map(parts[0], value))
    return lambda value: isinstance(value, origin)


def texts_in(told: Any) -> Iterator[str]:
    """Yield every text in a tree of records."""
    if isinstance(told, str):
        yield told
    elif is_dataclass(told) and not isinstance(told, type):
        for field in fields(told):
            yield from texts_in(getattr(told, field.name))
    elif isinstance(told, Mapping):
        for key, value in told.items():
            yield from texts_in(key)
            yield from texts_in(value)
    elif isinstance(told, list | tuple | AbstractSet):
        for each in told:
            yield from texts_in(each)
