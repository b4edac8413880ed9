"""The headers of requests to Prometheus: authentication, and those that the user adds."""

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import SplitResult, unquote

from exporter.config.headers import EXAMPLE, Header, parse_header

_AUTHORIZATION = "Authorization"
_TOKEN, _FILE = "--prometheus-token-file", "--prometheus-header-file"
# Shorter words are no secrets, and occur in other texts.
_SHORTEST_SECRET = 8


class HeaderError(Exception):
    """A header cannot be sent; the message has its option or file, and no value."""


class RequestHeaders:
    """The headers of each request; files are read for each, since what they have is renewed.

    Raises HeaderError if two of the options set the same header: it is unknown which one is meant.
    """

    def __init__(
        self,
        url: SplitResult,
        token_file: Path | None = None,
        headers: Sequence[Header] = (),
        header_file: Path | None = None,
    ) -> None:
        self._token_file = token_file
        self._header_file = header_file
        self._constant = [("--prometheus-header", header) for header in headers]
        if token_file is None and url.username is not None:
            self._constant.append(("the name in --prometheus-url", Header(_AUTHORIZATION, _login(url))))
        placeholder = [(_TOKEN, Header(_AUTHORIZATION, ""))] if token_file else []
        _by_name([*self._constant, *placeholder])

    def read(self) -> dict[str, str]:
        """Return the headers by name; raises HeaderError, also for a file without a usable header."""
        given = list(self._constant)
        if self._token_file is not None:
            given.append((_TOKEN, Header(_AUTHORIZATION, f"Bearer {_token(self._token_file)}")))
        if self._header_file is not None:
            given += [(_FILE, header) for header in _of_file(self._header_file)]
        return _by_name(given)


def secrets_of(headers: dict[str, str]) -> tuple[str, ...]:
    """Return the parts of values that may be secret: servers repeat headers in their errors."""
    words = {word for value in headers.values() for word in value.split()}
    # The longest first, since one may be a part of another.
    return tuple(sorted((word for word in words if len(word) >= _SHORTEST_SECRET), key=len, reverse=True))


def unreadable(option: str, path: Path, error: Exception) -> str:
    """Return the message for a file that cannot be read."""
    why = (isinstance(error, OSError) and error.strerror) or "it is not text"
    return f"{option}: cannot read {str(path)!r}: {why}"


def _by_name(given: Sequence[tuple[str, Header]]) -> dict[str, str]:
    sources: dict[str, str] = {}
    for source, header in given:
        if (other := sources.get(header.name.lower())) is not None:
            both = f"twice by {source}" if other == source else f"by {other} and by {source}"
            raise HeaderError(f"{header.name} is set {both}: leave one of them out")
        sources[header.name.lower()] = source
    return {header.name: header.value for _, header in given}


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, ValueError) as error:
        raise HeaderError(unreadable(_TOKEN, path, error)) from None
    if not token or not (token.isascii() and token.isprintable()):
        raise HeaderError(f"{_TOKEN}: {str(path)!r} has no token in it")
    return token


def _of_file(path: Path) -> Iterator[Header]:
    try:
        # Not text.splitlines(), for which also other characters end a line.
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise HeaderError(unreadable(_FILE, path, error)) from None
    found = False
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r")
        if not text.strip() or text.startswith("#"):
            continue
        found = True
        try:
            yield parse_header(text)
        except ValueError as error:
            raise HeaderError(f"{_FILE}: line {number} of {str(path)!r} is not {EXAMPLE} ({error})") from None
    if not found:
        raise HeaderError(f"{_FILE}: {str(path)!r} has no header in it")


def _login(parts: SplitResult) -> str:
    """Return the Authorization header for the name and password in a URL."""
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"
