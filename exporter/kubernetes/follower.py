"""A collection of the Kubernetes API, followed through whatever its server does: list, watch, begin anew."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from exporter.kubernetes.access import Configure
from exporter.kubernetes.collection import (
    LIST_SECONDS,
    ApiError,
    Collection,
    Event,
    ExpiredError,
    Query,
    mapping,
    text,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

LONGEST_PAUSE: Final = 60.0
# So many different objects are complained of, one line each.
MOST_OBJECTIONS: Final = 100
LONGEST_NAME: Final = 300


class Client(NamedTuple):
    """What it takes to ask an API server: the client's library, and a configuration for it."""

    library: ModuleType
    configure: Configure


class Pace(NamedTuple):
    """Seconds: after an error the pause begins with ``first_pause`` and doubles.

    What is known is forgotten ``forget_after`` seconds after the API server was last heard of. A watch that
    is well is renewed before that.
    """

    first_pause: float = 1.0
    forget_after: float = 300.0


PACE: Final = Pace()


class Follower(Generic[T]):
    """Keeps what ``read`` makes of the objects that a query is about, None of one that cannot be read.

    ``changed`` is called with ``objects`` whenever these may have changed: by the uid of the API's object,
    None while nothing is known. ``live`` says whether a watch is open, so that they are as of now, and
    ``failure`` why there is none. ``answered`` is set once the server has told of objects, or refused to.
    """

    def __init__(
        self,
        query: Query,
        read: Callable[[Mapping[str, Any]], T | None],
        changed: Callable[[Mapping[str, T] | None], None] = lambda _objects: None,
        pace: Pace = PACE,
    ) -> None:
        self.objects: dict[str, T] | None = None
        self.live = False
        self.failure = ""
        self.answered = asyncio.Event()
        self._query = query
        self._read = read
        self._changed = changed
        self._pace = pace
        self._pause = pace.first_pause
        self._fresh = False
        self._forgetting: asyncio.TimerHandle | None = None
        self._configuring: asyncio.Future[Any] | None = None
        self._objected: set[str] = set()

    async def run(self, client: Client) -> None:
        """Follow until cancelled."""
        try:
            while True:
                await self._connection(client)
                await self._rest()
        finally:
            self._forget_nothing()
            if self._configuring is not None:
                self._configuring.cancel()

    async def _connection(self, client: Client) -> None:
        """List and watch until something fails, and tell the log of it once."""
        try:
            configuration = await self._configured(client)
            async with client.library.ApiClient(configuration) as connection:
                collection = Collection(client.library.CoreV1Api(connection), self._query)
                while True:
                    with suppress(ExpiredError):
                        await self._follow(collection)
                    # What a server has at hand may itself be older than what it can tell the changes of.
                    self._fresh = True
                    self.live = False
                    # A server that forgets each version at once would be asked for all objects each time.
                    await self._rest()
        except TimeoutError:
            self._failed("the API server does not answer in time")
        except Exception as error:  # noqa: BLE001 - whatever a client meets, the exporter goes on without it
            self._failed(str(error) or repr(error))
            if isinstance(error, ApiError) and error.forbidden:
                self.answered.set()

    async def _configured(self, client: Client) -> Any:
        """Make a configuration, or wait on for the one that is being made; raises TimeoutError.

        A file system or a program that it asks may hang: no second one is begun beside it.
        """
        making = self._configuring = self._configuring or asyncio.ensure_future(client.configure())
        await asyncio.wait({making}, timeout=LIST_SECONDS)
        if not making.done():
            raise TimeoutError
        self._configuring = None
        return making.result()

    async def _follow(self, collection: Collection) -> None:
        """List once, then watch, each watch from where the last one ended; raises ExpiredError and others."""
        version = await self._list(collection)
        while True:
            # That a watch was granted proves that what is known holds, but not yet that it will last.
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
        """Learn of all objects, and return the version that they are of."""
        found: dict[str, T] = {}

        def take(about: Mapping[str, Any]) -> None:
            if (record := self._record(about)) is not None:
                found[_uid(about)] = record

        version = await collection.list(take, fresh=self._fresh)
        self.objects = found
        self._heard()
        self._changed(found)
        self.answered.set()
        return version

    async def _rest(self) -> None:
        """Sleep, and longer the next time unless things are well in between."""
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
        if record is None:
            self._object_to(f"an object ({_name(about)})")
        return record

    def _object_to(self, what: str) -> None:
        if what not in self._objected and len(self._objected) < MOST_OBJECTIONS:
            self._objected.add(what)
            log.warning("%s: skipped %s: cannot be read", self._query.about, what)

    def _heard(self) -> None:
        """Note that the server vouches for what is known."""
        self._forget_nothing()
        self._forgetting = asyncio.get_running_loop().call_later(self._pace.forget_after, self._forget)

    def _recovered(self) -> None:
        self._pause = self._pace.first_pause
        self._fresh = False
        if self.failure:
            log.info("watching %s again", self._query.about)
            self.failure = ""

    def _failed(self, failure: str) -> None:
        self.live = False
        if failure != self.failure:
            log.warning("cannot watch %s: %s; retrying", self._query.about, failure)
            self.failure = failure

    def _forget(self) -> None:
        log.warning("dropped %s: no answer for %g s", self._query.about, self._pace.forget_after)
        self.objects = None
        self._changed(None)

    def _forget_nothing(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()


def _uid(about: Mapping[str, Any]) -> str:
    return text(mapping(about, "metadata"), "uid")


def _name(about: Mapping[str, Any]) -> str:
    metadata = mapping(about, "metadata")
    names = text(metadata, "namespace"), text(metadata, "name")
    return "/".join(filter(None, names))[:LONGEST_NAME] or "without a name"
