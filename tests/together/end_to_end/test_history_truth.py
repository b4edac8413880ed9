"""The history of a node is what /metrics showed at each poll."""

import json
import math
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from html.parser import HTMLParser

import pytest
from aiohttp import ClientSession

from exporter.config import ListenAddress, load_settings
from exporter.demo.node import FakeNode
from exporter.demo.scenario.catalog import load
from exporter.doctor.checks import Doctor
from exporter.history import FIELDS
from exporter.history.ring import History
from exporter.metrics import IDENTITY_LABELS
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.core.poller.bench import budget_of
from tests.page.web.truth import GIB, Series
from tests.site import site_of
from tests.waiting import LIMIT_SECONDS

# The first step of all lengths begins here.
START = 1_700_006_400.0
# lost-gpu loses one after 20 s, h100-mixed gets a job after 30 s.
SECONDS = range(1, 60, 5)
QUICK = ("lost-gpu", "t4-timeslicing")
SLOW = ("a100-mig-mixed", "h100-mixed", "hami")


@asynccontextmanager
async def clocked(scenario) -> AsyncIterator[tuple]:
    """Serve a node with one clock for all; yield a function that polls, and one that gets a path."""
    async with FakeNode(load(scenario), clock=lambda: 0.0) as node:
        settings = replace(
            load_settings({"listen": "127.0.0.1:0"}, {}), node_name=node.name, **asdict(node.paths)
        )

        def wall() -> float:
            return START + node.time

        poller = Poller(
            settings,
            Sources(settings, node.nvml, clock=lambda: node.time, budget=budget_of(settings, LIMIT_SECONDS)),
            demo=True,
            clock=lambda: node.time,
            wall=wall,
        )
        history = History(settings.history_retention, 5, wall=wall)
        poller.subscribe(history.record)
        doctor = Doctor(lambda: poller.evidence, settings)
        poller.subscribe(doctor.record)
        site = site_of(lambda: poller.snapshot, report=doctor.report, past=history)
        server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
        url = await server.start()
        try:
            async with ClientSession(base_url=url) as client:

                async def ask(path) -> str:
                    async with client.get(path, headers={"Accept": "text/html,*/*"}) as answer:
                        assert answer.status == 200, path
                        return await answer.text()

                async def poll(second) -> Series:
                    await node.step(second)
                    await poller.poll()
                    async with client.get("/metrics", headers={"Accept": "text/plain"}) as answer:
                        return Series(await answer.text())

                yield poll, ask
        finally:
            await server.stop()
            await poller.close()


def means(scrapes, answer, level, labels, field) -> list[float | None]:
    """Return the means of the scrapes in each step, None for a step without a sample."""
    steps = defaultdict(list)
    for scrape in scrapes:
        value = scrape.value(f"{level}_{field}", **labels)
        if value is not None:
            steps[math.floor((scrape.timestamp - answer["start"]) / answer["step"])].append(value)
    return [sum(steps[step]) / len(steps[step]) if step in steps else None for step in range(answer["count"])]


