"""Who scrapes each snapshot finds its page made; for others nothing is made before they ask."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from exporter.exposition import Exposition, Format, Page
from exporter.model import Snapshot
from exporter.web.render_cache import RenderCache
from tests.web.views_reading import snapshot

PATIENCE = 10.0


class Noting(Exposition):
    """An exposition that keeps the pages that it has made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Page] = []

    def page(self, snapshot: Snapshot) -> Page:
        """Make the page, and keep it."""
        self.made.append(super().page(snapshot))
        return self.made[-1]


class Node:
    """The pages of a node that publishes snapshots."""

    def __init__(self) -> None:
        self._shown = snapshot()
        self._exposition = Noting()
        self.pages = RenderCache(lambda: self._shown, self._exposition)

    def publish(self) -> Page:
        """Come to the next snapshot; return its page of metrics."""
        self._shown = replace(self._shown, sequence=self._shown.sequence + 1)
        self.pages.turn(self._shown)
        return self._exposition.made[-1]


async def _prepared(page: Page, fmt: Format, *, zipped: bool) -> bool:
    """Wait for a form of a page that nobody has asked for; False where it does not come by itself."""
    end = time.monotonic() + PATIENCE
    while not page.ready(fmt, zipped=zipped) and time.monotonic() < end:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.01)
    return page.ready(fmt, zipped=zipped)


async def test_a_form_that_was_asked_for_twice_in_turn_is_made_before_it_is_asked_for() -> None:
    """In the format and the encoding in which it was asked for, and in no other."""
    node = Node()
    for _ in range(2):
        node.publish()
        await node.pages.metrics(Format.OPENMETRICS, zipped=True)
    page = node.publish()
    assert await _prepared(page, Format.OPENMETRICS, zipped=True)
    assert not page.ready(Format.TEXT, zipped=False)
    assert not page.ready(Format.TEXT, zipped=True)


async def test_what_is_prepared_is_what_is_handed_out() -> None:
    """The bytes are those of the newest snapshot."""
    node = Node()
    for _ in range(2):
        node.publish()
        await node.pages.metrics(Format.TEXT, zipped=False)
    page = node.publish()
    assert await _prepared(page, Format.TEXT, zipped=False)
    assert await node.pages.metrics(Format.TEXT, zipped=False) is page.body(Format.TEXT)


@pytest.mark.slow
async def test_nothing_is_made_for_who_asks_less_often_than_there_are_snapshots() -> None:
    """A scrape of every second snapshot has no page made in between."""
    node = Node()
    for _ in range(3):
        node.publish()
        await node.pages.metrics(Format.TEXT, zipped=True)
        skipped = node.publish()
        await asyncio.sleep(0.2)
        assert not skipped.ready(Format.TEXT, zipped=False)


async def test_preparing_ends_when_nobody_asks_any_more() -> None:
    """One page is made in vain, and no other."""
    node = Node()
    for _ in range(2):
        node.publish()
        await node.pages.metrics(Format.TEXT, zipped=False)
    assert await _prepared(node.publish(), Format.TEXT, zipped=False)
    for _ in range(3):
        page = node.publish()
        await asyncio.sleep(0.1)
        assert not page.ready(Format.TEXT, zipped=False)


async def test_no_page_waits_for_lookups_of_names_that_hang() -> None:
    """The loop's own pool, in which clients look names up, may be full of calls that do not return."""
    release, loop = threading.Event(), asyncio.get_running_loop()
    hanging = [loop.run_in_executor(None, release.wait) for _ in range(64)]
    node = Node()
    node.publish()
    try:
        assert await asyncio.wait_for(node.pages.metrics(Format.TEXT, zipped=True), PATIENCE)
        assert await asyncio.wait_for(node.pages.snapshot_as("json"), PATIENCE)
    finally:
        release.set()
        await asyncio.gather(*hanging)
