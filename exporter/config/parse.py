"""Parsers of option values, one ``Kind`` for each type of option, and of the YAML file.

The options are not known here.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from exporter.config.headers import EXAMPLE, parse_header
from exporter.documents import DocumentError, Kind, decode, matching, read_yaml

_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[A-Za-z0-9._-]*)):(?P<port>[0-9]{1,5})")
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|)")
_PREFIX = r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+/?"
_ORIGIN = re.compile(r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::(?P<port>[0-9]{1,5}))?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "": 1}


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
class Option:
    """A row of the table."""

    kind: Kind
    default: str | None
    """As text, with earlier fields in braces; None for no value."""
    help: str
    shown: str
    """The default in the docs."""
    repeatable: bool
    separator: str
    """Between several values in the environment."""
    commands: tuple[str, ...]
    """The commands that have it; empty for all."""


def option(  # noqa: PLR0913 - by keyword: what differs between options
    kind: Kind,
    text: str,
    *,
    default: str | None = None,
    shown: str = "",
    repeatable: bool = False,
    separator: str = ",",
    commands: tuple[str, ...] = (),
) -> Any:
    """Return a field with its option as metadata; ``shown`` describes a default that is not a constant."""
    shown = shown or (f"`{default}`" if default else "none")
    return field(metadata={"option": Option(kind, default, text, shown, repeatable, separator, commands)})


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


def _parse_ancestor(text: str) -> str:
    match = _ORIGIN.fullmatch(text)
    # The value becomes part of a header, in which a semicolon or a space would start another directive.
    _require(text == "self" or (match is not None and 0 < int(match["port"] or 443) <= 65535))
    return text


def _parse_pattern(text: str) -> re.Pattern[str]:
    if not text:
        raise ValueError
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


ADDRESS = Kind(_parse_address, "an address such as host:port, [v6]:port or :port", "ADDRESS")
PRICE = matching(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", float, "a number such as 2.5", "NUMBER")
NAME = Kind(_parse_name, "a name of printable characters", "NAME")
PATH = Kind(_parse_path, "a path", "PATH")
ABSOLUTE_PATH = Kind(_parse_absolute_path, "an absolute path", "PATH")
SWITCH = matching("on|off", lambda text: text == "on", "one of on, off", "on|off")
URL = Kind(_parse_url, "a URL such as http://localhost:9400/metrics", "URL")
PREFIX = matching(_PREFIX, lambda text: text.removesuffix("/"), "a path such as /gpuslice", "PREFIX")
ANCESTOR = Kind(_parse_ancestor, "self, or an origin such as https://grafana.example.com", "ORIGIN")
HEADER = Kind(parse_header, EXAMPLE, "HEADER", secret=True)
PATTERN = Kind(_parse_pattern, "a regular expression", "REGEX")


def read_options(path: Path) -> Mapping[str, str | tuple[str, ...]]:
    """Return the keys of a YAML mapping with their values as text, without empty values.

    Raises OSError for an unreadable file, SettingsError if it is not such a mapping.
    """
    try:
        values = decode(Mapping[str, str | tuple[str, ...] | None], read_yaml(path.read_bytes()))
    except DocumentError as error:
        raise SettingsError(f"{path}: {error}") from None
    return {key: value for key, value in values.items() if value not in (None, "")}
