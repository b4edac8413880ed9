"""The page, the API and the series of the pods that wait."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from aiohttp.test_utils import TestClient, TestServer

from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.routes import FleetPages, make_hub_app
from exporter.fleet.pages.waiting_page import MOST_PODS, WaitingScene, waiting_drawing
from exporter.fleet.waiting import Counts, answer_all
from exporter.fleet.waiting_watch import WaitingRead, WaitingWatch
from exporter.fleet.watch import FleetRead
from exporter.web.kit.html import page
from exporter.web.kit.live.broadcaster import Ticker
from tests.fleet.answering import Samples, connected, nothing
from tests.fleet.shown import Response, usage_pages, words
from tests.fleet.waiting_cluster import NOW, facts, holder, objects, view, waiting_pages, waiting_read, waits

HOSTILE = '<script>alert(1)</script>"\u202e\x1b'


def html(read: WaitingRead, **more: object) -> str:
    """Return the page of these answers, a minute after them."""
    return page(waiting_drawing(WaitingScene(read, NOW + 60, NodeUrl(), **more)), "")


async def asked(
    path: str, read: WaitingRead | None = None, only: tuple[str, ...] = (), **headers: str
) -> Response:
    """Return the response of a hub with these answers to a request."""
    fleet = FleetPages(FleetRead, NodeUrl(), only=only)
    app = make_hub_app(fleet, Ticker(), waiting=waiting_pages(read, only), usage=usage_pages())
    async with TestClient(TestServer(app)) as client, client.get(path, headers=headers) as response:
        return Response(response.status, dict(response.headers), await response.text())


def test_each_pod_opens_to_its_answer_with_commands_as_text_and_the_age_of_what_is_known():
    text = words(html(waiting_read()))

    assert "7 pods wait for a device" in text
    assert "11 of 15 nodes are out: 8 by node selector zone=a" in text
    assert "scale down ml/notebook-7 on gpu-3, idle for 9 h 12 min" in text
    assert "nvidia-smi mig -i 2 -cgi 3g.40gb:4 -C" in text
    assert "Known: pods 1 min ago, nodes 1 min ago, GPUs 1 min ago; from the Kubernetes API." in text


def test_hostile_names_stay_text():
    known = objects(
        waiting=(waits(HOSTILE, 5, owner=HOSTILE),), placed=(holder(HOSTILE, "gpu-3", ending=True),)
    )
    markup = html(waiting_read(answer_all(view(known), facts(), NOW)))

    assert "<script>alert" not in markup
    assert "\u202e" not in markup
    assert "&lt;script&gt;" in markup


def test_many_pods_are_cut_and_the_rest_is_in_the_json():
    known = objects(waiting=tuple(waits(f"p{number}", number) for number in range(MOST_PODS + 5)))
    markup = html(waiting_read(answer_all(view(known), facts(), NOW)))

    assert markup.count("<details") == MOST_PODS
    assert "and 5 more" in words(markup)


def test_without_answers_the_page_says_why():
    assert "Read for the first time" in words(html(WaitingRead(error="read for the first time")))
    failing = words(html(waiting_read(error="KeyError('x')")))
    assert "The answers could not be renewed" in failing
    assert "ml/ train-7" in failing


def test_what_could_not_be_seen_is_a_notice_and_unknown_pods_are_not_none():
    unknown = replace(view(), objects=None, waiting=None, failures=("the API server denies access",))
    text = words(html(waiting_read(answer_all(unknown, facts(), NOW))))

    assert "Not known. the API server denies access." in text
    assert "No pod waits" not in text
    assert "No pod waits for a device." in words(
        html(waiting_read(answer_all(view(objects(waiting=())), facts(), NOW)))
    )


async def test_the_api_answers_in_each_format_and_browsers_get_the_page() -> None:
    document = json.loads((await asked("/api/v1/waiting")).text)
    rows = await asked("/api/v1/waiting?format=csv")
    browser = await asked("/waiting", Accept="text/html")

    assert (len(document["pods"]), document["other_pods"], document["error"]) == (7, 1, None)
    assert rows.headers["Content-Disposition"].endswith('"gpuslice-waiting.csv"')
    assert (await asked("/waiting", Accept="text/plain")).text.startswith("NAMESPACE / POD")
    assert browser.text.startswith("<!DOCTYPE html>")


async def test_a_hub_of_some_namespaces_shows_their_pods_only() -> None:
    document = json.loads((await asked("/api/v1/waiting", only=("web",))).text)
    refused = await asked("/api/v1/waiting?namespace=ml", only=("web",))
    chosen = json.loads((await asked("/api/v1/waiting?namespace=web")).text)

    assert (document["pods"], document["only_namespaces"]) == ([], ["web"])
    assert refused.status == 404
    assert (chosen["pods"], chosen["other_pods"]) == ([], 1)


@pytest.mark.parametrize("path", ["/api/v1/waiting", "/waiting"])
async def test_before_the_first_answers_programs_get_503_with_why(path: str) -> None:
    response = await asked(path, WaitingRead(error="not yet"), Accept="text/plain")

    assert (response.status, response.text) == (503, "not yet\n")


def series(text: str) -> Mapping[str, float]:
    """Return the series of waiting pods."""
    rows = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("gpuslice_waiting"))
    return {name: float(value) for name, value in rows}


async def test_the_numbers_are_series() -> None:
    found = series((await asked("/metrics")).text)

    assert found['gpuslice_waiting_pods{reason="held",resource="nvidia.com/mig-3g.40gb"}'] == 2
    assert found['gpuslice_waiting_pods_blocked_by_idle{resource="nvidia.com/mig-3g.40gb"}'] == 2
    assert found['gpuslice_waiting_pods_blocked_by_idle{resource="nvidia.com/mig-1g.10gb"}'] == 0


async def test_while_pods_are_not_known_there_are_no_series() -> None:
    unknown = answer_all(replace(view(), objects=None, waiting=None), facts(), NOW)

    assert not series((await asked("/metrics", waiting_read(unknown))).text)
    assert not series((await asked("/metrics", WaitingRead())).text)


async def test_a_watch_answers_and_keeps_the_last_answers_if_a_newer_try_fails(caplog) -> None:
    views = iter((view(), None))
    async with connected(nothing) as prometheus:
        watch = WaitingWatch(prometheus, lambda: next(views), lambda: None, interval=30)
        assert await watch.refresh() == 30
        good = watch.newest
        await watch.refresh()

    assert good.waiting is not None
    assert len(good.waiting.answers or ()) == 7
    assert (watch.newest.waiting, watch.newest.reads) == (good.waiting, 2)
    assert "AttributeError" in watch.newest.error
    assert "cannot answer why pods wait" in caplog.text


@pytest.mark.parametrize("pods", [None, ()])
async def test_while_no_pod_waits_nothing_is_asked_of_prometheus(pods: tuple[()] | None) -> None:
    asked: list[str] = []

    def answer(expression: str) -> Samples | str:
        asked.append(expression)
        return []

    async with connected(answer) as prometheus:
        calm = replace(view(), objects=None, waiting=pods)
        watch = WaitingWatch(prometheus, lambda: calm, lambda: None, interval=30)
        await watch.refresh()

    assert asked == []
    assert watch.newest.error == ""


async def test_answers_that_are_old_are_not_shown() -> None:
    now = [0.0]
    async with connected(nothing) as prometheus:
        watch = WaitingWatch(prometheus, view, lambda: None, interval=30, clock=lambda: now[0])
        await watch.refresh()
        now[0] = watch.newest.waiting.at + 20 * 30 + 1

    assert watch.newest.waiting is None
    assert watch.newest.counts == Counts()
    assert watch.newest.error == "no newer answer has come"


async def test_while_pods_are_not_known_the_next_try_is_soon() -> None:
    unknown = replace(view(), objects=None, waiting=None)
    async with connected(nothing) as prometheus:
        watch = WaitingWatch(prometheus, lambda: unknown, lambda: None, interval=30)
        assert await watch.refresh() == 5
