"""Documents, in JSON or YAML, as frozen dataclasses and back, by the types of the fields.

An error has the path of the value (``gpus[2].mig.instances[0].profile``), in YAML also its line, and what is
allowed there. Numbers may be written as sizes: ``"40 GiB"``. A scalar of YAML is its text: a field of another
type than text is ``Annotated`` with a ``Kind``, which parses it.
"""

import json
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, NewType, NoReturn, Union, get_args, get_origin, get_type_hints

Signed = NewType("Signed", int)
"""A whole number that may be negative, which an ``int`` in a record may not."""
_LIMIT = 1 << 63
SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(KiB|MiB|GiB)")
_NAMES = {
    int: "a whole number",
    Signed: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}
_NULL = "tag:yaml.org,2002:null"
_PLAIN_KEY = re.compile(r"[\w-]+")
_SECRET = re.compile(r"\$2[a-z]?\$\S*|-----BEGIN.*", re.DOTALL)
_LONGEST = 200  # characters of a value, or of a reason, in an error


class DocumentError(Exception):
    """An invalid document; the text has the path of the value, its line if known, and what is allowed."""

    def __init__(self, path: str, problem: str, line: int | None = None) -> None:
        place = f"{path or 'the file'} (line {line})" if line else path
        super().__init__(f"{place}: {problem}" if place else problem)
        self.path, self.problem = path, problem


@dataclass(frozen=True, slots=True)
class Kind:
    """A form of text."""

    parse: Callable[[str], Any]
    """Raises ValueError, with a reason or without."""
    allowed: str
    """The allowed values, to complete the sentence "the value is not …"."""
    metavar: str = ""
    secret: bool = False
    """Whether errors must not show the text."""


def matching(pattern: str, parse: Callable[[str], Any], allowed: str, metavar: str = "") -> Kind:
    """Return the kind of a text that matches ``pattern``, and is then parsed."""
    form = re.compile(pattern)

    def parse_matching(text: str) -> Any:
        if not form.fullmatch(text):
            raise ValueError
        return parse(text)

    return Kind(parse_matching, allowed, metavar)


def choice(*names: str) -> Kind:
    """Return the kind of a text that is one of ``names``."""
    allowed = f"one of {', '.join(filter(None, names))}"
    return matching("|".join(map(re.escape, names)), str, allowed, "|".join(names))


class _Text(str):
    __slots__ = ("line",)
    line: int


class _Fields(dict[str, Any]):
    line: int


class _Items(list[Any]):
    line: int


def fail(path: str, problem: str, at: Any = None) -> NoReturn:
    """Raise DocumentError about the value at ``path``; ``at`` is the value or key of YAML with the line."""
    raise DocumentError(path, problem, getattr(at, "line", None))


def join(path: str, name: str) -> str:
    """Return the path of a field or key of the value at ``path``."""
    if not _PLAIN_KEY.fullmatch(name):
        return f"{path}[{shown(name)}]"
    return f"{path}.{name[:_LONGEST]}" if path else name[:_LONGEST]


def shown(text: str) -> str:
    """Return the start of a text for an error, in quotes, without password hashes and PEM."""
    return repr(_SECRET.sub("…", text)[:_LONGEST])


