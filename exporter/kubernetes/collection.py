"""A collection of the Kubernetes API, selected for one node: list, and watch.

Format: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

_REFUSED = "the service account's token is refused; it is read again for the next attempt"
# etcd stores at most 1.5 MiB for one object; as JSON it is somewhat larger.
LONGEST_OBJECT: Final = 4 << 20
# The text around the objects takes some hundred bytes.
LONGEST_FRAME: Final = 1 << 16
# Nesting of the objects: in the list, which is in the answer.
_DEPTH: Final = 2
_ITEMS: Final = re.compile(rb'"items"\s*:\s*\Z')
_OUTSIDE: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_INSIDE: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
WATCH_SECONDS: Final = 240
LIST_SECONDS: Final = 10.0
# The text of an event around its object takes some bytes.
LONGEST_EVENT: Final = LONGEST_OBJECT + 1024
# A pod may have annotations of 256 KiB.
LONGEST_LIST: Final = 256 << 20
_GRACE_SECONDS: Final = 10


class ApiError(Exception):
    """The API server refused a request for ``about``; ``right`` is the remedy for a missing permission."""

    def __init__(self, about: str, status: int, message: str, right: str) -> None:
        remedies = {int(HTTPStatus.UNAUTHORIZED): _REFUSED, int(HTTPStatus.FORBIDDEN): right}
        detail = f"the API server answers {status} when asked for {about}"
        super().__init__("; ".join(filter(None, (detail, message, remedies.get(status)))))
        self.forbidden = status == HTTPStatus.FORBIDDEN


class ExpiredError(Exception):
    """The server no longer has the changes since the requested version."""


class NoListError(Exception):
    """The server's answer is not a complete list of objects, or longer than that of any node can be."""


class ListParser:
    """Parses a list in pieces of any size; keeps one object and the text around the objects in memory.

    Only brackets and strings are parsed here: any other error in an object affects that object alone.
    """

    def __init__(self) -> None:
        self._frame = bytearray()
        self._object = bytearray()
        self._rest = b""
        self._depth = 0
        self._in_string = False
        self._in_items = False

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield each object that ends in this piece, None for one that is too long.

        Raises NoListError for a text around the objects that cannot be that of a list.
        """
        text, place, self._rest = self._rest + piece, 0, b""
        while place < len(text):
            match = (_INSIDE if self._in_string else _OUTSIDE).match(text, place)
            end = match.end() if match is not None else place
            self._take(text[place:end])
            mark = text[end : end + 1]
            place = end + 1
            if mark == b'"':
                self._take(mark)
                self._in_string = not self._in_string
            elif mark == b"\\":
                # The escaped character comes with the next piece.
                self._rest = mark
            elif mark in (b"{", b"["):
                self._open(mark)
            elif mark:
                yield from self._close(mark)

    def version(self) -> str:
        """Return the version of a complete list; raises NoListError if it is not one."""
        try:
            frame = json.loads(self._frame)
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict) or not isinstance(frame.get("items") or [], list):
            raise NoListError("the API server's answer is not a list of objects")
        return _version(frame.get("metadata"))

    def _open(self, mark: bytes) -> None:
        begins = mark == b"[" and self._depth == 1 and _ITEMS.search(self._frame) is not None
        self._depth += 1
        self._take(mark)
        self._in_items = self._in_items or begins

    def _close(self, mark: bytes) -> Iterator[bytes | None]:
        self._in_items = self._in_items and self._depth > _DEPTH
        self._take(mark)
        self._depth -= 1
        if self._in_items and self._depth == _DEPTH:
            yield bytes(self._object) if len(self._object) <= LONGEST_OBJECT else None
            self._object.clear()

    def _take(self, text: bytes) -> None:
        """Keep a part of an object, or of the text around the objects; drop the text between them."""
        if not self._in_items:
            self._frame += text
            if len(self._frame) > LONGEST_FRAME:
                raise NoListError("the API server's answer is not a list of objects: it has too much else")
        elif self._depth > _DEPTH and len(self._object) <= LONGEST_OBJECT:
            self._object += text


def _version(metadata: Any) -> str:
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise NoListError("the API server's list of objects has no version")
    return version


def mapping(parent: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the object at a path, {} if there is none."""
    for name in path:
        child = parent.get(name)
        if not isinstance(child, dict):
            return {}
        parent = child
    return parent


