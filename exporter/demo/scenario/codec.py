"""JSON values to frozen dataclasses and back, driven by the types of the fields.

An error names the path of the value (``gpus[2].mig.instances[0].profile``), so that it is found in a file of
a thousand lines. Numbers may be written as sizes: ``"40 GiB"``.
"""

import difflib
import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, NewType, NoReturn, Union, get_args, get_origin, get_type_hints

Signed = NewType("Signed", int)
"""A whole number that may be negative, which an ``int`` in a record may not."""
_LIMIT = 1 << 63
SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(KiB|MiB|GiB)")
_KINDS = {
    int: "a whole number",
    Signed: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


# The types of a record's fields; a scenario has a thousand records of thirty kinds.
_hints = cache(get_type_hints)


class ScenarioError(ValueError):
    """A scenario that cannot be used; the text names the value and what it should be."""


def fail(path: str, problem: str) -> NoReturn:
    """Raise ScenarioError about the value at ``path``."""
    raise ScenarioError(f"{path}: {problem}" if path else problem)


def decode(kind: Any, value: Any, path: str = "") -> Any:
    """Return a value of type ``kind`` from plain JSON.

    Raises ScenarioError with the path of the first part that does not fit.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _record(kind, value, path)
    if origin in (Union, types.UnionType):
        return _union(arguments, value, path)
    if origin is Literal:
        return _literal(arguments, value, path)
    if origin is tuple:
        _expect(list, value, path)
        return tuple(decode(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is Mapping:
        _expect(dict, value, path)
        return {key: decode(arguments[1], item, f'{path}["{key}"]') for key, item in value.items()}
    return _scalar(kind, value, path)


def encode(value: Any) -> Any:
    """Return a record as plain JSON, without the fields that have their default."""
    if is_dataclass(value):
        items = ((field, getattr(value, field.name)) for field in fields(value))
        return {_json_name(field): encode(item) for field, item in items if item != _default(field)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def map_strings(change: Callable[[str], str], value: Any) -> Any:
    """Return a tree of records with every string in it changed, but not the names of fields."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(map_strings(change, item) for item in value)
    if isinstance(value, Mapping):
        return {change(key): map_strings(change, item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: map_strings(change, getattr(value, field.name)) for field in fields(value)}
        )
    return value


def _json_name(field: Field[Any]) -> str:
    """Return the name of a field in JSON, such as ``for`` for ``for_``."""
    return field.name.rstrip("_")


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _record(kind: Any, value: Any, path: str) -> Any:
    _expect(dict, value, path)
    known = {_json_name(field): field for field in fields(kind)}
    for name in value:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(known))}"
            fail(_join(path, name), f"is not a field here{hint}")
    given: dict[str, Any] = {}
    for name, field in known.items():
        if name in value:
            given[field.name] = decode(_hints(kind)[field.name], value[name], _join(path, name))
        elif _default(field) is MISSING:
            fail(_join(path, name), "is missing")
    try:
        return kind(**given)
    except ScenarioError as error:
        # A record's own check names its field, but does not know the path of the record.
        raise ScenarioError(_join(path, str(error))) from None


def _union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    records: list[Any] = [kind for kind in kinds if is_dataclass(kind)]
    others = [kind for kind in kinds if not is_dataclass(kind) and kind is not types.NoneType]
    if others and not (records and isinstance(value, dict)):
        return decode(others[0], value, path)
    if len(records) == 1:
        return _record(records[0], value, path)
    _expect(dict, value, path)
    by_kind = {name: record for record in records for name in get_args(_hints(record)["kind"])}
    return _record(by_kind[_literal(tuple(by_kind), value.get("kind"), _join(path, "kind"))], value, path)


def _literal(choices: tuple[Any, ...], value: Any, path: str) -> Any:
    if value not in choices:
        fail(path, f"must be one of {', '.join(map(str, choices))}, not {_shown(value)}")
    return value


def _scalar(kind: type, value: Any, path: str) -> Any:
    if kind in (int, float, Signed) and not isinstance(value, bool):
        return _number(kind, value, path)
    _expect(kind, value, path)
    return value


def _number(kind: type, value: Any, path: str) -> int | float:
    size = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if size:
        amount = float(size[1]) * SIZES[size[2]]
        value = int(amount) if amount < _LIMIT else _LIMIT
    if not isinstance(value, (int, float) if kind is float else int):
        fail(path, f"must be {_KINDS[kind]}, not {_shown(value)}")
    lowest = 0 if kind is int else 1 - _LIMIT
    if not lowest <= value < _LIMIT:
        fail(path, f"must be {_KINDS[kind]} from {lowest} to {_LIMIT - 1}, not {_shown(value)}")
    return float(value) if kind is float else int(value)


def _expect(kind: type, value: Any, path: str) -> None:
    if type(value) is not kind:
        fail(path, f"must be {_KINDS[kind]}, not {_shown(value)}")


def _shown(value: Any) -> str:
    return _KINDS[type(value)] if isinstance(value, (dict, list)) else json.dumps(value)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
