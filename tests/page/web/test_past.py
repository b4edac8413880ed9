"""History and figures over HTTP: real requests to a real server, with a history of a known past."""

import gzip
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession

from exporter.config import ListenAddress
from exporter.history import FIELDS
from exporter.history.ring import History
from exporter.metrics import IDENTITY_LABELS
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.core.history.snapshots import GIB, UUID, gpu, holder, snapshot
from tests.site import site_of
from tests.waiting import wait_until_async


@asynccontextmanager
async def past_of(*snapshots) -> AsyncIterator[tuple[ClientSession, History]]:
    """Serve a history of these snapshots."""
    history = History(6 * 3600, 5)
    for each in snapshots:
        history.record(each)
    site = site_of(lambda: snapshots[-1], past=history)
    server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
    url = await server.start()
    try:
        async with ClientSession(
            base_url=url, auto_decompress=False, skip_auto_headers=["Accept-Encoding"]
        ) as client:
            yield client, history
    finally:
        await server.stop()


def polls(count=3, pods=("a",)) -> list:
    """Return snapshots of the last seconds, each with pods of 1 GiB on a GPU with 2 GiB used."""
    now = time.time()
    row = gpu(used=2 * GIB, unattributed_memory=GIB, power_milliwatts=200_500)
    return [
        snapshot(
            now - 5 * (count - place - 1),
            *(holder(pod, memory_used=GIB, compute_used=0.123456789) for pod in pods),
            gpus=[row],
            sequence=place + 1,
        )
        for place in range(count)
    ]


async def test_history_has_the_documented_shape() -> None:
    async with past_of(*polls()) as (client, _), client.get("/api/v1/history?range=5m") as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        document = json.loads(await answer.read())
    assert set(document) == {"start", "end", "step", "count", "source", "note", "series"}
    assert [document[name] for name in ("step", "count", "source", "note")] == [5, 60, "memory", ""]
    assert document["end"] == document["start"] + 300
    assert document["start"] <= time.time() - 290
    series = {each["level"]: each for each in document["series"]}
    for level, each in series.items():
        assert set(each) == {"level", *IDENTITY_LABELS[level], *FIELDS[level]}
        assert all(len(each[field]) == 60 for field in FIELDS[level])
    assert series["container"]["mig_uuid"] is None
    assert [value for value in series["container"]["memory_used_bytes"] if value is not None] == [GIB] * 3
    assert {value for value in series["container"]["compute_used_ratio"] if value is not None} == {0.123457}
    assert {value for value in series["gpu"]["power_watts"] if value is not None} == {200.5}


async def test_history_can_be_narrowed() -> None:
    async with past_of(*polls(pods=("a", "b"))) as (client, _):

        async def asked(query) -> dict:
            async with client.get(f"/api/v1/history?{query}") as answer:
                assert answer.status == 200
                return json.loads(await answer.read())

        assert {each["level"] for each in (await asked("level=gpu"))["series"]} == {"gpu"}
        assert len((await asked("level=gpu&level=container"))["series"]) == 3
        assert (await asked("uuid=GPU-other"))["series"] == []
        assert [each["pod"] for each in (await asked("namespace=ml&pod=b"))["series"]] == ["b"]
        assert (await asked("namespace=ml&pod=b&container=other"))["series"] == []
        assert (await asked("range=1h&points=12"))["count"] == 12
        assert (await asked(f"range=1m&end={time.time() - 600}"))["series"] == []
        assert (await asked("range=5m&unheard=of"))["count"] == 60


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("range=soon", "range: write a duration such as"),
        ("range=", "range: write a duration such as"),
        ("range=1s", "range: write a duration such as"),
        ("range=7h", "range: 6 h are kept in memory (--history-retention); for longer ranges see Grafana or"),
        ("range=999999d", "range: 6 h are kept in memory (--history-retention)"),
        ("range=5m&end=1", "range: 6 h are kept in memory (--history-retention)"),
        ("end=tomorrow", "end: write a Unix time in seconds"),
        ("end=nan", "end: write a Unix time in seconds"),
        ("end=-1", "end: write a Unix time in seconds"),
        ("points=0", "points: write a whole number from 1 to 1440"),
        ("points=1441", "points: write a whole number from 1 to 1440"),
        ("points=many", "points: write a whole number from 1 to 1440"),
        ("level=pod", "level: write container, gpu, mig"),
        ("pod=a", "namespace: write it too; a holder needs namespace and pod"),
        ("namespace=ml", "pod: write it too; a holder needs namespace and pod"),
        ("container=main", "container: write namespace and pod too"),
    ],
)
async def test_wrong_parameters_are_named_with_what_they_take(query, said) -> None:
    async with past_of(*polls()) as (client, _), client.get(f"/api/v1/history?{query}") as answer:
        assert answer.status == 400
        assert json.loads(await answer.read())["error"].startswith(said)


