"""Everything that is made of a snapshot for readers, each thing once: per snapshot, or second where it ages.

Making happens in a thread, off the loop; those who ask for the same thing meanwhile wait for the same
result.
"""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from exporter.exposition import Exposition, Format, Page
from exporter.formats import snapshot_csv, snapshot_json, snapshot_text
from exporter.model import Snapshot
from exporter.web.drawing import Drawing
from exporter.web.html import page
from exporter.web.places import Place
from exporter.web.views.pages import gpu_drawing, node_drawing
from exporter.web.views.scene import Scene

Made = TypeVar("Made")


class Pages:
    """The pages of the newest snapshot; ``current`` returns the snapshot to show.

    A holder is idle after ``idle_after`` seconds without compute.
    """

    def __init__(
        self, current: Callable[[], Snapshot], exposition: Exposition, *, idle_after: float = 600.0
    ) -> None:
        self._current = current
        self._exposition = exposition
        self._idle_after = idle_after
        self._page = exposition.page(current())
        self._made: dict[tuple[Any, ...], asyncio.Task[Any]] = {}
        self._second = 0

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that the pages show."""
        return self._fresh_page().snapshot

    async def metrics(self, fmt: Format, zipped: bool) -> bytes:
        """Give the page of metrics in one format."""
        page = self._fresh_page()
        if page.ready(fmt, zipped=zipped):
            return page.gzipped(fmt) if zipped else page.body(fmt)
        make = page.gzipped if zipped else page.body
        return await self._once(("metrics", fmt, zipped), lambda: make(fmt))

    async def snapshot_json(self) -> bytes:
        """Give the snapshot as JSON."""
        snapshot = self.snapshot
        return await self._once(("json",), lambda: json.dumps(snapshot_json(snapshot)).encode())

    async def snapshot_csv(self) -> bytes:
        """Give the containers as CSV."""
        snapshot = self.snapshot
        return await self._once(("csv",), lambda: snapshot_csv(snapshot).encode())

    async def snapshot_text(self) -> bytes:
        """Give the node as text for a terminal."""
        snapshot, now, idle_after = self.snapshot, time.time(), self._idle_after
        key = (self._aging(now), "text")
        return await self._once(key, lambda: snapshot_text(snapshot, now=now, idle_after=idle_after).encode())

    async def drawing(self, place: Place) -> Drawing | None:
        """Draw a page, None where what it is of is not there; it tells ages, so it lasts for a second."""
        scene_of, now = self.snapshot, time.time()

        def draw() -> Drawing | None:
            scene = Scene(scene_of, now=now, idle_after=self._idle_after, root=place.root, query=place.query)
            return node_drawing(scene) if place.kind == "node" else gpu_drawing(scene, place.names[0])

        return await self._once((self._aging(now), place), draw)

    async def html(self, place: Place) -> bytes | None:
        """Give a page as HTML, None where what it is of is not there."""
        drawing = await self.drawing(place)
        if drawing is None:
            return None
        key = (self._aging(time.time()), place, "html")
        return await self._once(key, lambda: page(drawing, place.root).encode())

    def _aging(self, now: float) -> int:
        """Forget what tells ages as of earlier seconds; return this one."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._made = {key: made for key, made in self._made.items() if not isinstance(key[0], int)}
        return second

    def _fresh_page(self) -> Page:
        current = self._current()
        if self._page.snapshot is not current:
            self._page = self._exposition.page(current)
            self._made = {}
        return self._page

    async def _once(self, key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.ensure_future(asyncio.to_thread(make))
            task.add_done_callback(lambda done: self._forget_failed(key, done))
        # One reader that goes away must not take the page from the others.
        made: Made = await asyncio.shield(task)
        return made

    def _forget_failed(self, key: tuple[Any, ...], task: "asyncio.Task[Any]") -> None:
        """Have what could not be made tried again by the next who asks."""
        failed = task.cancelled() or task.exception() is not None
        if failed and self._made.get(key) is task:
            del self._made[key]
