"""From JSON values to frozen dataclasses and back, driven by the types of the fields.

A mistake is reported with the path of the value it is in (``gpus[2].mig.instances[0].profile``), so that
a person finds it in a file of a thousand lines. Numbers may be written as sizes: ``"40 GiB"``.
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
"""A whole number that may be below 0; where a record says ``int``, none may."""
_LARGEST = 1 << 63
SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(KiB|MiB|GiB)")


class ScenarioError(ValueError):
    """A scenario that cannot be used; the text names the value and what it should be."""


def fail(path: str, problem: str) -> NoReturn:
    """Refuse the value at ``path``."""
    raise ScenarioError(f"{path}: {problem}" if path else problem)


def decode(kind: Any, value: Any, path: str = "") -> Any:
    """Return a value of type ``kind`` from plain JSON.

    Raises ScenarioError with the path of the first part that does not fit.
    """
    origin = get_origin(kind)
    if is_dataclass(kind):
        return _record(kind, value, path)
    if origin in (Union, types.UnionType):
        return _union(get_args(kind), value, path)
    if origin is Literal:
        return _literal(get_args(kind), value, path)
    if origin is tuple:
        return _tuple(get_args(kind)[0], value, path)
    if origin is Mapping:
        return _mapping(get_args(kind)[1], value, path)
    return _scalar(kind, value, path)


def encode(value: Any) -> Any:
    """Return a record as plain JSON, without the fields that have their default."""
    if is_dataclass(value):
        return {json_name(field): encode(getattr(value, field.name)) for field in _told(value)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def map_strings(change: Callable[[str], str], value: Any) -> Any:
    """Return the same tree of records with every string in it changed; names of fields are none."""
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


def json_name(field: Field[Any]) -> str:
    """Return the name of a field in JSON; ``for_`` is ``for`` there."""
    return field.name.rstrip("_")


def _told(record: Any) -> list[Field[Any]]:
    return [field for field in fields(record) if getattr(record, field.name) != _default(field)]


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _record(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, Mapping):
        fail(path, f"must be an object, not {_shown(value)}")
    known = {json_name(field): field for field in fields(kind)}
    for name in value:
        if name not in known:
            fail(_join(path, name), f"is no field here{_suggestion(name, known)}")
    hints = _hints(kind)
    given: dict[str, Any] = {}
    for name, field in known.items():
        if name in value:
            given[field.name] = decode(hints[field.name], value[name], _join(path, name))
        elif _default(field) is MISSING:
            fail(_join(path, name), "is missing")
    return _built(kind, given, path)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Evaluate the types of a record's fields, once: a scenario has a thousand records of thirty kinds."""
    return get_type_hints(kind)


def _built(kind: Any, given: dict[str, Any], path: str) -> Any:
    try:
        return kind(**given)
    except ScenarioError as error:
        # A record's own check names its field; the way to the record is known only here.
        raise ScenarioError(_join(path, str(error))) from None


def _union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    records = [kind for kind in kinds if is_dataclass(kind)]
    others = [kind for kind in kinds if not is_dataclass(kind) and kind is not types.NoneType]
    if records and (isinstance(value, Mapping) or not others):
        return _record(_chosen(records, value, path), value, path)
    return decode(others[0], value, path)


def _chosen(records: list[Any], value: Any, path: str) -> Any:
    """Pick the record whose ``kind`` the object carries."""
    if len(records) == 1:
        return records[0]
    if not isinstance(value, Mapping):
        fail(path, f"must be an object, not {_shown(value)}")
    by_kind = {get_args(get_type_hints(record)["kind"])[0]: record for record in records}
    return by_kind[_literal(tuple(by_kind), value.get("kind"), _join(path, "kind"))]


def _literal(choices: tuple[Any, ...], value: Any, path: str) -> Any:
    if value not in choices:
        fail(path, f"must be one of {', '.join(map(str, choices))}, not {_shown(value)}")
    return value


def _tuple(kind: Any, value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        fail(path, f"must be a list, not {_shown(value)}")
    return tuple(decode(kind, item, f"{path}[{index}]") for index, item in enumerate(value))


def _mapping(kind: Any, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        fail(path, f"must be an object, not {_shown(value)}")
    return {key: decode(kind, item, f'{path}["{key}"]') for key, item in value.items()}


def _scalar(kind: type, value: Any, path: str) -> Any:
    if kind in (int, float, Signed) and not isinstance(value, bool):
        return _number(kind, value, path)
    if type(value) is not kind:
        fail(path, f"must be {_KINDS[kind]}, not {_shown(value)}")
    return value


def _number(kind: type, value: Any, path: str) -> int | float:
    size = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if size:
        amount = float(size[1]) * SIZES[size[2]]
        value = int(amount) if amount < _LARGEST else _LARGEST
    if not isinstance(value, (int, float) if kind is float else int):
        fail(path, f"must be {_KINDS[kind]}, not {_shown(value)}")
    if not -_LARGEST < value < _LARGEST or (kind is int and value < 0):
        fail(path, f"must be {_KINDS[kind]} that a driver could say, not {_shown(value)}")
    return float(value) if kind is float else int(value)


_KINDS = {
    int: "a whole number",
    Signed: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
}


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return json.dumps(value)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _suggestion(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {close[0]}?" if close else f"; there are {', '.join(sorted(known))}"
