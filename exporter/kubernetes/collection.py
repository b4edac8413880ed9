"""A collection of the Kubernetes API: list, and watch.

Format: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from exporter.kubernetes.listing import (
    LONGEST_FRAME,
    LONGEST_OBJECT,
    ListParser,
    NoListError,
    without_managed_fields,
)

_REFUSED = "the service account's token is refused; it is read again for the next attempt"
WATCH_SECONDS: Final = 240
LIST_SECONDS: Final = 10.0
# A page of 500 pods has some MiB, and a user's way to the server may be slow.
PAGE_SECONDS: Final = 30.0
# The text of an event around its object takes some bytes.
LONGEST_EVENT: Final = LONGEST_OBJECT + 1024
# A pod may have annotations of 256 KiB.
LONGEST_LIST: Final = 256 << 20
# Pages of a list: a server that never ends one does not hold us for ever.
MOST_PAGES: Final = 10_000
_GRACE_SECONDS: Final = 10
_PERHAPS_ABSENT: Final = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})
_OTHER_VERSIONS: Final = "it has them in versions only that are not read here: %s"


class ApiError(Exception):
    """The API server refused a request for ``about``; ``right`` is the remedy for a missing permission."""

    def __init__(self, about: str, status: int, message: str, right: str) -> None:
        remedies = {int(HTTPStatus.UNAUTHORIZED): _REFUSED, int(HTTPStatus.FORBIDDEN): right}
        detail = f"the API server answers {status} when asked for {about}"
        super().__init__("; ".join(filter(None, (detail, message, remedies.get(status)))))
        self.status = status
        self.forbidden = status == HTTPStatus.FORBIDDEN


class ExpiredError(Exception):
    """The server no longer has the changes since the requested version."""


class NotServedError(Exception):
    """The cluster does not have this kind of objects."""


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
    paths: tuple[str, ...]  # of the API, the first that is served counts: one for each version
    selector: str = ""  # field selector
    right: str  # remedy for a missing permission
    # Whether the first list may come from the API server's cache; the watch brings later changes.
    cached: bool = False
    page: int = 0  # objects in one answer; 0: all
    # Path of the API group of a kind that not all clusters have, which says so; "" for all other kinds.
    group: str = ""


class Collection:
    """The objects of a query, through the client's connection."""

    def __init__(self, connection: Any, query: ObjectQuery) -> None:
        self._connection = connection
        self._query = query
        self._path = query.paths[0]

    async def list(self, take: Callable[[Mapping[str, Any]], None], *, fresh: bool) -> str:
        """Pass each object to ``take``, {} for an unreadable one, and return the collection's version.

        ``fresh`` bypasses the server's cache. Raises NoListError, ApiError, ExpiredError and NotServedError.
        """
        for path in self._query.paths:
            self._path = path
            try:
                return await self._list(take, fresh=fresh)
            except ApiError as error:
                if not self._query.group or error.status not in _PERHAPS_ABSENT:
                    raise
                refused = error
                if error.forbidden:
                    break
        await self._check_absent(refused)
        raise NotServedError

    async def _list(self, take: Callable[[Mapping[str, Any]], None], *, fresh: bool) -> str:
        rest = ""
        for _ in range(MOST_PAGES):
            version, rest = await self._list_page(take, rest, fresh=fresh)
            if not rest:
                return version
        raise NoListError(f"the list of {self._query.about} has more than {MOST_PAGES} pages")

    async def _list_page(
        self, take: Callable[[Mapping[str, Any]], None], rest: str, *, fresh: bool
    ) -> tuple[str, str]:
        """Return the version, and by what the next page is asked for."""
        query = {"limit": self._query.page, "continue": rest}
        if self._query.cached and not fresh:
            # Every node lists its pods: that is cheap from the server's cache, but reads all pods from etcd.
            query["resourceVersion"] = "0"
        within = PAGE_SECONDS if self._query.page else LIST_SECONDS
        async with await self._ask(self._path, within, query) as answer:
            self._check(answer.status)
            listing, length = ListParser(), 0
            async for piece in answer.content.iter_any():
                length += len(piece)
                if length > LONGEST_LIST:
                    raise NoListError(f"the list of {self._query.about} is longer than {LONGEST_LIST} bytes")
                for item in listing.feed(piece):
                    take(_json(item or b""))
        return listing.version(), listing.rest

    async def _check_absent(self, refused: ApiError) -> None:
        """Return if the cluster does not have this kind; raises ApiError if it has, or does not say so."""
        async with await self._ask(self._query.group, LIST_SECONDS, {}) as answer:
            if answer.status == HTTPStatus.NOT_FOUND:
                return
            self._check(answer.status)
            group = _json(await answer.content.read(LONGEST_FRAME))
        served = {text(each, "version") for each in objects(group, "versions")}
        read = {path.split("/")[3] for path in self._query.paths}
        if refused.forbidden or not served:
            raise refused
        if others := sorted(served - read):
            raise ApiError(self._query.about, refused.status, _OTHER_VERSIONS % ", ".join(others), "")

    @asynccontextmanager
    async def watch(self, version: str) -> AsyncIterator[AsyncIterator[Event | None]]:
        """Open a watch from a version on. Its events end when the server ends the watch normally.

        An unreadable event is None. Raises ExpiredError, at any time, if the server has dropped the version.
        """
        query = {
            "watch": True,
            "resourceVersion": version,
            "allowWatchBookmarks": True,
            "timeoutSeconds": WATCH_SECONDS,
        }
        async with await self._ask(self._path, WATCH_SECONDS + _GRACE_SECONDS, query) as answer:
            self._check(answer.status)
            yield (self._event(line) async for line in lines(answer.content.iter_any(), LONGEST_EVENT))

    async def _ask(self, path: str, within: float, query: Mapping[str, Any]) -> Any:
        selected = {"fieldSelector": "" if path == self._query.group else self._query.selector, **query}
        return await self._connection.call_api(
            path,
            "GET",
            query_params=[(name, value) for name, value in selected.items() if value],
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=within,
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
        value = json.loads(without_managed_fields(line))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