def text(parent: Mapping[str, Any], name: str) -> str:
    """Return the text at a name, "" if there is none."""
    value = parent.get(name)
    return value if isinstance(value, str) else ""


def texts(parent: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the texts of an object by name; other values are left out."""
    return {key: value for key, value in mapping(parent, name).items() if isinstance(value, str)}


def objects(parent: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list; other values are left out."""
    items = parent.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


class Event(NamedTuple):
    """A change in a collection."""

    kind: str  # ADDED, MODIFIED, DELETED or BOOKMARK
    version: str  # version of the collection after the change
    about: Mapping[str, Any]  # the object


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectQuery:
    """A request for objects of one kind."""

    about: str  # the objects, as in messages
    call: str  # method of the client
    selector: str  # field selector
    right: str  # remedy for a missing permission
    # Whether the first list may come from the API server's cache; the watch brings later changes.
    cached: bool = False


class Collection:
    """The objects of a query, through the client's ``api`` for core objects."""

    def __init__(self, api: Any, query: ObjectQuery) -> None:
        self._api = api
        self._query = query

    async def list(self, take: Callable[[Mapping[str, Any]], None], *, fresh: bool) -> str:
        """Pass each object to ``take``, {} for an unreadable one, and return the collection's version.

        ``fresh`` bypasses the server's cache. Raises NoListError, ApiError and ExpiredError.
        """
        # Every node lists its pods: that is cheap from the server's cache, but reads all pods from etcd.
        cached = {"resource_version": "0"} if self._query.cached and not fresh else {}
        async with await self._ask(LIST_SECONDS, **cached) as answer:
            self._check(answer.status)
            listing, length = ListParser(), 0
            async for piece in answer.content.iter_any():
                length += len(piece)
                if length > LONGEST_LIST:
                    raise NoListError(f"the list of {self._query.about} is longer than {LONGEST_LIST} bytes")
                for item in listing.feed(piece):
                    take(_json(item or b""))
        return listing.version()

    @asynccontextmanager
    async def watch(self, version: str) -> AsyncIterator[AsyncIterator[Event | None]]:
        """Open a watch from a version on. Its events end when the server ends the watch normally.

        An unreadable event is None. Raises ExpiredError, at any time, if the server has dropped the version.
        """
        async with await self._ask(
            WATCH_SECONDS + _GRACE_SECONDS,
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
        ) as answer:
            self._check(answer.status)
            yield (self._event(line) async for line in lines(answer.content.iter_any(), LONGEST_EVENT))

    async def _ask(self, within: float, **query: Any) -> Any:
        self._api.api_client.set_default_header("Accept", "application/json")
        return await getattr(self._api, self._query.call)(
            field_selector=self._query.selector, _preload_content=False, _request_timeout=within, **query
        )

    def _event(self, line: bytes | None) -> Event | None:
        event = _json(line or b"")
        kind, about = text(event, "type"), mapping(event, "object")
        if kind == "ERROR":
            self._check(about.get("code", HTTPStatus.INTERNAL_SERVER_ERROR), text(about, "message"))
        version = text(mapping(about, "metadata"), "resourceVersion")
        return Event(kind, version, about) if kind and version else None

    def _check(self, status: int, message: str = "") -> None:
        if status == HTTPStatus.GONE:
            raise ExpiredError
        if status != HTTPStatus.OK:
            raise ApiError(self._query.about, status, message, self._query.right)


async def lines(chunks: AsyncIterator[bytes], longest: int) -> AsyncIterator[bytes | None]:
    """Yield each line that ends in a line feed, None for one of more than ``longest`` bytes."""
    line = bytearray()
    too_long = False
    async for chunk in chunks:
        for number, part in enumerate(chunk.split(b"\n")):
            if number:
                yield None if too_long else bytes(line)
                line.clear()
                too_long = False
            too_long = too_long or len(line) + len(part) > longest
            if not too_long:
                line += part


def _json(line: bytes) -> dict[str, Any]:
    """Parse an event or an object; return {} if it is not an object, or is nested too deeply."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
