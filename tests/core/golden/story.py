"""A fake node under the real poller, and its pages at some moments.

Each node has a folder, with its scenario unless the catalog has it, and one page for each moment:
``metrics.prom`` after 10 s, ``metrics@45.prom`` after 45 s. An empty file of such a name adds a page.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from exporter.config import load_settings
from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario, catalog
from exporter.exposition import Exposition, Format
from exporter.metrics.selection import Selection
from exporter.model import Snapshot
from exporter.poll.budget import Budget
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.core.golden.page import Page
from tests.truth import Truth, truth_of
from tests.waiting import LIMIT_SECONDS

HERE = Path(__file__).parent
NODES = tuple(sorted(folder.name for folder in HERE.iterdir() if any(folder.glob("metrics*.prom"))))
PERIOD, USUAL = 5, 10
# A busy machine must not make a poll miss a source, and no call of these nodes hangs.
PATIENT = (
    Budget.of_interval(PERIOD)
    .patient(LIMIT_SECONDS)
    ._replace(
        call_timeout=LIMIT_SECONDS, request_timeout=LIMIT_SECONDS, gpu=LIMIT_SECONDS, card=LIMIT_SECONDS
    )
)
# Unix time of second 0 of every scenario.
BEGAN = 1_700_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A page ``time`` seconds after the start, and the truth of that moment.

    ``text`` and ``page`` have all series, ``default`` is the page without any option; ``default`` and
    ``snapshot`` are set for golden nodes only.
    """

    time: int
    text: str
    default: str = ""
    snapshot: Snapshot | None = None
    page: Page
    truth: Truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A node with its pages."""

    scenario: Scenario
    scenes: tuple[Scene, ...]


def golden(name: str, time: int) -> Path:
    """Return the file with the page of a node at a time."""
    return HERE / name / ("metrics.prom" if time == USUAL else f"metrics@{time}.prom")


def times(name: str) -> tuple[int, ...]:
    """Return the seconds of a node's pages."""
    stems = (path.stem.partition("@")[2] for path in (HERE / name).glob("metrics*.prom"))
    return tuple(sorted(int(stem or USUAL) for stem in stems))


def scenario(name: str) -> Scenario:
    """Return the scenario of a node, from its folder or from the catalog."""
    own = HERE / name / "scenario.json"
    return catalog.load(str(own) if own.exists() else name)


@functools.cache
def story(name: str) -> Story:
    """Return the pages of a node, which runs once for all tests."""
    return asyncio.run(_story(name))


async def _story(name: str) -> Story:
    node = scenario(name)
    return Story(scenario=node, scenes=tuple([scene async for scene in scenes(node, times(name))]))


async def scenes(
    of: Scenario, wanted: tuple[int, ...], skip: frozenset[str] = frozenset()
) -> AsyncGenerator[Scene, None]:
    """Run a node and yield its pages at these seconds; the readings ``skip`` are not read."""
    async with FakeNode(of, clock=lambda: 0.0) as node:
        settings = replace(load_settings({}, {}), node_name=node.name, **asdict(node.paths))
        poller = Poller(
            settings,
            Sources(settings, node.nvml, clock=lambda: node.time, budget=PATIENT, skip=skip),
            demo=True,
            clock=lambda: node.time,
            wall=lambda: BEGAN + node.time,
        )
        everything, default = Exposition(), Exposition(Selection())
        try:
            for time in range(0, max(wanted) + 1, PERIOD):
                await node.step(time)
                # Events of GPUs come through a thread of their own; the page has all of them.
                assert await asyncio.to_thread(node.nvml.events.settle, LIMIT_SECONDS)
                await poller.poll()
                if time in wanted:
                    text = everything.page(poller.snapshot).body(Format.TEXT).decode()
                    yield Scene(
                        time=time,
                        snapshot=poller.snapshot,
                        text=text,
                        default=default.page(poller.snapshot).body(Format.TEXT).decode(),
                        page=Page(text),
                        truth=truth_of(node),
                    )
        finally:
            # Calls that hang return, so that closing does not wait for them.
            node.nvml.release()
            await poller.close()
