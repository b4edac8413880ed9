"""The page of a holder that ended, the lists that lead to it, and what remains when it is no longer kept."""

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import ClientSession

from exporter.config import ListenAddress
from exporter.history.ended import EndedHolders
from exporter.model import ContainerRef, DeviceEvent, DeviceKey, EventRow, PodRow, Totals
from exporter.web.kit.html import page
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from exporter.web.node.pages.holder_report import holder_text
from exporter.web.node.pages.layout import holder_drawing
from exporter.web.node.pages.scene import Scene
from tests.page.web.following import following
from tests.page.web.views_reading import GIB, NOW, UUID, draw, gpu, gpu_page, holder, mig, read, snapshot
from tests.site import site_of

ROOT = "../../../"
HTML, JSON = {"Accept": "text/html"}, {"Accept": "application/json"}
HOSTILE = '"><img src=x onerror=alert(1)>'
LIVED = Totals(
    first_seen=NOW - 7200,
    memory_peak=9 * GIB,
    last_active=NOW - 1800,
    seen_computing=True,
    entitled_gpu_seconds=7200.0,
    measured_gpu_seconds=7200.0,
    measured_use_gpu_seconds=1800.0,
    used_gpu_seconds=1800.0,
)
ENDED = holder("train", totals=LIVED, compute_used=0.0, memory_used=8 * GIB, pod_uid="uid-1")
PRESENT = ("over its", "advice", "would fit", "is idle", "Which slice", "No other known container")


def polled(*polls, **facts):
    """Return the last of several snapshots, five seconds apart and at NOW, and what ended until then."""
    ended = EndedHolders(6 * 3600)
    for place, rows in enumerate(polls):
        node = {"unlisted_pods": 0} | facts.get("node", {})
        shown = snapshot([gpu()], rows, **(facts | {"node": node}))
        shown = replace(shown, timestamp=NOW - 5 * (len(polls) - place - 1))
        ended.record(shown)
    return shown, ended


def own_page(shown, ended, *names, **options):
    """Return the parsed page of a container, a minute after the last poll, or None."""
    scene = Scene(shown, **({"now": NOW + 60, "root": ROOT, "ended": ended} | options))
    drawing = holder_drawing(scene, *(names or ("ml", "train", "main")))
    return None if drawing is None else read(page(drawing, ROOT))


def answer(drawn, question) -> str:
    """Return the answer to a question."""
    (found,) = [each for each in drawn.one(id="answers").all("div") if each.one("h2").text == question]
    return " ".join(line.text for line in found.all("p"))


def test_the_page_says_when_it_ended_and_how_exactly_that_is_known() -> None:
    drawn = own_page(*polled([ENDED], []))

    assert answer(drawn, "Does it still hold a GPU?") == (
        "No: it ended 1 min ago, at 2023-11-14 22:13:15 UTC or up to 5 s later: "
        "the poll at 22:13:15 still had it, and the one at 22:13:20 had not."
    )
    assert drawn.one(id="name").one("p").text == (
        "Ended 1 min ago, at 2023-11-14 22:13:15 UTC · first seen 1 h 59 min before that · pod uid uid-1"
    )
    assert "(ended)" in drawn.one("title").children[0]


def test_the_page_says_what_it_held_and_used() -> None:
    drawn = own_page(*polled([ENDED], []))
    (device,) = drawn.all("section", of="on")
    facts = {
        line.one("dt").text: line.one("dd").text for each in device.all("dl") for line in each.all("div")
    }

    assert device.one("h3").text == "GPU 0 · 1 × nvidia.com/gpu"  # noqa: RUF001 - the sign of times
    assert facts["memory used / entitled"] == "8.0 / 16.0 GiB"
    assert facts["compute used / entitled"] == "0.00 / 1.00 GPU"
    assert (facts["efficiency"], facts["memory peak"]) == ("25 %", "9.0 GiB")
    assert answer(drawn, "Was its slice used?") == (
        "It had not computed for 29 min when it ended. "
        "Over its life it used 25 % of the GPU time it was entitled to."
    )
    assert answer(drawn, "Was there memory left for it?") == (
        "At the last poll it used 8.0 of its 16.0 GiB. "
        "Its peak of all polls was 9.0 GiB; between polls it may have been higher."
    )


