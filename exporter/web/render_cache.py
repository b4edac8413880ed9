"""Everything rendered from a snapshot, each once: per snapshot, or per second if it shows an age.

Rendering runs in a thread, off the loop; requests for the same thing meanwhile wait for the same
result. Clients can request any number of queries, so pages are drawn in turns.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from markupsafe import Markup

from exporter.advice.model import Advice
from exporter.concurrency import in_scrape_thread, in_thread
from exporter.doctor import Report
from exporter.exposition import Exposition, Format, Page
from exporter.formats.advice import advice_csv, advice_document
from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from exporter.model import ContainerRef, ContainerRow, Snapshot
from exporter.web.html import Drawing, Opened, page
from exporter.web.parameters import Place
from exporter.web.render_queue import RenderQueue, SharedTask, TaskCache

Made = TypeVar("Made")
# A format of the metrics page, and whether it is compressed.
_Form = tuple[Format, bool]
Advise = Callable[[Snapshot, ContainerRef | None], Sequence[Advice]]
"""Returns the advice on one container, or on all."""


@dataclass(eq=False)
class RenderCache:
    """The pages of the newest snapshot, each rendered once."""

    current: Callable[[], Snapshot]  # returns the snapshot to show
    exposition: Exposition
    _: KW_ONLY
    idle_after: float = 600.0  # seconds without compute until a holder is idle
    interval: float = 5.0  # seconds between snapshots
    spans: tuple[str, ...] = ("5m", "1h", "6h")  # ranges of timelines
    # Draws a holder's last hour in its row; None without history.
    sparkline: Callable[[ContainerRow], Markup] | None = None
    # Judges which slice would fit each holder.
    advise: Advise = lambda _snapshot, _only: ()
    report: Callable[[], Report] = lambda: Report("", ())  # the doctor's report on the last poll
    price: float | None = None  # of a GPU-hour

    def __post_init__(self) -> None:
        self._page = self.exposition.page(self.current())
        self._tag = _tag(self._page.snapshot)
        self._cache = TaskCache()
        self._turns = RenderQueue()
        self._second = 0
        # Forms of the metrics page requested of the current and the previous snapshot.
        self._requested: set[_Form] = set()
        self._requested_earlier: set[_Form] = set()

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that the pages show."""
        return self._fresh_page().snapshot

    @property
    def tag(self) -> str:
        """A name of this snapshot, unique also across restarts of the exporter."""
        self._fresh_page()
        return self._tag

    @property
    def timestamp(self) -> float:
        """Unix time of this snapshot."""
        return self.snapshot.timestamp

    def turn(self, _snapshot: Snapshot) -> None:
        """Take the newest snapshot; to be called for each one.

        A form of the metrics page that was requested of both previous snapshots is rendered at once, so that
        a Prometheus that scrapes every snapshot need not wait for it.
        """
        steady = self._requested & self._requested_earlier
        self._requested_earlier, self._requested = self._requested, set()
        page = self._fresh_page()
        for form in steady:
            self._start(form, page)

    async def metrics(self, fmt: Format, zipped: bool) -> bytes:
        """Return the metrics page in one format."""
        page, form = self._fresh_page(), (fmt, zipped)
        self._requested.add(form)
        if page.ready(fmt, zipped=zipped):
            return page.gzipped(fmt) if zipped else page.body(fmt)
        return await self._start(form, page).wait()

    async def snapshot_as(self, form: str) -> bytes:
        """Return the snapshot as ``json``, its containers as ``csv``, or the node as ``text``, with ages."""
        snapshot, now, idle_after = self.snapshot, time.time(), self.idle_after
        make: Callable[[], str] = {
            "json": lambda: json.dumps(snapshot_json(snapshot, idle_after=idle_after)),
            "csv": lambda: snapshot_csv(snapshot, idle_after=idle_after),
            "text": lambda: snapshot_text(snapshot, now=now, idle_after=idle_after),
        }[form]
        key = (self._aging(now), form) if form == "text" else (form,)
        return await self._once(key, lambda: make().encode())

    async def advice_as(self, form: str) -> bytes:
        """Return the advice on all holders as ``json`` or ``csv``."""
        snapshot, price = self.snapshot, self.price

        def make() -> bytes:
            advices = self.advise(snapshot, None)
            if form == "csv":
                return advice_csv(advices).encode()
            return json.dumps(advice_document(advices, snapshot.timestamp, price)).encode()

        return await self._once(("advice", form), make)

    async def doctor(self) -> Report:
        """Return the doctor's report, which shows ages."""
        return await self._once((self._aging(time.time()), "report"), self.report)

    async def drawing(self, place: Place, *, refusing: bool = False) -> Drawing | None:
        """Return a page, None if its subject does not exist; it shows ages, so it is valid for a second.

        ``refusing`` answers 503 if too many pages wait to be drawn.
        """
        snapshot, now = self.snapshot, time.time()

        def draw() -> Drawing | None:
            # Imported on first use and in a thread: the pages of most nodes are never opened.
            from exporter.web.pages.layout import DRAWN  # noqa: PLC0415
            from exporter.web.pages.scene import Scene  # noqa: PLC0415

            scene = Scene(
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
            )
            return DRAWN[place.kind](scene, *place.names)

        key = (self._aging(now), place)
        if refusing and key not in self._cache.tasks:
            self._turns.refuse_where_full()
        return await self._once(key, draw, self._turns)

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
        # While it was drawn there may have been a new snapshot: the key has the name of the drawn one.
        key = (self._aging(time.time()), place, "html", opened.tag)
        return await self._once(key, lambda: page(drawing, place.root, opened).encode(), self._turns)

    def _aging(self, now: float) -> int:
        """Drop what shows ages of earlier seconds; return the current second."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._cache.tasks = {
                key: task
                for key, task in self._cache.tasks.items()
                if not (isinstance(key, tuple) and isinstance(key[0], int))
            }
        return second

    def _fresh_page(self) -> Page:
        current = self.current()
        if self._page.snapshot is not current:
            self._page = self.exposition.page(current)
            self._tag = _tag(current)
            self._cache.tasks = {}
        return self._page

    async def _once(
        self, key: tuple[Any, ...], make: Callable[[], Made], turns: RenderQueue | None = None
    ) -> Made:
        return await self._cache.start(key, lambda: in_thread(make), turns).wait()

    def _start(self, form: _Form, page: Page) -> "SharedTask[bytes]":
        fmt, zipped = form
        make = page.gzipped if zipped else page.body
        return self._cache.start(("metrics", *form), lambda: in_scrape_thread(make, fmt))


def _tag(snapshot: Snapshot) -> str:
    """Return a name of a snapshot; sequences restart at 1 and may repeat, so the time is part of it."""
    return f"{snapshot.sequence}-{time.time_ns():x}"
