"""Watches a collection of the Kubernetes API through all failures: list, watch, and start again."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from exporter.kubernetes.access import Configure
from exporter.kubernetes.collection import (
    LIST_SECONDS,
    ApiError,
    Collection,
    Event,
    ExpiredError,
    NotServedError,
    ObjectQuery,
    mapping,
    text,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

LONGEST_PAUSE: Final = 60.0
# Unreadable objects that are logged, one line each.
MOST_OBJECTIONS: Final = 100
LONGEST_NAME: Final = 300


class Skipped(Enum):
    """What a reader returns for an object that no record is kept of."""

    SKIPPED = ""


class Client(NamedTuple):
    """The client's library, and a function that returns its configuration."""

    library: ModuleType
    configure: Configure


class Pace(NamedTuple):
    """Times of a follower in seconds."""

    first_pause: float = 1.0  # pause after the first error; it doubles with each further one
    # Objects are dropped this long after the last answer. A healthy watch is renewed earlier.
    forget_after: float = 300.0


PACE: Final = Pace()


class Follower(Generic[T]):
    """Keeps the objects of a query as records.

    ``read`` returns a record, SKIPPED for an object that is not kept, and None for an unreadable one.
    ``changed`` is called with ``objects`` whenever these may have changed.
    """

    def __init__(
        self,
        query: ObjectQuery,
        read: Callable[[Mapping[str, Any]], T | Skipped | None],
        changed: Callable[[Mapping[str, T] | None], None] = lambda _objects: None,
        pace: Pace = PACE,
    ) -> None:
        self.objects: dict[str, T] | None = None  # records by uid of the API's object, None while unknown
        self.live = False  # whether a watch is open, so that the records are current
        self.failure = ""  # why no watch is open, "" if one is
        self.answered = asyncio.Event()  # set once the server has listed objects, or has refused to
        self.tried = asyncio.Event()  # set once the server has listed objects, or that has failed
        self.unread = 0  # objects and events since the last list that could not be read
        self._query = query
        self._read = read
        self._changed = changed
        self._pace = pace
        self._pause = pace.first_pause
        self._fresh = False
        self._heard_at: float | None = None
        self._forgetting: asyncio.TimerHandle | None = None
        self._configuring: asyncio.Future[Any] | None = None
        self._objected: set[str] = set()

    @property
    def age(self) -> float | None:
        """Seconds since the last answer by which the objects are current; None while they are unknown."""
        if self.objects is None or self._heard_at is None:
            return None
        return asyncio.get_running_loop().time() - self._heard_at

    async def run(self, client: Client) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await self._connect(client)
                await self._pause_longer()
        finally:
            self._cancel_forgetting()
            if self._configuring is not None:
                self._configuring.cancel()

    async def _connect(self, client: Client) -> None:
        """List and watch until something fails, and log that once."""
        try:
            configuration = await self._configured(client)
            async with client.library.ApiClient(configuration) as connection:
                collection = Collection(connection, self._query)
                while True:
                    with suppress(ExpiredError):
                        await self._follow(collection)
                    # The server's cache may be older than the changes that it still has.
                    self._fresh = True
                    self.live = False
                    # A server that expires each version at once would have to list all objects each time.
                    await self._pause_longer()
        except NotServedError:
            self._absent()
        except TimeoutError:
            self._failed("the API server does not answer in time")
        except Exception as error:  # noqa: BLE001 - no error of a client may stop the exporter
            self._failed(str(error) or repr(error))
            if isinstance(error, ApiError) and error.forbidden:
                self.answered.set()

    async def _configured(self, client: Client) -> Any:
        """Return a configuration; raises TimeoutError.

        It may need a file system or a program that hangs: a pending one is waited for, not started again.
        """
        if self._configuring is None:
            self._configuring = asyncio.ensure_future(client.configure())
        pending = self._configuring
        await asyncio.wait({pending}, timeout=LIST_SECONDS)
        if not pending.done():
            raise TimeoutError
        self._configuring = None
        return pending.result()

    async def _follow(self, collection: Collection) -> None:
        """List once, then watch, each time from the last version; raises ExpiredError and others."""
        version = await self._list(collection)
        while True:
            # An open watch proves that the objects are current, but not that it will last.
            async with collection.watch(version) as events:
                self.live = True
                self._heard()
                async for event in events:
                    if event is None:
                        self._object_to("an event")
                    else:
                        version = event.version
                        self._happened(event)
                    self._heard()
                    self._recovered()
            self._recovered()
            await asyncio.sleep(self._pace.first_pause)

    async def _list(self, collection: Collection) -> str:
        """List all objects, and return their version."""
        records: dict[str, T] = {}
        previous, self.unread = self.objects or {}, 0

        def take(about: Mapping[str, Any]) -> None:
            record, uid = self._record(about), _uid(about)
            if record is not None:
                # Most objects are as before: two copies of a large collection would take much memory.
                records[uid] = previous[uid] if previous.get(uid) == record else record

        version = await collection.list(take, fresh=self._fresh)
        self._listed(records)
        return version

    def _listed(self, records: dict[str, T]) -> None:
        self.objects = records
        self._heard()
        self._changed(records)
        self.answered.set()
        self.tried.set()

    def _absent(self) -> None:
        """Note that there can be no objects of this kind, until the server has it."""
        self.unread, self.failure = 0, ""
        self._listed({})

    async def _pause_longer(self) -> None:
        """Sleep, longer each time until the watch recovers."""
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _happened(self, event: Event) -> None:
        if self.objects is None or event.kind == "BOOKMARK":
            return
        uid = _uid(event.about)
        record = self._record(event.about) if event.kind in ("ADDED", "MODIFIED") else None
        if record is None:
            self.objects.pop(uid, None)
        else:
            self.objects[uid] = record
        self._changed(self.objects)

    def _record(self, about: Mapping[str, Any]) -> T | None:
        record = self._read(about) if _uid(about) else None
        if isinstance(record, Skipped):
            return None
        if record is None:
            self._object_to(f"an object ({_name(about)})")
        return record

    def _object_to(self, item: str) -> None:
        self.unread += 1
        if item not in self._objected and len(self._objected) < MOST_OBJECTIONS:
            self._objected.add(item)
            log.warning("%s: skipped %s: cannot be read", self._query.about, item)

    def _heard(self) -> None:
        """Note an answer of the server, by which the objects are current."""
        self._cancel_forgetting()
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        self._forgetting = loop.call_later(self._pace.forget_after, self._forget)

    def _recovered(self) -> None:
        self._pause = self._pace.first_pause
        self._fresh = False
        if self.failure:
            log.info("watching %s again", self._query.about)
            self.failure = ""

    def _failed(self, failure: str) -> None:
        self.live = False
        self.tried.set()
        if failure != self.failure:
            log.warning("cannot watch %s: %s; retrying", self._query.about, failure)
            self.failure = failure

    def _forget(self) -> None:
        log.warning("dropped %s: no answer for %g s", self._query.about, self._pace.forget_after)
        self.objects = None
        self._changed(None)

    def _cancel_forgetting(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()


def _uid(about: Mapping[str, Any]) -> str:
    return text(mapping(about, "metadata"), "uid")


def _name(about: Mapping[str, Any]) -> str:
    metadata = mapping(about, "metadata")
    names = text(metadata, "namespace"), text(metadata, "name")
    return "/".join(filter(None, names))[:LONGEST_NAME] or "without a name"