def test_there_is_no_advice_and_no_warning_for_the_present() -> None:
    over = replace(ENDED, memory_used=20 * GIB, health="Unhealthy")
    shown, ended = polled([over, holder("other")], [holder("other")])
    text = own_page(shown, ended, advise=lambda *_: pytest.fail("advice was asked for")).one("main").text

    assert [words for words in PRESENT if words in text] == []
    assert "Processes" not in text


def test_where_that_is_unknown_the_page_does_not_say_that_it_ended() -> None:
    shown, ended = polled([ENDED], [], node={"unlisted_pods": None})
    drawn = own_page(shown, ended)

    assert answer(drawn, "Does it still hold a GPU?") == (
        "Not known: it was last seen at 2023-11-14 22:13:15 UTC, 1 min ago. "
        "Since then the kubelet does not answer."
    )
    assert drawn.one(id="name").one("p").text.startswith("Last seen 1 min ago")


def test_its_timelines_reach_back_to_its_last_hour() -> None:
    shown, ended = polled([ENDED], [])
    spans = ("5m", "1h", "6h")

    def shows(now, **options):
        return (
            own_page(shown, ended, now=now, spans=spans, **options)
            .one(id="timeline")
            .attributes["data-figures"]
        )

    assert shows(NOW + 60) == f"{ROOT}figures/holder/ml/train/main?range=6h"
    brief = polled([replace(ENDED, totals=Totals(first_seen=NOW - 60))], [])
    drawn = own_page(*brief, spans=spans).one(id="timeline")
    assert drawn.attributes["data-figures"].endswith("range=5m")


def test_a_pod_of_the_same_name_is_the_present_holder() -> None:
    shown, ended = polled([ENDED], [], [replace(ENDED, pod_uid="uid-2")])
    drawn = own_page(shown, ended)

    assert "Which slice would fit it?" in drawn.text
    assert "an earlier pod of this name was here until 2023-11-14 22:13 UTC" in drawn.one(id="name").text


def test_events_that_hit_it_stay_on_its_page() -> None:
    event = DeviceEvent(at=NOW - 20, uuid=UUID, kind="xid", xid=31)
    shown, ended = polled([ENDED], [], events=(EventRow(event=event, holders=(ENDED.holder,)),))
    drawn = own_page(shown, ended)

    assert answer(drawn, "Did a fault hit it?").startswith("XID 31, 1 min ago, while it was on the device.")
    assert drawn.one(id="events").one("tbody").all("tr")


def test_several_devices_have_an_answer_each() -> None:
    two = [ENDED, replace(ENDED, device=DeviceKey("GPU-9", "MIG-1"))]
    shown, ended = polled(two, [])
    drawn = own_page(shown, ended)

    assert len(drawn.all("section", of="on")) == 2
    assert "GPU 0. It" in answer(drawn, "Was its slice used?")
    assert "an unlisted GPU. It" in answer(drawn, "Was its slice used?")


def test_the_node_and_the_gpu_list_it_with_a_link() -> None:
    shown, ended = polled([ENDED, holder("other")], [holder("other")])
    front = draw(shown, ended=ended, now=NOW + 60).one(id="ended")
    board = read(gpu_page(shown, UUID, ended=ended, now=NOW + 60)).one(id="ended")

    assert [link.attributes["href"] for link in front.all("a")] == ["holder/ml/train/main"]
    assert [link.attributes["href"] for link in board.all("a")] == ["../holder/ml/train/main"]
    assert "1 min ago" in front.text
    assert not draw(shown).all(id="ended")


def test_of_many_the_newest_are_listed() -> None:
    rows = [holder(f"job-{number}") for number in range(40)]
    shown, ended = polled(rows, [])
    front = draw(shown, ended=ended).one(id="ended")

    assert len(front.all("a")) == 30
    assert front.all("li")[-1].text == "and 10 more"


@pytest.mark.parametrize("form", ["page", "text"])
def test_hostile_names_and_labels_stay_text(form) -> None:
    row = replace(ENDED, holder=ContainerRef("ml", HOSTILE, "a\x1b[31m"), resource=HOSTILE, model="x\u202ey")
    pods = (PodRow(namespace="ml", name=HOSTILE, uid="uid-1", labels=((HOSTILE, "b\x00"),)),)
    shown, ended = polled([row], [], pods=pods)
    if form == "page":
        drawn = own_page(shown, ended, *row.holder)
        assert HOSTILE in drawn.one("h1").text
        assert not drawn.all("img")
    else:
        text = holder_text(Scene(shown, now=NOW, ended=ended), *row.holder)
        assert HOSTILE in text
        assert text.replace("\n", "").isprintable()


