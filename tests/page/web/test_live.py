"""Streams of open pages over HTTP: only changes are sent, and they lead to the current page."""

import re
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiohttp import ClientSession

from exporter.config import ListenAddress
from exporter.demo.scenario.catalog import load
from exporter.web.kit.http.assets import version
from exporter.web.kit.http.server import Server
from exporter.web.node import caches
from exporter.web.node.app import make_app
from tests.page.web.following import following
from tests.page.web.views_reading import NOW, gpu, holder, snapshot
from tests.site import site_of
from tests.together.end_to_end.serving import serving

SCENARIOS = ("t4-timeslicing", "sick-gpus")
HTML = {"Accept": "text/html"}


@pytest.fixture
def _still(monkeypatch) -> None:
    """Stop the clock that pages are drawn by, so that no age on them grows between two looks."""
    clock = SimpleNamespace(time=lambda: NOW, time_ns=caches.time.time_ns)
    monkeypatch.setattr(caches, "time", clock)


class Shown:
    """A site whose snapshot the test chooses, served at ``url``."""

    def __init__(self) -> None:
        self.snapshot = snapshot([gpu()], [holder("a")])
        self.site = site_of(lambda: self.snapshot)
        self.server = Server(make_app(self.site), ListenAddress("127.0.0.1", 0))
        self.url = ""

    def show(self, newer) -> None:
        """Publish a snapshot."""
        self.snapshot = newer
        self.site.ticker.tick(newer)


@asynccontextmanager
async def showing():
    """Serve a site of a node with one GPU and one holder."""
    shown = Shown()
    shown.url = await shown.server.start()
    try:
        async with ClientSession(auto_decompress=False, skip_auto_headers=("Accept-Encoding",)) as client:
            yield shown, client
    finally:
        await shown.server.stop()


async def fetched(client, url) -> str:
    """Fetch a page."""
    async with client.get(url, headers=HTML) as response:
        assert response.status == 200
        return await response.text()


def sequence_of(html) -> str:
    """Return the name of the snapshot that a page shows."""
    return re.search(r'data-sequence="([^"]*)"', html)[1]


def apply(pieces, lists, event) -> None:
    """Apply an event as an open page does."""
    pieces |= event.data["pieces"]
    for parent, children in event.data["lists"].items():
        for name in set(lists[parent]) - set(children):
            del pieces[name]
        lists[parent] = children


@pytest.mark.usefixtures("_still")
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_changes_lead_to_exactly_the_current_page(scenario) -> None:
    async with serving(load(scenario)) as served:
        second = 0
        await served.poll(second)
        first = served.poller.snapshot.containers[0].holder
        holder_path = f"holder/{first.namespace}/{first.pod}/{first.container}"
        places = ["", f"gpu/{served.poller.snapshot.gpus[0].identity.uuid}", "doctor", holder_path]
        for place in places:
            async with following(served.client, f"{served.url}/live/{place}") as follower:
                whole = await follower.change()
                pieces, lists = dict(whole.data["pieces"]), dict(whole.data["lists"])
                for later in (15, 30, 700):
                    second += later
                    await served.poll(second)
                    event = await follower.change()
                    apply(pieces, lists, event)

                    page = await fetched(served.client, f"{served.url}/{place}")
                    assert event.id == sequence_of(page)
                    assert f"<title>{event.data['title']}</title>" in page
                    assert [name for name, html in pieces.items() if html not in page] == []
                    async with following(served.client, f"{served.url}/live/{place}") as fresh:
                        now = (await fresh.change()).data
                    assert lists == now["lists"]
                    assert {name: pieces[name] for name in now["pieces"]} == now["pieces"]


async def test_a_current_page_gets_only_changes() -> None:
    async with showing() as (shown, client):
        page = await fetched(client, shown.url)
        async with following(client, f"{shown.url}live/?since={sequence_of(page)}") as follower:
            hello = await follower.next()
            shown.show(snapshot([gpu()], [holder("a"), holder("b")], sequence=2))
            event = await follower.next()

        assert (hello.name, hello.data["version"]) == ("hello", version())
        assert f'data-version="{version()}"' in page
        assert event.name == "change"
        assert event.id != sequence_of(page)
        assert event.id.startswith("2-")
        (added,) = [name for name in event.data["pieces"] if name in event.data["lists"]["holder-rows"]]
        assert added == event.data["lists"]["holder-rows"][1]
        assert "name" not in event.data["pieces"]