def close(one, other) -> bool:
    """Whether two lists have the same gaps, and the same numbers as far as four bytes hold them."""
    return [value is None for value in one] == [value is None for value in other] and all(
        left is None or left == pytest.approx(right, rel=1e-6, abs=2e-6 if right <= 1 else 1e-3)
        for left, right in zip(one, other, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("scenario", QUICK)
async def test_history_is_the_mean_of_what_metrics_showed(scenario) -> None:
    await assert_history_is_the_mean(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SLOW)
async def test_history_of_more_nodes_is_the_mean_of_what_metrics_showed(scenario) -> None:
    await assert_history_is_the_mean(scenario)


async def assert_history_is_the_mean(scenario) -> None:
    """Assert it of each field, in steps of one poll or more; null is where no scrape had a sample."""
    async with clocked(scenario) as (poll, ask):
        scrapes = [await poll(second) for second in SECONDS]
        for query in ("range=1m&points=12", "range=1m&points=6", "range=1m&points=2"):
            answer = json.loads(await ask(f"/api/v1/history?{query}"))
            assert answer["start"] + answer["count"] * answer["step"] == answer["end"] > scrapes[-1].timestamp
            levels = {
                (each["level"], *(each[name] for name in IDENTITY_LABELS[each["level"]]))
                for each in answer["series"]
            }
            assert len(levels) == len(answer["series"])
            assert levels == everything(scrapes, answer["start"])
            for each in answer["series"]:
                labels = {name: each[name] for name in IDENTITY_LABELS[each["level"]]}
                for field in FIELDS[each["level"]]:
                    expected = means(scrapes, answer, each["level"], labels, field)
                    assert close(each[field], expected), (labels, field, each[field], expected)


def everything(scrapes, start) -> set[tuple]:
    """Return all containers, GPUs and MIG devices of the scrapes since the first step began."""
    return {
        (level, *(sample.labels.get(name) for name in IDENTITY_LABELS[level]))
        for scrape in scrapes
        if scrape.timestamp >= start
        for level in FIELDS
        for sample in scrape.all(f"{level}_info")
    }


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["a100-mig-mixed", "lost-gpu"])
async def test_figures_stack_up_to_what_the_devices_use(scenario) -> None:
    """In each step the bars of memory add up to the memory used, and the line is the entitled memory."""
    async with clocked(scenario) as (poll, ask):
        scrapes = [await poll(second) for second in SECONDS]
        answer = json.loads(await ask("/figures/node?range=5m"))
        answer["count"] = round((answer["end"] - answer["start"]) / answer["step"])
    memory, compute, devices = (figure["figure"]["data"] for figure in answer["figures"])
    gpus = sorted({sample.labels["uuid"] for scrape in scrapes for sample in scrape.all("gpu_info")})
    used = added([means(scrapes, answer, "gpu", {"uuid": uuid}, "memory_used_bytes") for uuid in gpus])
    bars = [trace["y"] for trace in memory if trace["type"] == "bar" and trace["name"] != "not known"]
    assert close_to(added(bars), used, GIB, 0.002 * len(bars))
    line = next(trace["y"] for trace in memory if trace["name"] == "entitled")
    assert close_to(line, entitled(scrapes, answer), GIB, 0.002)
    # Each step of what is busy is that of its GPU.
    busy = {trace["name"]: trace["y"] for trace in devices if trace["hovertemplate"].startswith("busy")}
    for uuid in gpus:
        (info,) = {
            json.dumps(sample.labels.get("gpu"))
            for scrape in scrapes
            for sample in scrape.all("gpu_info", uuid=uuid)
        }
        shares = means(scrapes, answer, "gpu", {"uuid": uuid}, "utilization_ratio")
        # Without any value there is no line.
        shown = busy[f"GPU {json.loads(info)}"] if busy else [None] * answer["count"]
        assert close_to(shown, shares, 0.01, 0.06)
    assert all(
        0 <= value <= len(gpus) * 1.02
        for trace in compute
        if trace["type"] == "bar"
        for value in trace["y"]
        if value is not None
    )


def entitled(scrapes, answer) -> list[float | None]:
    """Return the entitled memory of all containers in each step."""
    labels = {
        tuple(sorted(sample.labels.items()))
        for scrape in scrapes
        for sample in scrape.all("container_memory_entitled_bytes")
    }
    return added(
        [means(scrapes, answer, "container", dict(each), "memory_entitled_bytes") for each in labels]
    )


def added(lists) -> list[float | None]:
    """Return the sums of the known values in each step."""
    steps = [[value for value in step if value is not None] for step in zip(*lists, strict=True)]
    return [sum(step) if step else None for step in steps]


def close_to(shown, expected, unit, within) -> bool:
    """Return whether the shown values are the expected ones in that unit, with the same gaps."""
    return [value is None for value in shown] == [value is None for value in expected] and all(
        value is None or abs(value - other / unit) <= within
        for value, other in zip(shown, expected, strict=True)
    )


class _Text(HTMLParser):
    """All the text of a page, by words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = []

    def handle_data(self, data) -> None:
        self.words += data.split()

    def has(self, sentence) -> bool:
        """Return whether it has a sentence, with any markup in it."""
        return "".join(sentence.split()) in "".join(self.words)


@pytest.mark.parametrize("scenario", ["gke", "sick-gpus"])
async def test_the_page_of_the_doctor_has_all_of_the_report(scenario) -> None:
    async with clocked(scenario) as (poll, ask):
        for second in (0, 40):
            await poll(second)
        report = json.loads(await ask("/api/v1/doctor"))
        text = _Text()
        text.feed(await ask("/doctor"))
    assert report["checks"]
    for check in report["checks"]:
        said = (check["name"], check["found"], check["lost"], check["remedy"])
        assert [part for part in said if not text.has(part)] == []