def test_the_text_has_the_answers_of_the_page() -> None:
    for shown, ended in (polled([ENDED], []), polled([ENDED])):
        drawn = own_page(shown, ended)
        text = " ".join(holder_text(Scene(shown, now=NOW + 60, ended=ended), "ml", "train", "main").split())
        for each in drawn.one(id="answers").all("div"):
            assert each.one("h2").text in text
            for line in each.all("p"):
                assert line.text in text
    assert holder_text(Scene(shown, now=NOW), "ml", "gone", "main") is None


class Shown:
    """A site whose snapshots the test chooses."""

    def __init__(self) -> None:
        self.ended = EndedHolders(6 * 3600)
        self.snapshot = polled([ENDED])[0]
        self.site = site_of(lambda: self.snapshot, ended=self.ended)
        self.url = ""
        self.show(ENDED)

    def show(self, *rows, at=NOW) -> None:
        """Publish a snapshot with these containers."""
        self.snapshot = replace(
            self.snapshot, containers=rows, timestamp=at, sequence=self.snapshot.sequence + 1
        )
        self.ended.record(self.snapshot)
        self.site.ticker.tick(self.snapshot)


@asynccontextmanager
async def serving():
    """Serve such a site."""
    shown = Shown()
    server = Server(make_app(shown.site), ListenAddress("127.0.0.1", 0))
    shown.url = await server.start()
    try:
        async with ClientSession(
            base_url=shown.url, auto_decompress=False, skip_auto_headers=("Accept", "Accept-Encoding")
        ) as client:
            yield shown, client
    finally:
        await server.stop()


async def test_an_open_page_turns_into_the_page_of_an_ended_holder() -> None:
    """And is gone when it is no longer kept; the pieces are those of a fresh page."""
    async with serving() as (shown, client), following(client, "/live/holder/ml/train/main") as follower:
        whole = await follower.change()
        shown.show(at=NOW + 5)
        ended = await follower.change()
        async with following(client, "/live/holder/ml/train/main") as other:
            fresh = await other.change()
        shown.show(at=NOW + 6 * 3600 + 10)
        gone = await follower.change()

    assert ended.name == "change"
    assert "Does it still hold a GPU?" in ended.data["pieces"]["answers"]
    assert "Which slice would fit it?" in whole.data["pieces"]["answers"]
    assert (whole.data["pieces"] | ended.data["pieces"]).keys() == fresh.data["pieces"].keys()
    assert ended.data["title"].startswith("ml/train (ended)")
    assert gone.name == "gone"


async def test_programs_get_text_and_browsers_a_page() -> None:
    async with serving() as (shown, client):
        for held in (True, False):
            if not held:
                shown.show(at=NOW + 5)
            async with client.get("/holder/ml/train/main") as plain:
                assert (plain.status, plain.content_type) == (200, "text/plain")
                text = await plain.text()
            async with client.get("/holder/ml/train/main", headers=HTML) as rich:
                assert (rich.status, rich.content_type) == (200, "text/html")
                assert {plain.headers["Vary"], rich.headers["Vary"]} == {"Accept, Accept-Encoding"}
            assert text.startswith("ml/train main · node-1 · read ")
            assert ("Is its slice used?" in text) == held
            assert ("Does it still hold a GPU?" in text) == (not held)


@pytest.mark.parametrize("headers", [{}, HTML, JSON])
async def test_without_a_page_the_answer_says_why_and_how_long_they_are_kept(headers) -> None:
    async with serving() as (_, client), client.get("/holder/ml/gone/main", headers=headers) as answered:
        assert answered.status == 404
        text = await answered.text()

    assert "none is known that did in the last 6 h" in text
    assert "--history-retention" in text


def test_a_mig_device_keeps_its_profile() -> None:
    part = mig("MIG-1")
    ended = EndedHolders()
    row = replace(ENDED, device=part.device)
    for at, parts, rows in ((NOW - 5, [part], [row]), (NOW, [], [])):
        shown = replace(snapshot([gpu()], rows, parts, node={"unlisted_pods": 0}), timestamp=at)
        ended.record(shown)

    assert own_page(shown, ended).one("h3").text.startswith("GPU 0 · 2g.5gb · 1 ")