def remedy(name: str, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: a similar known one, or all."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed for errors only

    known = tuple(known)
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def parse_text(kind: Kind, text: str, path: str) -> Any:
    """Return the value of a text; raises DocumentError with the allowed values."""
    try:
        return kind.parse(text)
    except ValueError as error:
        # Some reasons repeat the value, which may be long.
        reason = f" ({str(error)[:_LONGEST]})" if str(error) else ""
        given = "the value" if kind.secret and text else shown(text)
        fail(path, f"{given} is not {kind.allowed}{reason}", text)


def read_yaml(content: bytes) -> Any:
    """Return YAML as mappings, lists, texts and None; an empty document is a mapping. Raises DocumentError.

    Scalars stay text, because YAML 1.1 reads on and off as booleans, and 1:30 as a number.
    """
    import yaml  # noqa: PLC0415 - not every command has such a document

    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
        value = None if root is None else _of_node(root, "", {})
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise DocumentError("", f"not valid YAML: {line}{error.problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise DocumentError("", f"not valid YAML: {' '.join(str(error).split())}") from None
    return {} if value is None else value


def _of_node(node: Any, path: str, done: dict[int, Any]) -> Any:
    """Return the value of a node; ``done`` has those of others: aliases repeat and nest them."""
    if id(node) in done:
        return done[id(node)]
    if node.tag == _NULL:
        return None
    value: Any
    if node.id == "mapping":
        value = _Fields()
    elif node.id == "sequence":
        value = _Items()
    else:
        value = _Text(node.value)
    value.line = node.start_mark.line + 1
    done[id(node)] = value
    if isinstance(value, _Items):
        value.extend(_of_node(item, f"{path}[{index}]", done) for index, item in enumerate(node.value))
    elif isinstance(value, _Fields):
        for key_node, item in node.value:
            key = _of_node(key_node, path, done)
            if not isinstance(key, _Text):
                fail(path, "a key must be text", value)
            if key in value:
                fail(join(path, key), "this key is repeated", key)
            value[key] = _of_node(item, join(path, key), done)
    return value


def decode(kind: Any, value: Any, path: str = "") -> Any:
    """Return a value of type ``kind`` from plain JSON, or from what ``read_yaml`` returns.

    Raises DocumentError with the path of the first part that does not fit.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _record(kind, value, path)
    if origin in (Union, types.UnionType):
        return _union(arguments, value, path)
    if origin is tuple:
        _expect(list, value, path)
        return tuple(decode(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is Mapping:
        _expect(dict, value, path)
        return {key: decode(arguments[1], item, join(path, key)) for key, item in value.items()}
    return _scalar(kind, value, path)


def encode(value: Any) -> Any:
    """Return a record as plain JSON, without the fields that have their default."""
    if is_dataclass(value):
        items = ((field, getattr(value, field.name)) for field in fields(value))
        return {_key(field): encode(item) for field, item in items if item != _default(field)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return value


def _key(field: Field[Any]) -> str:
    """Return the key of a field, such as ``for`` for ``for_``."""
    return field.name.rstrip("_")


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def _types(kind: Any) -> dict[str, Any]:
    """Return the types of a record's fields."""
    return get_type_hints(kind, include_extras=True)


def _record(kind: Any, value: Any, path: str) -> Any:
    _expect(dict, value, path)
    known = {_key(field): field for field in fields(kind)}
    for name in value:
        if name not in known:
            fail(join(path, name), f"there is no such key; {remedy(name, known)}", name)
    given: dict[str, Any] = {}
    for name, field in known.items():
        form = _types(kind)[field.name]
        # A null that the type does not have is a key without a value, which is common in YAML.
        if name in value and (value[name] is not None or types.NoneType in get_args(form)):
            given[field.name] = decode(form, value[name], join(path, name))
        elif _default(field) is MISSING:
            fail(join(path, name), "is missing", value)
    try:
        return kind(**given)
    except DocumentError as error:
        # A record's own check names its field, but does not know the path of the record.
        fail(join(path, error.path), error.problem, value)


def _union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    records: list[Any] = [kind for kind in kinds if is_dataclass(kind)]
    others = [kind for kind in kinds if not is_dataclass(kind) and kind is not types.NoneType]
    if others and not (records and isinstance(value, dict)):
        lists = [kind for kind in others if isinstance(value, list) and get_origin(kind) is tuple]
        return decode((lists or others)[0], value, path)
    if len(records) == 1:
        return _record(records[0], value, path)
    _expect(dict, value, path)
    by_kind = {name: record for record in records for name in get_args(_types(record)["kind"])}
    return _record(by_kind[_literal(tuple(by_kind), value.get("kind"), join(path, "kind"))], value, path)


def _literal(choices: tuple[Any, ...], value: Any, path: str) -> Any:
    if value not in choices:
        fail(path, f"must be one of {', '.join(map(str, choices))}, not {_named(value)}", value)
    return value


def _scalar(kind: Any, value: Any, path: str) -> Any:
    if get_origin(kind) is Literal:
        return _literal(get_args(kind), value, path)
    if get_origin(kind) is Annotated:
        _expect(str, value, path)
        return parse_text(get_args(kind)[1], value, path)
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
        fail(path, f"must be {_NAMES[kind]}, not {_named(value)}", value)
    lowest = 0 if kind is int else 1 - _LIMIT
    if not lowest <= value < _LIMIT:
        fail(path, f"must be {_NAMES[kind]} from {lowest} to {_LIMIT - 1}, not {_named(value)}", value)
    return float(value) if kind is float else int(value)


def _expect(kind: type, value: Any, path: str) -> None:
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        # Without the text of a string, which may be a misplaced secret.
        wrong = _NAMES[str] if isinstance(value, str) else _named(value)
        fail(path, f"must be {_NAMES[kind]}, not {wrong}", value)


def _named(value: Any) -> str:
    """Return a value for an error; of a list or mapping only what it is."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, list):
        return _NAMES[list]
    return _NAMES[dict] if isinstance(value, dict) else json.dumps(value)
