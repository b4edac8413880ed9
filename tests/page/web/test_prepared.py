"""A page of metrics is prepared for clients that scrape every snapshot, and for no others."""

import asyncio
import threading
from dataclasses import replace

from exporter.exposition import Exposition, Format, Page
from exporter.model import Snapshot
from exporter.web.node.caches import DocumentCache, MetricsCache
from tests.page.web.views_reading import snapshot
from tests.waiting import LIMIT_SECONDS, wait_until_async


class Noting(Exposition):
    """An exposition that records its pages."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Page] = []

    def page(self, snapshot: Snapshot) -> Page:
        """Return the page, and record it."""
        self.made.append(super().page(snapshot))
        return self.made[-1]


class Node:
    """A node that publishes snapshots."""

    def __init__(self) -> None:
        self._shown = snapshot()
        self._exposition = Noting()
        self.metrics = MetricsCache(lambda: self._shown, self._exposition)
        self.documents = DocumentCache(lambda: self._shown)

    def publish(self) -> Page:
        """Publish the next snapshot; return its page of metrics."""
        self._shown = replace(self._shown, sequence=self._shown.sequence + 1)
        self.metrics.turn(self._shown)
        return self._exposition.made[-1]

    @property
    def rendering(self) -> bool:
        """Whether a page is being made, or was made, without a request."""
        return bool(self.metrics._tasks.tasks)


async def test_a_form_requested_of_two_snapshots_is_prepared_for_the_next() -> None:
    """In that format and encoding only."""
    node = Node()
    for _ in range(2):
        node.publish()
        await node.metrics.body(Format.OPENMETRICS, zipped=True)
    page = node.publish()
    await wait_until_async(lambda: page.ready(Format.OPENMETRICS, zipped=True))
    assert not page.ready(Format.TEXT, zipped=False)
    assert not page.ready(Format.TEXT, zipped=True)


async def test_the_prepared_page_is_served() -> None:
    node = Node()
    for _ in range(2):
        node.publish()
        await node.metrics.body(Format.TEXT, zipped=False)
    page = node.publish()
    await wait_until_async(lambda: page.ready(Format.TEXT, zipped=False))
    assert await node.metrics.body(Format.TEXT, zipped=False) is page.body(Format.TEXT)


async def test_nothing_is_prepared_for_a_scraper_of_every_second_snapshot() -> None:
    node = Node()
    for _ in range(3):
        node.publish()
        await node.metrics.body(Format.TEXT, zipped=True)
        node.publish()
        assert not node.rendering


async def test_preparing_ends_without_requests() -> None:
    node = Node()
    for _ in range(2):
        node.publish()
        await node.metrics.body(Format.TEXT, zipped=False)
    node.publish()
    assert node.rendering
    for _ in range(3):
        node.publish()
        assert not node.rendering


async def test_no_page_waits_for_hanging_dns_lookups() -> None:
    """They fill the event loop's own thread pool."""
    release, loop = threading.Event(), asyncio.get_running_loop()
    hanging = [loop.run_in_executor(None, release.wait) for _ in range(64)]
    node = Node()
    node.publish()
    try:
        assert await asyncio.wait_for(node.metrics.body(Format.TEXT, zipped=True), LIMIT_SECONDS)
        assert await asyncio.wait_for(node.documents.snapshot_as("json"), LIMIT_SECONDS)
    finally:
        release.set()
        await asyncio.gather(*hanging)
