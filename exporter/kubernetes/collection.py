"""A collection of the Kubernetes API, as far as it is about one node: listed, and watched."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

_REFUSED = "the token of the service account is refused; it is read anew for the next try"


class ApiError(Exception):
    """The API server refused to tell of something; ``right`` says who may let it, and how."""

    def __init__(self, about: str, status: int, message: str, right: str) -> None:
        remedies = {int(HTTPStatus.UNAUTHORIZED): _REFUSED, int(HTTPStatus.FORBIDDEN): right}
        detail = f"the API server answers {status} when asked for {about}"
        super().__init__("; ".join(filter(None, (detail, message, remedies.get(status)))))
        self.forbidden = status == HTTPStatus.FORBIDDEN


class ExpiredError(Exception):
    """The server no longer knows what changed since the version that was asked for."""


class NoListError(Exception):
    """What the server answers is not the list of objects that it was asked for, or not all of it."""


class TooLongError(Exception):
    """A list is longer than anything that can be of one node."""


# What etcd stores of one object is 1.5 MiB at most, which as JSON is somewhat more.
LONGEST_OBJECT: Final = 4 << 20
# What stands around the objects takes some hundred bytes.
LONGEST_FRAME: Final = 1 << 16
# Brackets around an object of the list: those of the list, and those of the whole.
_AROUND: Final = 2
_ITEMS: Final = re.compile(rb'"items"\s*:\s*\Z')
_OUTSIDE: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_INSIDE: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class Listing:
    """Takes a list in pieces of any size, and keeps of it no more than one object and what is around them.

    It looks at brackets and strings only: what else is wrong with an object costs that object.
    """

    def __init__(self) -> None:
        self._frame = bytearray()
        self._object = bytearray()
        self._rest = b""
        self._depth = 0
        self._in_string = False
        self._in_items = False

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield each object that ends in this piece, None for one that is too long; raises TooLongError."""
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
                # The character that it is about comes with the next piece.
                self._rest = mark
            elif mark in (b"{", b"["):
                self._open(mark)
            elif mark:
                yield from self._close(mark)

    def version(self) -> str:
        """Return the version of the list when all of it has come; raises NoListError where it is none."""
        try:
            frame = json.loads(self._frame)
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict) or not isinstance(frame.get("items") or [], list):
            raise NoListError("what the API server answers is no list of objects")
        return _version(frame.get("metadata"))

    def _open(self, mark: bytes) -> None:
        begins = mark == b"[" and self._depth == 1 and _ITEMS.search(self._frame) is not None
        self._depth += 1
        self._take(mark)
        self._in_items = self._in_items or begins

    def _close(self, mark: bytes) -> Iterator[bytes | None]:
        self._in_items = self._in_items and self._depth > _AROUND
        self._take(mark)
        self._depth -= 1
        if self._in_items and self._depth == _AROUND:
            yield bytes(self._object) if len(self._object) <= LONGEST_OBJECT else None
            self._object.clear()

    def _take(self, text: bytes) -> None:
        """Keep a part of an object or of what is around them; what is between objects says nothing."""
        if not self._in_items:
            self._frame += text
            if len(self._frame) > LONGEST_FRAME:
                raise TooLongError("what the API server answers is no list of objects: it has too much else")
        elif self._depth > _AROUND and len(self._object) <= LONGEST_OBJECT:
            self._object += text


def _version(metadata: Any) -> str:
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise NoListError("the API server's list of objects is without a version")
    return version


def mapping(parent: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """Return the object at a path, {} where there is none."""
    for name in path:
        found = parent.get(name)
        if not isinstance(found, dict):
            return {}
        parent = found
    return parent


def text(parent: Mapping[str, Any], name: str) -> str:
    """Return the text of a name, "" where there is none."""
    found = parent.get(name)
    return found if isinstance(found, str) else ""


def texts(parent: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the texts of an object by name; other values are left out."""
    return {key: value for key, value in mapping(parent, name).items() if isinstance(value, str)}


def objects(parent: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list; other values are left out."""
    found = parent.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


WATCH_SECONDS: Final = 240
LIST_SECONDS: Final = 10.0
# The brackets of an event around its object take some bytes.
LONGEST_EVENT: Final = LONGEST_OBJECT + 1024
# Whoever may make pods may annotate each with a quarter of a mebibyte.
LONGEST_LIST: Final = 256 << 20
_GRACE_SECONDS: Final = 10


class Event(NamedTuple):
    """A change: ``kind`` is ADDED, MODIFIED, DELETED or BOOKMARK, ``version`` that of the collection."""

    kind: str
    version: str
    about: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked: ``call`` is the client's method, ``selector`` chooses by fields, ``about`` names it.

    ``cached``: the first list may be that which the API server has at hand; the watch tells what it lacks.
    ``right`` is what to do about a missing right.
    """

    about: str
    call: str
    selector: str
    right: str
    cached: bool = False


class Collection:
    """The objects that a query is about, asked for with the client's ``api`` of core objects."""

    def __init__(self, api: Any, query: Query) -> None:
        self._api = api
        self._query = query

    async def list(self, take: Callable[[Mapping[str, Any]], None], *, fresh: bool) -> str:
        """Give each object to ``take``, {} for one that cannot be read, and return the collection's version.

        ``fresh`` asks for what is stored now. Raises NoListError where the answer is no whole list.
        """
        # Many nodes ask for their pods: from the server's memory that is cheap, from etcd it is all pods.
        cached = {"resource_version": "0"} if self._query.cached and not fresh else {}
        async with await self._ask(LIST_SECONDS, **cached) as answer:
            self._check(answer.status)
            listing, length = Listing(), 0
            async for piece in answer.content.iter_any():
                length += len(piece)
                if length > LONGEST_LIST:
                    raise TooLongError(f"the list of {self._query.about} is longer than {LONGEST_LIST} bytes")
                for each in listing.feed(piece):
                    take(_json(each or b""))
        return listing.version()

    @asynccontextmanager
    async def watch(self, version: str) -> AsyncIterator[AsyncIterator[Event | None]]:
        """Open a watch from a version on. Its events end when the server ends the watch in good order.

        An event that cannot be read is None. Raises ExpiredError, at any time, when the server has forgotten
        the version.
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
        found = _json(line or b"")
        kind, about = text(found, "type"), mapping(found, "object")
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
    """Parse an event or an object; {} for what is none, or is nested beyond measure."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
