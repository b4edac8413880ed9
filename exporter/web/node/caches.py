"""What is made of the newest snapshot, in a thread: pages, documents of the API, and the metrics page.

Each is made once per snapshot, or once per second if it shows ages. Clients can request any number of
queries, so pages are drawn in turns.
"""

import json
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, TypeVar

from markupsafe import Markup

from exporter.advice.model import Advice
from exporter.concurrency import in_scrape_thread, in_thread
from exporter.doctor import Report
from exporter.exposition import Exposition, Format, Page
from exporter.formats.advice import advice_csv, advice_document
from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from exporter.history.ended import EndedHolders
from exporter.model import ContainerRef, ContainerRow, Snapshot
from exporter.web.kit.html import Drawing, Opened, page
from exporter.web.kit.render_queue import RenderQueue, SharedTask, TaskCache
from exporter.web.node.parameters import Place

if TYPE_CHECKING:
    from exporter.web.node.pages.scene import Scene

Made = TypeVar("Made")
# Returns the advice on one container, or on all.
Advise = Callable[[Snapshot, ContainerRef | None], Sequence[Advice]]
# A format of the metrics page, and whether it is compressed.
_Form = tuple[Format, bool]


@dataclass(eq=False)
class PageCache:
    """The pages of the snapshot that ``current`` returns; the other fields are those of a ``Scene``."""

    current: Callable[[], Snapshot]
    _: KW_ONLY
    idle_after: float = 600.0
    interval: float = 5.0
    spans: tuple[str, ...] = ("5m", "1h", "6h")
    sparkline: Callable[[ContainerRow], Markup] | None = None
    advise: Callable[[Snapshot, ContainerRef], Sequence[Advice]] = lambda _snapshot, _ref: ()
    report: Callable[[], Report] = lambda: Report("", ())
    ended: EndedHolders = field(default_factory=EndedHolders)

    def __post_init__(self) -> None:
        self._cache = TaskCache()
        self._turns = RenderQueue()
        self._tagged: Snapshot | None = None
        self._tag = ""

    @property
    def tag(self) -> str:
        """A name of this snapshot, unique also across restarts of the exporter."""
        current = self.current()
        if self._tagged is not current:
            self._tagged = current
            # Sequences restart at 1 and may repeat, so the time is part of the name.
            self._tag = f"{current.sequence}-{time.time_ns():x}"
        return self._tag

    @property
    def timestamp(self) -> float:
        """Unix time of this snapshot."""
        return self.current().timestamp

    async def drawing(self, place: Place, *, refusing: bool = False) -> Drawing | None:
        """Return a page, None if its subject does not exist.

        ``refusing`` answers 503 if too many pages wait to be drawn.
        """
        snapshot, now = self.current(), time.time()

        def draw() -> Drawing | None:
            # Imported on first use and in a thread: the pages of most nodes are never opened.
            from exporter.web.node.pages.layout import DRAWN  # noqa: PLC0415

            return DRAWN[place.kind](self._scene(snapshot, now, place), *place.names)

        self._cache.renew(snapshot, int(now))
        if refusing and place not in self._cache.tasks:
            self._turns.refuse_where_full()
        return await self._cache.start(place, lambda: in_thread(draw), self._turns).wait()

    async def holder_text(self, place: Place) -> bytes | None:
        """Return the page of a holder as text, None if there is no such holder."""
        snapshot, now = self.current(), time.time()

        def write() -> bytes | None:
            from exporter.web.node.pages.holder_report import holder_text  # noqa: PLC0415 - as above

            text = holder_text(self._scene(snapshot, now, place), *place.names)
            return None if text is None else text.encode()

        self._cache.renew(snapshot, int(now))
        key = ("text", place)
        if key not in self._cache.tasks:
            self._turns.refuse_where_full()
        return await self._cache.start(key, lambda: in_thread(write), self._turns).wait()

    def _scene(self, snapshot: Snapshot, now: float, place: Place) -> "Scene":
        from exporter.web.node.pages.scene import Scene  # noqa: PLC0415 - as above

        return Scene(
            snapshot,
            now=now,
            idle_after=self.idle_after,
            interval=self.interval,
            root=place.root,
            query=place.query,
            spans=self.spans,
            sparkline=self.sparkline,
            advise=self.advise,
            report=self.report,
            ended=self.ended,
        )

    async def html(self, place: Place) -> bytes | None:
        """Return a page as HTML, None if its subject does not exist."""
        opened = Opened(
            live=f"{place.root}live/{place.path}",
            tag=self.tag,
            timestamp=self.timestamp,
            now=time.time(),
            interval=self.interval,
        )
        # The plain node page is drawn once per second at most, so it is never refused.
        drawing = await self.drawing(place, refusing=place != Place())
        if drawing is None:
            return None

        def write() -> bytes:
            return page(drawing, place.root, opened).encode()

        # While it was drawn there may have been a new snapshot: the key has the name of the drawn one.
        self._cache.renew(self.current(), int(time.time()))
        return await self._cache.start((place, opened.tag), lambda: in_thread(write), self._turns).wait()


