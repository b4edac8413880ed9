"""The advice on the page of a holder: a verdict with its facts, or a reason."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page

from exporter.demo.scenario import Scenario
from tests.core.advice.test_node import held, hopper, process
from tests.fake.demo.making import made, node_of
from tests.page.browser.axe import faults
from tests.page.browser.site import PHONE, WIDE, overflow, visiting
from tests.together.end_to_end.serving import Served, serving

STEP, HOUR = 300.0, 3600.0
# First words of the answer on the page of each pod.
FORMS = {
    "small": "1g.10gb would fit.",
    "idle": "It could be released",
    "large": "What it holds fits",
    "served": "Not known: vLLM takes memory in advance",
    "turns-0": "The GPU could have 4 replicas.",
    "off": "No advice: a pod has the label",
}


def scenario() -> Scenario:
    """Return a node whose holders have advice of every form."""
    loads = (
        ("small", process("6 GiB", high=10)),
        ("idle", process("6 GiB", high=0)),
        ("large", process("70 GiB", high=90)),
        ("served", process("20 GiB", high=30) | {"command": "VLLM::EngineCore"}),
        ("off", process("6 GiB", high=10)),
    )
    pods = [
        held(name, "nvidia.com/gpu", f"{{gpu:{place}}}", running)
        for place, (name, running) in enumerate(loads)
    ]
    pods[-1]["labels"] = {"gpuslice-exporter/advice": "off"}
    shared, replicas = "nvidia.com/gpu.shared", [f"{{gpu:5}}::{replica}" for replica in range(2)]
    pods += [
        held(f"turns-{place}", shared, each, process("8 GiB", high=20)) for place, each in enumerate(replicas)
    ]
    offers: list[dict[str, Any]] = [{"resource": shared, "ids": replicas}]
    return made(node=node_of(580), gpus=[hopper(count=6)], pods=pods, offers=offers)


@asynccontextmanager
async def aged(hours: float) -> AsyncIterator[Served]:
    """Serve the node after some hours."""
    steps = int(hours * HOUR / STEP) + 1
    settings = {"poll_interval": STEP, "stale_after": 2 * STEP}
    async with serving(scenario(), began=time.time() - (steps - 1) * STEP, **settings) as served:
        for step in range(steps):
            await served.poll(step * STEP)
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def a_day() -> AsyncIterator[Served]:
    """Serve the node after 25 hours."""
    async with aged(25) as served:
        yield served


async def answer(page: Page) -> str:
    """Return the answer to the question."""
    return await page.locator("#answers > div").last.inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_is_accessible_and_fits(window, a_day, form) -> None:
    for scheme, size in (("light", WIDE), ("dark", PHONE)):
        path = f"holder/ml/{form}/main"
        async with visiting(window, a_day.url, path, color_scheme=scheme, viewport=size) as (page, _):
            question, words = (await answer(page)).split("\n", 1)
            assert question == "Which slice would fit it?"
            assert words.strip().startswith(FORMS[form])
            assert await faults(page) == [], (scheme, size)
            assert await overflow(page) <= 0, (scheme, size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (0.0, "Not known: seen for less than 5 minutes."),
        (2.0, "Not known: held for 2 h 0 min, which is less than a day."),
    ],
)
async def test_a_young_holder_has_no_advice_yet(window, hours, words) -> None:
    async with aged(hours) as served:
        for scheme, size in (("light", WIDE), ("dark", PHONE)):
            async with visiting(
                window, served.url, "holder/ml/small/main", color_scheme=scheme, viewport=size
            ) as (page, _):
                assert words in await answer(page)
                assert await faults(page) == [], scheme
