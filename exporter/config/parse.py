"""Parsers of option values, one ``Kind`` for each type of option, and of the YAML file.

The options are not known here. A parser raises ValueError, with a reason or without; ``settings`` adds the
name of the option and the allowed values.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import yaml

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})")
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|)")
_PRICE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")
_PREFIX = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::(?P<port>[0-9]{1,5}))?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "": 1}
_NULL = "tag:yaml.org,2002:null"


class SettingsError(Exception):
    """An invalid value: one line with the option as the user gave it, and the allowed values."""


class ListenAddress(NamedTuple):
    """An address to listen on. ``host`` is None for all addresses; an IPv6 address has no brackets."""

    host: str | None
    port: int

    def __str__(self) -> str:
        """Return the option's value: ``host:port``, ``[v6]:port`` or ``:port``."""
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of option."""

    parse: Callable[[str], Any]
    allowed: str
    """The allowed values, to complete the sentence "the value is not …"."""
    metavar: str


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table."""

    kind: Kind
    default: str | None
    """As text, with earlier fields in braces; None for no value."""
    help: str
    shown: str
    """The default in the docs."""
    repeatable: bool
    commands: tuple[str, ...]
    """The commands that have it; empty for all."""


def option(  # noqa: PLR0913 - by keyword: what differs between options
    kind: Kind,
    text: str,
    *,
    default: str | None = None,
    shown: str = "",
    repeatable: bool = False,
    commands: tuple[str, ...] = (),
) -> Any:
    """Return a field with its option as metadata; ``shown`` describes a default that is not a constant."""
    shown = shown or (f"`{default}`" if default else "none")
    return field(metadata={"option": Option(kind, default, text, shown, repeatable, commands)})


def choice(*names: str) -> Kind:
    """Return the kind of a value that is one of ``names``."""

    def parse(text: str) -> str:
        _require(text in names)
        return text

    return Kind(parse, f"one of {', '.join(names)}", "|".join(names))


def duration(shortest: str, longest: str) -> Kind:
    """Return the kind of a duration between two others; its value is in seconds."""

    def parse(text: str) -> float:
        seconds = _parse_duration(text)
        _require(_parse_duration(shortest) <= seconds <= _parse_duration(longest))
        return seconds

    allowed = f"a duration such as 500ms, 5s, 1m or plain seconds, from {shortest} to {longest}"
    return Kind(parse, allowed, "DURATION")


def _require(valid: object) -> None:
    if not valid:
        raise ValueError


def _parse_duration(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError
    # Rounded to microseconds, because 100 * 0.001 is slightly more than 0.1.
    return round(float(match["number"]) * _SECONDS[match["unit"]], 6)


def _parse_price(text: str) -> float:
    _require(_PRICE.fullmatch(text))
    return float(text)


def _parse_address(text: str) -> ListenAddress:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError
    host = match["host"] if match["v6"] is None else str(ipaddress.IPv6Address(match["v6"]))
    return ListenAddress(host or None, int(match["port"]))


def _parse_path(text: str) -> Path:
    _require(text and "\0" not in text)
    return Path(text)


def _parse_absolute_path(text: str) -> Path:
    path = _parse_path(text)
    _require(path.is_absolute())
    return path


def _parse_name(text: str) -> str:
    _require(text and text.isprintable())
    return text


def _parse_url(text: str) -> str:
    parts = urlsplit(text)
    # Reading the port raises ValueError if it is not a number.
    _require(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    return text


def _parse_prefix(text: str) -> str:
    prefix = text.removesuffix("/")
    _require(_PREFIX.fullmatch(prefix))
    return prefix


def _parse_ancestor(text: str) -> str:
    match = _ORIGIN.fullmatch(text)
    # The value becomes part of a header, in which a semicolon or a space would start another directive.
    _require(text == "self" or (match is not None and 0 < int(match["port"] or 443) <= 65535))
    return text


def _parse_switch(text: str) -> bool:
    _require(text in ("on", "off"))
    return text == "on"


def _parse_pattern(text: str) -> re.Pattern[str]:
    if not text:
        raise ValueError
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


ADDRESS = Kind(_parse_address, "an address such as host:port, [v6]:port or :port", "ADDRESS")
PRICE = Kind(_parse_price, "a number such as 2.5", "NUMBER")
NAME = Kind(_parse_name, "a name of printable characters", "NAME")
PATH = Kind(_parse_path, "a path", "PATH")
ABSOLUTE_PATH = Kind(_parse_absolute_path, "an absolute path", "PATH")
SWITCH = Kind(_parse_switch, "one of on, off", "on|off")
URL = Kind(_parse_url, "a URL such as http://localhost:9400/metrics", "URL")
PREFIX = Kind(_parse_prefix, "a path such as /gpuslice", "PREFIX")
ANCESTOR = Kind(_parse_ancestor, "self, or an origin such as https://grafana.example.com", "ORIGIN")
PATTERN = Kind(_parse_pattern, "a regular expression", "REGEX")


def read_yaml(path: Path) -> Iterator[tuple[str, str | list[str]]]:
    """Yield the keys of a YAML mapping with their values as text; empty values are left out.

    Raises OSError for an unreadable file, SettingsError if it is not such a mapping.
    """
    import yaml  # noqa: PLC0415 - needed with such a file only

    # Values stay text, because YAML 1.1 reads on and off as booleans, and 1:30 as a number.
    try:
        root = compose_yaml(path.read_bytes())
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error
    if root is None or root.tag == _NULL:
        return
    if not isinstance(root, yaml.MappingNode):
        raise SettingsError(f"{path}: the file must be a mapping of option names to values")
    for key, node in root.value:
        if not isinstance(key, yaml.ScalarNode):
            raise SettingsError(
                f"{path}: line {key.start_mark.line + 1}: a key must be the name of an option"
            )
        value = _plain(node, f"{' '.join(key.value.split())} in {path}")
        if value != "":
            yield key.value, value


def compose_yaml(content: bytes) -> "yaml.Node | None":
    """Return the outermost node of YAML, None if it is empty; raises ValueError with line and reason."""
    import yaml  # noqa: PLC0415 - as in read_yaml

    try:
        return yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"not valid YAML: {line}{error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from error


def _plain(node: "yaml.Node", source: str) -> str | list[str]:
    import yaml  # noqa: PLC0415 - as in read_yaml

    if isinstance(node, yaml.ScalarNode):
        return "" if node.tag == _NULL else node.value
    if isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in node.value):
        return [item.value for item in node.value]
    raise SettingsError(f"{source}: the value must be plain text or a list of plain texts")
