"""A watch over a fake node: what the page says before a fault, while it lasts, and when it is over.

A real poller reads the node and a real server hands the page out, so that a cell of the matrix of faults is
looked at as Prometheus would. The node's load is constant. With ``step`` 0 time stands still on it and every
number stays; with another one each poll comes so many seconds after the last, gauges stay and counters grow
at their pace. Either way whatever else changes on the page was changed by the fault.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pynvml
from aiohttp import ClientSession

from exporter.config.settings import ListenAddress
from exporter.demo.node import FakeNode
from exporter.demo.scenario.schema import Fault, Scenario
from exporter.nvml import NvmlSource
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from exporter.web import Server, make_app
from tests.faults.compare import Baseline, broken_sums, changed, failures_of, made_up, missing
from tests.faults.crashes import crashes
from tests.faults.pages import Page
from tests.poller.bench import budget_of, settings_of
from tests.site import site_of

# So long may a page take; of several tries the best counts, because the machine has other things to do.
ANSWER_SECONDS, TRIES, PAUSE_SECONDS = 0.05, 5, 0.05
# So much work tells how much slower a busy machine is just now.
WORK_SECONDS = 0.005
# So many polls after a fault the page must be as it was.
RECOVERY_POLLS = 2
SETTLE_SECONDS = 5.0
# Unix time of second 0 of the node.
BEGAN = 1_700_000_000.0
# A page that has come to rest needs two samples of everything, and a third to see how counters grow.
WARMING_POLLS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One fault: of which ``source``, ``what`` fails (a call, a file), ``how`` (a code), and ``where``."""

    source: str
    what: str
    how: str
    where: str

    def __str__(self) -> str:
        return f"{self.source} {self.what} {self.how} {self.where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a cell may change.

    ``own`` tells of a series whether it is of the device or source at fault: it may leave the page, or keep
    its value. Those of its series that ``states`` names say how it is, so that they may have another value.
    ``health`` says in sentences what is wrong with them, given the page before and the one with the fault.
    ``believed``: the fault is an answer as good as any, so that what is the fault's own may be anything.
    """

    own: Callable[[str], bool]
    health: Callable[[Page, Page], Iterable[str]]
    states: frozenset[str] = frozenset()
    believed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a cell: ``outcome`` in a few words, ``lost`` series, and what was ``broken`` in sentences.

    ``polls`` is how many it took until the page was as before.
    """

    cell: Cell
    outcome: str
    lost: int
    polls: int | None
    broken: tuple[str, ...] = ()


@dataclass(slots=True)
class Watch:
    """The node, its poller and a session with its server; ``crashes`` were logged or not caught."""

    node: FakeNode
    poller: Poller
    session: ClientSession
    step: float
    crashes: list[str] = field(default_factory=list)
    _baseline: Baseline | None = None

    async def put(self, *faults: Fault) -> None:
        """Have these faults in force from now on, and no others; with none the fault is over."""
        self.node.scenario = replace(self.node.scenario, faults=faults)
        await self.node.step(self.node.time)

    async def poll(self) -> Page:
        """Let time pass, poll once, and return the page."""
        await self.node.step(self.node.time + self.step)
        assert await asyncio.to_thread(self.node.nvml.events.settle, SETTLE_SECONDS)
        poll = asyncio.ensure_future(self.poller.poll())
        await asyncio.wait({poll}, timeout=ANSWER_SECONDS)
        if not poll.done():
            # The page is there for whoever asks while a poll waits.
            await self.page()
        await poll
        return await self.page()

    async def page(self) -> Page:
        """Fetch the page over HTTP; fails unless it comes with 200, and soon."""
        best = float("inf")
        for _ in range(TRIES):
            started = time.perf_counter()
            async with self.session.get("/metrics") as answer:
                body = await answer.text()
            best = min(best, time.perf_counter() - started)
            assert answer.status == 200, f"/metrics answers {answer.status}"
            if best <= ANSWER_SECONDS or best <= ANSWER_SECONDS * slowness():
                return Page(body)
            await asyncio.sleep(PAUSE_SECONDS)
        raise AssertionError(f"/metrics takes {best:.3f} s")

    async def before(self) -> Baseline:
        """Poll until the page is at rest and return it; later calls return the page of the last recovery."""
        return self._baseline or await self.rest()

    async def rest(self) -> Baseline:
        """Poll until the page is at rest, whatever was done to the node, and take that as the page before."""
        for _ in range(WARMING_POLLS - 1):
            earlier, then = await self.poll(), self.node.time
        self._baseline = Baseline.between(earlier, then, await self.poll(), self.node.time)
        return self._baseline

    async def under(
        self,
        cell: Cell,
        fault: "contextlib.AbstractAsyncContextManager[Any]",
        claim: Claim,
        outcome: Callable[[Page, Page], str],
        polls: int = 1,
    ) -> Result:
        """Put a fault on for so many polls and say what came of it; the page of each is held to the claim.

        ``outcome`` names it, given the page before and the last one with the fault.
        """
        baseline = await self.before()
        broken: list[str] = []
        self.crashes.clear()
        page = baseline.page
        async with fault:
            for _ in range(polls):
                try:
                    page = await self.poll()
                except Exception as error:  # noqa: BLE001 - that is what the matrix looks for
                    broken.append(f"the poll raises {error!r}")
                    break
                broken += self._held(baseline, page, claim)
        taken = await self._recovered(baseline, claim, broken)
        broken += [f"logged: {crash}" for crash in self.crashes]
        lost = sum(1 for _ in missing(baseline, page))
        return Result(
            cell=cell,
            outcome=outcome(baseline.page, page),
            lost=lost,
            polls=taken,
            broken=tuple(dict.fromkeys(broken)),
        )

    def _held(self, baseline: Baseline, page: Page, claim: Claim) -> Iterator[str]:
        now = self.node.time
        yield from changed(baseline, page, now, claim.own)
        if not claim.believed:
            yield from made_up(baseline, page, now, claim.own, claim.states)
        yield from broken_sums(page)
        yield from claim.health(baseline.page, page)

    async def _recovered(self, baseline: Baseline, claim: Claim, broken: list[str]) -> int | None:
        """Poll until the page is as before and return how often; None, and what differs, if it is not."""
        different: list[str] = []
        for polls in range(1, RECOVERY_POLLS + 1):
            page = await self.poll()
            now = self.node.time
            different = [*missing(baseline, page), *made_up(baseline, page, now, claim.own, None)]
            different += changed(baseline.without_growing(claim.own), page, now, _nobodys)
            different += broken_sums(page)
            if not different:
                if baseline.behind(page, now):
                    # What was read late is not late any more.
                    page, now = await self.poll(), self.node.time
                self._baseline = baseline.moved_to(page, now)
                return polls
        broken += [f"after {RECOVERY_POLLS} polls: {each}" for each in dict.fromkeys(different)]
        # The next cell begins from what is there now.
        self._baseline = None
        return None


