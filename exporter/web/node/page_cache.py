"""The HTML pages of the newest snapshot, which show ages: each is drawn once a second, in a thread.

Clients can request any number of queries, so pages are drawn in turns.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from markupsafe import Markup

from exporter.advice.model import Advice
from exporter.concurrency import in_thread
from exporter.doctor import Report
from exporter.model import ContainerRef, ContainerRow, Snapshot
from exporter.web.kit.html import Drawing, Opened, page
from exporter.web.kit.render_queue import RenderQueue, TaskCache
from exporter.web.node.parameters import Place


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
            from exporter.web.node.pages.scene import Scene  # noqa: PLC0415

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

        self._cache.renew(snapshot, int(now))
        if refusing and place not in self._cache.tasks:
            self._turns.refuse_where_full()
        return await self._cache.start(place, lambda: in_thread(draw), self._turns).wait()

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
