"""A fake node acted out under the real poller, and the pages that it serves on the way.

One folder per node: its scenario, or only its name where the catalog has it, and one page for each moment
that is looked at: ``metrics.prom`` after 10 s, ``metrics@45.prom`` after 45 s. An empty file under such a
name asks for a page of that moment.
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
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.golden.page import Page
from tests.poller.bench import budget_of
from tests.truth import Truth, truth_of

HERE = Path(__file__).parent
NODES = tuple(sorted(folder.name for folder in HERE.iterdir() if any(folder.glob("metrics*.prom"))))
PERIOD, USUAL = 5, 10
SETTLE_SECONDS = 5.0
# Unix time of second 0 of every story.
BEGAN = 1_700_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What was served ``time`` seconds after the start, and what was so.

    ``text`` and ``page`` have all series, ``default`` is the page without any option; it and the snapshot are
    of golden nodes only.
    """

    time: int
    text: str
    default: str = ""
    snapshot: Snapshot | None = None
    page: Page
    truth: Truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A node with the moments at which it is looked at."""

    scenario: Scenario
    scenes: tuple[Scene, ...]


def golden(name: str, time: int) -> Path:
    """Give the file with the page of a node at a time."""
    return HERE / name / ("metrics.prom" if time == USUAL else f"metrics@{time}.prom")


def times(name: str) -> tuple[int, ...]:
    """List the seconds at which a node is looked at."""
    stems = (path.stem.partition("@")[2] for path in (HERE / name).glob("metrics*.prom"))
    return tuple(sorted(int(stem or USUAL) for stem in stems))


def scenario(name: str) -> Scenario:
    """Load the scenario of a node, from its folder or from the catalog."""
    own = HERE / name / "scenario.json"
    return catalog.load(str(own) if own.exists() else name)


@functools.cache
def story(name: str) -> Story:
    """Act a node out once, however many tests look at it."""
    return asyncio.run(_story(name))


async def _story(name: str) -> Story:
    told = scenario(name)
    return Story(scenario=told, scenes=tuple([scene async for scene in scenes(told, times(name))]))


async def scenes(
    told: Scenario, wanted: tuple[int, ...], skip: frozenset[str] = frozenset()
) -> AsyncGenerator[Scene, None]:
    """Act a node out, and show it at these seconds; the readings ``skip`` are not read."""
    async with FakeNode(told, clock=lambda: 0.0) as node:
        settings = replace(load_settings({}, {}), node_name=node.name, **asdict(node.paths))
        poller = Poller(
            settings,
            Sources(
                settings, node.nvml, clock=lambda: node.time, budget=budget_of(settings, 10.0), skip=skip
            ),
            demo=True,
            clock=lambda: node.time,
            wall=lambda: BEGAN + node.time,
        )
        everything, default = Exposition(), Exposition(Selection())
        try:
            for time in range(0, max(wanted) + 1, PERIOD):
                await node.step(time)
                # What GPUs report comes through a thread of its own; the page has all of it.
                assert await asyncio.to_thread(node.nvml.events.settle, SETTLE_SECONDS)
                await poller.poll()
                if time in wanted:
                    text, core = (
                        each.page(poller.snapshot).body(Format.TEXT).decode()
                        for each in (everything, default)
                    )
                    yield Scene(
                        time=time,
                        snapshot=poller.snapshot,
                        text=text,
                        default=core,
                        page=Page(text),
                        truth=truth_of(node),
                    )
        finally:
            # Nothing more is waited for, so that closing need not wait.
            node.nvml.release()
            await poller.close()