@pytest.mark.parametrize("since", ["", "?since=1-0", "?since=never%20was"])
async def test_a_client_with_another_snapshot_gets_everything(since) -> None:
    before = time.time() - 0.001
    async with showing() as (shown, client):
        page = await fetched(client, shown.url)
        async with following(client, f"{shown.url}live/{since}") as follower:
            event = await follower.change()

        assert event.id == sequence_of(page)
        assert {"name", "status", "cards", "gpu-0"} < event.data["pieces"].keys()
        assert all(f'id="{name}"' in html for name, html in event.data["pieces"].items())
        assert event.data["timestamp"] == shown.snapshot.timestamp
        assert before <= event.data["now"] <= time.time() + 0.001


async def test_a_client_that_comes_back_gets_what_it_has_missed() -> None:
    """One missed snapshot is a step, several are everything."""
    async with showing() as (shown, client):
        url = f"{shown.url}live/"
        async with following(client, url) as staying:
            first = await staying.change()
            shown.show(snapshot([gpu()], [holder("a"), holder("b")], sequence=2))
            second = await staying.change()
            async with following(client, url, Last_Event_ID=first.id) as back:
                step = await back.change()
            async with following(client, url, Last_Event_ID=second.id) as back:
                shown.show(snapshot([gpu()], [holder("a")], sequence=3))
                third = await back.change()
            async with following(client, url, Last_Event_ID=first.id) as back:
                everything = await back.change()

        assert step.raw == second.raw
        assert third.id.startswith("3-")
        assert "name" not in third.data["pieces"]
        assert everything.id == third.id
        assert "name" in everything.data["pieces"]


async def test_a_snapshot_with_a_repeated_sequence_is_sent() -> None:
    """The page is emptied without a new sequence when polls fail for long."""
    async with showing() as (shown, client):
        async with following(client, f"{shown.url}live/") as follower:
            before = await follower.change()
            shown.show(snapshot([], []))
            after = await follower.change()

        assert shown.snapshot.sequence == int(before.id.partition("-")[0])
        assert after.id != before.id
        assert after.data["lists"] == {"gpus": [], "holder-rows": []}


async def test_a_page_is_followed_with_its_query() -> None:
    async with showing() as (shown, client):
        shown.show(snapshot([gpu()], [holder("apple"), holder("pear")]))
        async with following(client, f"{shown.url}live/?q=pear") as follower:
            filtered = await follower.change()
        page = await fetched(client, f"{shown.url}?q=pear")

        (row,) = filtered.data["lists"]["holder-rows"]
        assert filtered.data["pieces"][row] in page


async def test_a_stream_of_an_unknown_gpu_is_404_and_ends_when_the_gpu_goes() -> None:
    async with showing() as (shown, client):
        async with client.get(f"{shown.url}live/gpu/GPU-none") as response:
            assert response.status == 404
        async with following(client, f"{shown.url}live/gpu/GPU-0") as follower:
            await follower.change()
            shown.show(snapshot([], [], sequence=2))
            assert (await follower.next()).name == "gone"
            assert await follower.ended()


async def test_names_in_events_are_escaped() -> None:
    async with showing() as (shown, client):
        nasty = "<script>\u202e"
        shown.show(snapshot([gpu()], [holder(nasty)], node={"name": nasty}))
        async with following(client, f"{shown.url}live/") as follower:
            event = await follower.change()

        assert "<script>" not in "".join(event.data["pieces"].values())
        assert "\u202e" not in event.data["title"] + "".join(event.data["pieces"].values())


async def test_without_script_the_page_reloads_itself() -> None:
    async with showing() as (shown, client):
        page = await fetched(client, shown.url)

        assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in page


async def test_compressed_streams_have_the_same_events() -> None:
    """Whenever a client joins."""
    async with showing() as (shown, client):
        url = f"{shown.url}live/"
        async with following(client, url) as plain, following(client, url, Accept_Encoding="gzip") as early:
            assert early.response.headers["Content-Encoding"] == "gzip"
            assert (await plain.change()).raw == (await early.change()).raw
            for sequence in (2, 3):
                shown.show(snapshot([gpu()], [holder(f"pod-{sequence}")], sequence=sequence))
                event = await plain.change()
                assert event.raw == (await early.change()).raw
                async with following(client, f"{url}?since=x", Accept_Encoding="gzip") as late:
                    whole = await late.change()
                assert whole.data["pieces"].items() >= event.data["pieces"].items()
