"""Everything that is made of a snapshot for readers, each thing once: per snapshot, or second where it ages.

Making happens in a thread, off the loop; those who ask for the same thing meanwhile wait for the same
result.
"""

import asyncio
import json
import time
from collections.abc import Callable

from exporter.exposition import Exposition, Format, Page
from exporter.formats import snapshot_json
from exporter.model import Snapshot
from exporter.web.views import gpu_page, node_page

Key = tuple[str, ...]


class Pages:
    """The pages of the newest snapshot; ``current`` returns the snapshot to show."""

    def __init__(self, current: Callable[[], Snapshot], exposition: Exposition) -> None:
        self._current = current
        self._exposition = exposition
        self._page = exposition.page(current())
        self._made: dict[Key, asyncio.Task[bytes]] = {}

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
        return await self._once(("metrics", str(fmt), str(zipped)), lambda: make(fmt))

    async def snapshot_json(self) -> bytes:
        """Give the snapshot as JSON."""
        snapshot = self.snapshot
        return await self._once(("json",), lambda: json.dumps(snapshot_json(snapshot)).encode())

    async def node_html(self) -> bytes:
        """Give the page of the node. It tells ages, so it is made again in every second it is asked for."""
        snapshot, now = self.snapshot, time.time()
        return await self._once(self._aging("node", now), lambda: node_page(snapshot, now=now).encode())

    async def gpu_html(self, uuid: str) -> bytes | None:
        """Give the page of one GPU, None where there is no such GPU; it ages as that of the node does."""
        snapshot, now = self.snapshot, time.time()
        if all(gpu.identity.uuid != uuid for gpu in snapshot.gpus):
            return None

        def draw() -> bytes:
            return (gpu_page(snapshot, uuid, now=now) or "").encode()

        return await self._once((*self._aging("gpu", now), uuid), draw)

    def _aging(self, kind: str, now: float) -> Key:
        """Make the key of a page that tells ages, and forget those of earlier seconds."""
        key = (kind, str(int(now)))
        self._made = {old: made for old, made in self._made.items() if old[0] != kind or old[:2] == key}
        return key

    def _fresh_page(self) -> Page:
        current = self._current()
        if self._page.snapshot is not current:
            self._page = self._exposition.page(current)
            self._made = {}
        return self._page

    async def _once(self, key: Key, make: Callable[[], bytes]) -> bytes:
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = asyncio.ensure_future(asyncio.to_thread(make))
            task.add_done_callback(lambda done: self._forget_failed(key, done))
        # One reader that goes away must not take the page from the others.
        return await asyncio.shield(task)

    def _forget_failed(self, key: Key, task: "asyncio.Task[bytes]") -> None:
        """Have what could not be made tried again by the next who asks."""
        failed = task.cancelled() or task.exception() is not None
        if failed and self._made.get(key) is task:
            del self._made[key]
