"""What was is what /metrics showed: a node is scraped at each poll, and its history is held against that."""

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
from exporter.web import Server, make_app
from tests.poller.bench import budget_of
from tests.site import site_of
from tests.web.truth import GIB, Series

# The first step of all lengths begins here.
START = 1_700_006_400.0
# lost-gpu loses one after 20 s, h100-mixed gets a job after 30 s.
SECONDS = range(1, 60, 5)
SCENARIOS = ("a100-mig-mixed", "h100-mixed", "hami", "lost-gpu", "t4-timeslicing")


@asynccontextmanager
async def clocked(scenario) -> AsyncIterator[tuple]:
    """Serve a node whose clock is that of its history, and give a way to poll it and one to ask it."""
    async with FakeNode(load(scenario), clock=lambda: 0.0) as node:
        settings = replace(
            load_settings({"listen": "127.0.0.1:0"}, {}), node_name=node.name, **asdict(node.paths)
        )

        def wall() -> float:
            return START + node.time

        poller = Poller(
            settings,
            Sources(settings, node.nvml, clock=lambda: node.time, budget=budget_of(settings, 10.0)),
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


def means(scrapes, told, level, labels, field) -> list[float | None]:
    """Average what the scrapes of each step said, None where none of them said anything."""
    steps = defaultdict(list)
    for scrape in scrapes:
        value = scrape.value(f"{level}_{field}", **labels)
        if value is not None:
            steps[math.floor((scrape.timestamp - told["start"]) / told["step"])].append(value)
    return [sum(steps[step]) / len(steps[step]) if step in steps else None for step in range(told["count"])]


def close(one, other) -> bool:
    """Whether two lists have the same gaps, and the same numbers as far as four bytes hold them."""
    return [value is None for value in one] == [value is None for value in other] and all(
        left is None or left == pytest.approx(right, rel=1e-6, abs=2e-6 if right <= 1 else 1e-3)
        for left, right in zip(one, other, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_history_is_the_mean_of_what_metrics_showed(scenario) -> None:
    """Each number of each thing, in steps of a poll or of many, and null where no scrape had a sample."""
    async with clocked(scenario) as (poll, ask):
        scrapes = [await poll(second) for second in SECONDS]
        for query in ("range=1m&points=12", "range=1m&points=6", "range=1m&points=2"):
            told = json.loads(await ask(f"/api/v1/history?{query}"))
            assert told["start"] + told["count"] * told["step"] == told["end"] > scrapes[-1].timestamp
            levels = {
                (each["level"], *(each[name] for name in IDENTITY_LABELS[each["level"]]))
                for each in told["series"]
            }
            assert len(levels) == len(told["series"])
            assert levels == everything(scrapes, told["start"])
            for each in told["series"]:
                labels = {name: each[name] for name in IDENTITY_LABELS[each["level"]]}
                for field in FIELDS[each["level"]]:
                    expected = means(scrapes, told, each["level"], labels, field)
                    assert close(each[field], expected), (labels, field, each[field], expected)


def everything(scrapes, start) -> set[tuple]:
    """Name all containers, GPUs and MIG devices that any scrape had, since the first step began."""
    return {
        (level, *(sample.labels.get(name) for name in IDENTITY_LABELS[level]))
        for scrape in scrapes
        if scrape.timestamp >= start
        for level in FIELDS
        for sample in scrape.all(f"{level}_info")
    }


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["a100-mig-mixed", "hami", "lost-gpu"])
async def test_figures_stack_up_to_what_the_devices_use(scenario) -> None:
    """In each step the bars of memory add up to the device's use, and the line is what is entitled."""
    async with clocked(scenario) as (poll, ask):
        scrapes = [await poll(second) for second in SECONDS]
        told = json.loads(await ask("/figures/node?range=5m"))
        told["count"] = round((told["end"] - told["start"]) / told["step"])
    memory, compute, devices = (figure["figure"]["data"] for figure in told["figures"])
    gpus = sorted({sample.labels["uuid"] for scrape in scrapes for sample in scrape.all("gpu_info")})
    used = added([means(scrapes, told, "gpu", {"uuid": uuid}, "memory_used_bytes") for uuid in gpus])
    bars = [trace["y"] for trace in memory if trace["type"] == "bar" and trace["name"] != "not known"]
    assert close_to(added(bars), used, GIB, 0.002 * len(bars))
    line = next(trace["y"] for trace in memory if trace["name"] == "entitled")
    assert close_to(line, entitled(scrapes, told), GIB, 0.002)
    # Each step of what is busy is that of its GPU.
    busy = {trace["name"]: trace["y"] for trace in devices if trace["hovertemplate"].startswith("busy")}
    for uuid in gpus:
        (info,) = {
            json.dumps(sample.labels.get("gpu"))
            for scrape in scrapes
            for sample in scrape.all("gpu_info", uuid=uuid)
        }
        shares = means(scrapes, told, "gpu", {"uuid": uuid}, "utilization_ratio")
        # Nothing is drawn of what none of them tells.
        shown = busy[f"GPU {json.loads(info)}"] if busy else [None] * told["count"]
        assert close_to(shown, shares, 0.01, 0.06)
    assert all(
        0 <= value <= len(gpus) * 1.02
        for trace in compute
        if trace["type"] == "bar"
        for value in trace["y"]
        if value is not None
    )


def entitled(scrapes, told) -> list[float | None]:
    """Add up what the containers are entitled to, step by step."""
    labels = {
        tuple(sorted(sample.labels.items()))
        for scrape in scrapes
        for sample in scrape.all("container_memory_entitled_bytes")
    }
    return added([means(scrapes, told, "container", dict(each), "memory_entitled_bytes") for each in labels])


def added(lists) -> list[float | None]:
    """Add what is known, step by step."""
    steps = [[value for value in step if value is not None] for step in zip(*lists, strict=True)]
    return [sum(step) if step else None for step in steps]


def close_to(shown, expected, unit, within) -> bool:
    """Whether what is shown in a unit is what is expected, gaps and all."""
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
        """Whether a sentence is in it, however it is marked up."""
        return "".join(sentence.split()) in "".join(self.words)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["gke", "intel-shared", "lost-gpu", "no-gpu", "sick-gpus"])
async def test_the_page_of_the_doctor_has_all_of_the_report(scenario) -> None:
    """Each check is on it by its name, with what was found, what is lost and how to mend it."""
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
