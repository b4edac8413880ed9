"""Checks at run time that a value has the declared type of a field, at any depth."""

import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

Check = Callable[[Any], bool]
# Types without values in them.
_LEAVES = frozenset({str, bytes, int, bool, types.NoneType})


def plain_of(hint: Any) -> frozenset[type]:
    """Return types: a value of exactly one of them has the declared type."""
    if get_origin(hint) in (Union, types.UnionType):
        return frozenset[type]().union(*map(plain_of, get_args(hint)))
    if hint is None:
        return frozenset({types.NoneType})
    if hint is float:
        return frozenset({float, int})
    return frozenset({hint}) if isinstance(hint, type) and hint in _LEAVES else frozenset()


def check_of(hint: Any) -> Check:
    """Return a check that a value has a type; types that cannot be checked are accepted."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of([check_of(each) for each in arguments])
    if origin is Literal:
        return lambda value: value in arguments
    if origin is tuple:
        return _tuple_check(arguments)
    if origin is not None and isinstance(origin, type):
        return _container_check(origin, [check_of(each) for each in arguments])
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
        each = check_of(arguments[0])
        return lambda value: isinstance(value, tuple) and all(map(each, value))
    parts = [check_of(each) for each in arguments]
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
