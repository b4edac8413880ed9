"""Pages with a query of the client: few are drawn at a time, and metrics never wait for them."""

import asyncio
import threading

import pytest
from aiohttp import web

from exporter.concurrency import in_thread
from exporter.exposition import Exposition, Format
from exporter.fleet.pages import routes as cluster
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.tables import Orders
from exporter.fleet.watch import FleetRead
from exporter.web.kit.html import Drawing
from exporter.web.kit.render_queue import AT_ONCE, MOST_WAITING
from exporter.web.node.app import make_app
from exporter.web.node.caches import MetricsCache, PageCache
from exporter.web.node.pages import layout
from exporter.web.node.parameters import Place, Query
from tests.page.web.access import serving
from tests.page.web.views_reading import snapshot
from tests.site import site_of
from tests.waiting import LIMIT_SECONDS, wait_until_async

CROWD = 3 * MOST_WAITING
DRAWN = Drawing(
    layout="error.html", title="", pieces={}, facts={"status": 200, "phrase": "", "sentence": "drawn"}
)


class Slow:
    """Draws when ``go`` is set; ``begun`` has the texts of the pages that were requested."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.at_once = 0
        self.go = threading.Event()
        self._now = 0
        self._lock = threading.Lock()

    def node(self, scene) -> Drawing:
        """Draw a page of a node."""
        return self.fleet(scene.query.text)

    def fleet(self, words: object) -> Drawing:
        """Draw anything."""
        with self._lock:
            self.begun.append(str(words))
            self._now += 1
            self.at_once = max(self.at_once, self._now)
        self.go.wait(LIMIT_SECONDS)
        with self._lock:
            self._now -= 1
        return DRAWN


def _asked(number: int) -> Place:
    """Return a page that no other client requests."""
    return Place("node", (), Query(text=f"x{number}"))


def _pages(slow: Slow, monkeypatch) -> PageCache:
    # One snapshot for all that ask: with each new one what was made is forgotten.
    shown = snapshot()
    pages = PageCache(lambda: shown)
    monkeypatch.setitem(layout.DRAWN, "node", slow.node)
    return pages


def _fleet_pages(slow: Slow, monkeypatch) -> cluster.FleetPages:
    monkeypatch.setattr(cluster, "fleet_drawing", slow.fleet)
    return cluster.FleetPages(FleetRead, NodeUrl())


def _of_a_node(slow: Slow, monkeypatch):
    pages = _pages(slow, monkeypatch)
    return lambda number: pages.drawing(_asked(number), refusing=True)


def _of_a_cluster(slow: Slow, monkeypatch):
    pages = _fleet_pages(slow, monkeypatch)
    return lambda number: pages.drawing(Orders(nodes=f"x{number}"), refusing=True)


@pytest.mark.parametrize("of", [_of_a_node, _of_a_cluster])
async def test_few_pages_are_drawn_some_wait_and_the_others_are_refused(of, monkeypatch) -> None:
    """While the first are still being drawn."""
    slow = Slow()
    draw = of(slow, monkeypatch)
    crowd = [asyncio.ensure_future(draw(each)) for each in range(CROWD)]
    await wait_until_async(lambda: sum(each.done() for each in crowd) >= CROWD - MOST_WAITING - AT_ONCE)
    await wait_until_async(lambda: len(slow.begun) == AT_ONCE)
    slow.go.set()
    found = await asyncio.gather(*crowd, return_exceptions=True)
    refused = [each for each in found if isinstance(each, web.HTTPServiceUnavailable)]
    assert all(int(each.headers["Retry-After"]) > 0 for each in refused)
    assert MOST_WAITING <= found.count(DRAWN) <= MOST_WAITING + AT_ONCE
    assert found.count(DRAWN) + len(refused) == CROWD
    assert slow.at_once == AT_ONCE


async def test_the_plain_page_of_the_node_is_never_refused(monkeypatch) -> None:
    slow = Slow()
    pages = _pages(slow, monkeypatch)
    crowd = [asyncio.ensure_future(pages.html(_asked(each))) for each in range(CROWD)]
    await wait_until_async(lambda: any(each.done() for each in crowd))
    own = asyncio.ensure_future(pages.html(Place()))
    await asyncio.sleep(0)
    assert not own.done()
    for each in crowd:
        each.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)
    slow.go.set()
    assert b"drawn" in (await own or b"")


async def test_no_page_is_drawn_for_clients_that_have_left(monkeypatch) -> None:
    monkeypatch.setattr("exporter.web.kit.http.connection._AFTER_EOF_SECONDS", 0.01)
    slow = Slow()
    shown = snapshot()
    site = site_of(lambda: shown)
    monkeypatch.setitem(layout.DRAWN, "node", slow.node)
    async with serving(app=make_app(site)) as served:
        leaving = []
        for each in range(MOST_WAITING):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"GET /?q=x%d HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n" % each)
            leaving.append(writer)

        await wait_until_async(lambda: len(slow.begun) == AT_ONCE)
        for writer in leaving:
            writer.transport.abort()

        await wait_until_async(lambda: served.server.connections == 0)
        slow.go.set()
        last = asyncio.ensure_future(site.pages.drawing(_asked(CROWD)))
        assert await last is DRAWN
    assert len(slow.begun) == AT_ONCE + 1


async def test_metrics_do_not_wait_for_pages() -> None:
    release = threading.Event()
    hanging = [asyncio.ensure_future(in_thread(release.wait)) for _ in range(64)]
    shown = snapshot()
    metrics = MetricsCache(lambda: shown, Exposition())
    try:
        for zipped in (False, True):
            for fmt in Format:
                assert await asyncio.wait_for(metrics.body(fmt, zipped), LIMIT_SECONDS)
    finally:
        release.set()
        await asyncio.gather(*hanging)
