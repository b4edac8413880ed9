"""A collection of the Kubernetes API, as far as it is about one node: listed, and watched."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from exporter.kubernetes.errors import ApiError, ExpiredError, TooLongError
from exporter.kubernetes.listing import LONGEST_OBJECT, Listing
from exporter.kubernetes.values import mapping, text

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