@dataclass(eq=False)
class DocumentCache:
    """The documents of the API for the snapshot that ``current`` returns."""

    current: Callable[[], Snapshot]
    _: KW_ONLY
    idle_after: float = 600.0  # seconds without compute until a holder is idle
    # Judges which slice would fit each holder.
    advise: Advise = lambda _snapshot, _only: ()
    report: Callable[[], Report] = lambda: Report("", ())  # the doctor's report on the last poll
    price: float | None = None  # of a GPU-hour

    def __post_init__(self) -> None:
        self._of_snapshot = TaskCache()
        self._of_second = TaskCache()

    async def snapshot_as(self, form: str) -> bytes:
        """Return the snapshot as ``json``, its containers as ``csv``, or the node as ``text``, with ages."""
        snapshot, now, idle_after = self.current(), time.time(), self.idle_after
        make: Callable[[], str] = {
            "json": lambda: json.dumps(snapshot_json(snapshot, idle_after=idle_after)),
            "csv": lambda: snapshot_csv(snapshot, idle_after=idle_after),
            "text": lambda: snapshot_text(snapshot, now=now, idle_after=idle_after),
        }[form]
        once = self._once_a_second if form == "text" else self._once
        return await once(form, lambda: make().encode())

    async def advice_as(self, form: str) -> bytes:
        """Return the advice on all holders as ``json`` or ``csv``."""
        snapshot, price = self.current(), self.price

        def make() -> bytes:
            advices = self.advise(snapshot, None)
            if form == "csv":
                return advice_csv(advices).encode()
            return json.dumps(advice_document(advices, snapshot.timestamp, price)).encode()

        return await self._once(("advice", form), make)

    async def doctor(self) -> Report:
        """Return the doctor's report, which shows ages."""
        return await self._once_a_second("report", self.report)

    async def _once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        self._of_snapshot.renew(self.current())
        return await self._of_snapshot.start(key, lambda: in_thread(make)).wait()

    async def _once_a_second(self, key: Hashable, make: Callable[[], Made]) -> Made:
        self._of_second.renew(self.current(), int(time.time()))
        return await self._of_second.start(key, lambda: in_thread(make)).wait()


class MetricsCache:
    """The metrics page of the snapshot that ``current`` returns; each form is rendered off the loop."""

    def __init__(self, current: Callable[[], Snapshot], exposition: Exposition) -> None:
        self._current = current
        self._exposition = exposition
        self._page = exposition.page(current())
        self._tasks = TaskCache()
        # Forms requested of the current and the previous snapshot.
        self._requested: set[_Form] = set()
        self._requested_earlier: set[_Form] = set()

    def turn(self, _snapshot: Snapshot) -> None:
        """Take the newest snapshot; to be called for each one.

        A form that was requested of both previous snapshots is rendered at once, so that a Prometheus that
        scrapes every snapshot need not wait for it.
        """
        steady = self._requested & self._requested_earlier
        self._requested_earlier, self._requested = self._requested, set()
        page = self._fresh_page()
        for form in steady:
            self._start(form, page)

    async def body(self, fmt: Format, zipped: bool) -> bytes:
        """Return the metrics page in one format."""
        page, form = self._fresh_page(), (fmt, zipped)
        self._requested.add(form)
        if page.ready(fmt, zipped=zipped):
            return page.gzipped(fmt) if zipped else page.body(fmt)
        return await self._start(form, page).wait()

    def _fresh_page(self) -> Page:
        current = self._current()
        if self._page.snapshot is not current:
            self._page = self._exposition.page(current)
        self._tasks.renew(current)
        return self._page

    def _start(self, form: _Form, page: Page) -> SharedTask[bytes]:
        fmt, zipped = form
        make = page.gzipped if zipped else page.body
        return self._tasks.start(form, lambda: in_scrape_thread(make, fmt))