async def test_history_is_compressed_and_not_sent_twice() -> None:
    async with past_of(*polls(pods=[f"pod-{number}" for number in range(30)])) as (client, _):
        end = time.time()
        path = f"/api/v1/history?range=1h&end={end}"
        async with client.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            tag = answer.headers["ETag"]
            assert len(json.loads(gzip.decompress(await answer.read()))["series"]) == 31
        headers = {"Accept-Encoding": "gzip", "If-None-Match": tag}
        async with client.get(path, headers=headers) as answer:
            assert answer.status == 304


@pytest.mark.parametrize(
    ("path", "ids"),
    [
        ("figures/node", ["memory", "compute", "devices"]),
        (f"figures/gpu/{UUID}", ["memory", "compute", "devices"]),
        ("figures/holder/ml/a/main", ["memory", "compute"]),
        ("figures/holder/ml/a/", ["memory", "compute"]),
    ],
)
async def test_figures_are_served_for_each_kind_of_page(path, ids) -> None:
    known = polls()
    async with past_of(*known) as (client, _), client.get(f"/{path}?range=5m") as answer:
        assert answer.status == 200
        document = json.loads(await answer.read())
    assert [figure["id"] for figure in document["figures"]] == ids
    assert document["begins"] == known[0].timestamp // 5 * 5
    assert document["config"] == {"displayModeBar": False, "displaylogo": False, "responsive": True}
    bars = [trace for trace in document["figures"][0]["figure"]["data"] if trace["type"] == "bar"]
    assert all(sum(value is not None for value in trace["y"]) == 3 for trace in bars)


async def test_unknown_gpus_and_holders_have_no_figures() -> None:
    async with past_of(*polls()) as (client, _):
        for path in ("/figures/gpu/GPU-9", "/figures/holder/ml/other/main"):
            async with client.get(path) as answer:
                document = json.loads(await answer.read())
                assert (answer.status, document["figures"], document["begins"]) == (200, [], None)
        async with client.get("/figures/node?range=1") as answer:
            assert answer.status == 400


async def test_an_answer_is_cached_for_a_moment_only(monkeypatch) -> None:
    monkeypatch.setattr("exporter.web.node.timelines.routes._HISTORY_SECONDS", 0.05)
    async with past_of(*polls()) as (client, history):
        path = "/api/v1/history?level=container"

        async def pods() -> set[str]:
            async with client.get(path) as answer:
                return {each["pod"] for each in json.loads(await answer.read())["series"]}

        assert await pods() == {"a"}
        history.record(snapshot(time.time(), holder("new", memory_used=1), sequence=9))

        async def has_new() -> bool:
            return "new" in await pods()

        await wait_until_async(has_new)


async def test_the_figures_of_a_holder_that_ended_do_not_say_now() -> None:
    """The last steps may be of the time when it was there."""
    before, after = polls(2), polls(1, pods=("b",))
    async with past_of(*before, *after) as (client, _):

        async def summaries(pod) -> list[str]:
            async with client.get(f"/figures/holder/ml/{pod}/main?range=5m") as answer:
                return [figure["summary"] for figure in json.loads(await answer.read())["figures"]]

        assert set(await summaries("a")) == {"It is no longer there."}
        assert all(text.startswith("Now ") for text in await summaries("b"))