@contextlib.asynccontextmanager
async def watched(
    scenario: Scenario,
    *,
    step: float = 0.0,
    wall: Callable[[], float] | None = None,
    deadline: float | None = None,
    patience: float | None = None,
    **changes: Any,
) -> AsyncIterator[Watch]:
    """Start a node, a poller that has not polled yet and a server for its page.

    ``wall`` is the clock that dates polls, by default one that goes with the node; ``deadline`` is how long
    each source may take, ``patience`` how long a call of NVML may, ``changes`` are settings.
    """
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = settings_of(node, **changes)
        budget = budget_of(settings, deadline)
        sources = Sources(settings, node.nvml, clock=lambda: node.time, budget=budget)
        if patience is not None:
            options = replace(sources.nvml._options, patience=patience)
            sources.nvml = NvmlSource(options, sources.wake)
        dated = wall or (lambda: BEGAN + node.time)
        poller = Poller(settings, sources, clock=lambda: node.time, wall=dated)
        site = site_of(lambda: poller.snapshot, lambda: poller.restart_reason)
        server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
        url = await server.start()
        try:
            async with ClientSession(url, headers={"Accept": "text/plain"}) as session:
                watch = Watch(node, poller, session, step)
                with crashes(watch.crashes):
                    yield watch
        finally:
            await server.stop()
            # Calls that hang return first, so that the worker is done with this driver.
            node.nvml.release()
            await asyncio.wait_for(poller.close(), 10)
            pynvml.nvmlLib = None
            pynvml._nvmlGetFunctionPointer_cache.clear()


def slowness() -> float:
    """Tell how many times as long as alone this process takes for its work, as others want the processors."""
    started, worked = time.perf_counter(), time.process_time()
    while time.process_time() - worked < WORK_SECONDS:
        pass
    return (time.perf_counter() - started) / WORK_SECONDS


def _nobodys(_series: str) -> bool:
    return False


@contextlib.asynccontextmanager
async def scenario_fault(watch: Watch, *faults: Fault) -> AsyncIterator[None]:
    """Have faults of the scenario in force inside the block."""
    await watch.put(*faults)
    try:
        yield
    finally:
        await watch.put()


def must_hold(result: Result) -> None:
    """Fail with the cell and all that it broke."""
    assert not result.broken, f"{result.cell}: " + "; ".join(result.broken[:8])


__all__ = [
    "BEGAN",
    "Cell",
    "Claim",
    "Result",
    "Watch",
    "failures_of",
    "must_hold",
    "scenario_fault",
    "watched",
]
