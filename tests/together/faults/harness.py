"""A watch over a fake node: what the page says before a fault, while it lasts, and when it is over.

A real poller reads the node and a real server hands the page out, so that a cell of the matrix of faults is
looked at as Prometheus would. The node's load is constant. With ``step`` 0 time stands still on it and every
number stays; otherwise each poll comes ``step`` seconds after the last, gauges stay and counters grow
at their pace. Either way whatever else changes on the page was changed by the fault.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pynvml
from aiohttp import ClientSession, ClientTimeout

from exporter.concurrency import wait_for
from exporter.config import ListenAddress
from exporter.demo.node import FakeNode
from exporter.demo.scenario import Fault, Scenario
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.core.poller.bench import settings_of
from tests.site import site_of
from tests.together.faults.cells import Cell, Claim, Outcome, Result, Trial
from tests.together.faults.compare import Baseline, Own, broken_sums, changed, made_up, missing
from tests.together.faults.crashes import crashes
from tests.together.faults.limits import PATIENT, CallLimits, patient_constants
from tests.together.faults.pages import Page
from tests.waiting import LIMIT_SECONDS

# Not compressed: that costs more than all else of a request.
HEADERS = {"Accept": "text/plain", "Accept-Encoding": "identity"}
# After this many polls without the fault the page must be as before.
RECOVERY_POLLS = 2
# Unix time of second 0 of the node.
BEGAN = 1_700_000_000.0
# A page that has come to rest needs two samples of everything, and a third to see how counters grow.
WARMING_POLLS = 4


@dataclass(slots=True)
class Watch:
    """The node, its poller and a session with its server; ``crashes`` were logged or not caught.

    Answers of sources are ``age`` seconds older than the node says.
    """

    node: FakeNode
    poller: Poller
    session: ClientSession
    step: float
    calls: CallLimits
    crashes: list[str] = field(default_factory=list)
    age: float = 0.0
    _baseline: Baseline | None = None

    async def put(self, *faults: Fault) -> None:
        """Have these faults in force from now on, and no others; with none the fault is over."""
        self.plan(*faults)
        await self.node.step(self.node.time)

    def plan(self, *faults: Fault) -> None:
        """Have these faults in force from the next poll on, and no others."""
        self.node.scenario = replace(self.node.scenario, faults=faults)

    async def poll(self) -> Page:
        """Let time pass, poll once, and return the page."""
        await self.node.step(self.node.time + self.step)
        assert await asyncio.to_thread(self.node.nvml.events.settle, LIMIT_SECONDS)
        self.calls.restart()
        poll = asyncio.ensure_future(self.poller.poll())
        await wait_for(self.calls.begun, LIMIT_SECONDS, poll)
        if self.calls.begun.is_set():
            await self.text()
            assert not poll.done(), "the poll ends before the limit of a call that hangs"
            self.calls.expire()
        await poll
        return await self.page()

    async def page(self) -> Page:
        """Fetch the page and read its samples."""
        return Page(await self.text())

    async def text(self) -> str:
        """Return the page, which must come with status 200."""
        async with self.session.get("/metrics") as answer:
            assert answer.status == 200, f"/metrics answers {answer.status}"
            return await answer.text()

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
        outcome: Outcome,
        polls: int = 1,
    ) -> Result:
        """Put a fault on for ``polls`` polls and return the result; the page of each must keep the claim.

        ``outcome`` names it, given the page before and the last one with the fault.
        """
        [result] = await self.in_turn(fault, [Trial(cell, claim, outcome)], polls)
        return result

    async def in_turn(
        self,
        fault: "contextlib.AbstractAsyncContextManager[Any]",
        trials: Sequence[Trial],
        polls: int = 1,
    ) -> list[Result]:
        """Put faults on, each in place of the one before, and return the results.

        All pages are compared with the page before the first fault. Recovery is checked once, after the last
        fault; if it fails, all of the results have that as broken.
        """
        baseline = await self.before()
        before = page = baseline.page
        found: list[tuple[Trial, int, str, list[str]]] = []
        misled: list[Own] = []
        async with fault:
            for trial in trials:
                self.crashes.clear()
                broken: list[str] = []
                try:
                    if trial.put is not None:
                        await trial.put()
                    misled += [trial.claim.own] if trial.claim.believed else []
                    for _ in range(polls):
                        page = await self.poll()
                        broken += self._held(baseline, before, page, trial.claim, misled)
                except Exception as error:  # noqa: BLE001 - that is what the matrix looks for
                    broken.append(f"the poll raises {error!r}")
                lost = sum(1 for _ in missing(baseline, page))
                broken += [f"logged: {crash}" for crash in self.crashes]
                found.append((trial, lost, trial.outcome(baseline.page, page), broken))
                before = page
        self.crashes.clear()
        left: list[str] = []
        taken = await self._recovered(baseline, trials[-1].claim, misled, left)
        left += [f"logged: {crash}" for crash in self.crashes]
        return [
            Result(
                cell=trial.cell,
                outcome=outcome,
                lost=lost,
                polls=taken,
                broken=tuple(dict.fromkeys([*broken, *left])),
            )
            for trial, lost, outcome, broken in found
        ]

    def _held(
        self, baseline: Baseline, before: Page, page: Page, claim: Claim, misled: Sequence[Own]
    ) -> Iterator[str]:
        """Yield what a page breaks; ``misled``: the series of faults up to now that were believed."""
        now = self.node.time
        yield from changed(baseline, page, now, claim.own)
        if not claim.believed:
            yield from made_up(baseline, page, now, claim.own, claim.states, misled)
        yield from broken_sums(page)
        yield from claim.health(before, page)

    async def _recovered(
        self, baseline: Baseline, claim: Claim, misled: Sequence[Own], broken: list[str]
    ) -> int | None:
        """Poll until the page is as before and return how often; None, and what differs, if it is not."""
        different: list[str] = []
        for polls in range(1, RECOVERY_POLLS + 1):
            page = await self.poll()
            now = self.node.time
            different = [*missing(baseline, page), *made_up(baseline, page, now, claim.own, None, misled)]
            different += changed(baseline, page, now, baseline.uncounted(claim.own))
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
    scenario: Scenario, *, step: float = 0.0, wall: Callable[[], float] | None = None, **changes: Any
) -> AsyncIterator[Watch]:
    """Start a node, a poller that has not polled yet and a server for its page.

    All clocks go with the node: ``wall``, which dates polls, too, unless another is given. ``changes`` are
    settings.
    """
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(patient_constants())
        node = await stack.enter_async_context(FakeNode(scenario, clock=lambda: 0.0))
        settings = settings_of(node, **changes)
        sources = Sources(settings, node.nvml, clock=lambda: node.time, budget=PATIENT)
        dated = wall or (lambda: BEGAN + node.time)
        poller = Poller(settings, sources, clock=lambda: node.time, wall=dated)
        site = site_of(lambda: poller.snapshot, lambda: poller.restart_reason)
        server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
        url = await server.start()
        try:
            async with ClientSession(url, headers=HEADERS, timeout=ClientTimeout(LIMIT_SECONDS)) as session:
                watch = Watch(node, poller, session, step, CallLimits(node, poller))
                _set_clocks(poller, lambda: node.time + watch.age)
                with crashes(watch.crashes):
                    yield watch
        finally:
            await server.stop()
            # Calls that hang return first, so that the worker is done with this driver.
            node.nvml.release()
            await asyncio.wait_for(poller.close(), LIMIT_SECONDS)
            pynvml.nvmlLib = None
            pynvml._nvmlGetFunctionPointer_cache.clear()


def _set_clocks(poller: Poller, clock: Callable[[], float]) -> None:
    """Have answers of all sources age by one clock."""
    sources, devices = poller._sources, poller._devices
    collectors = (poller._allocations, poller._names, *poller._later(), *devices._collectors())
    kubelet = sources.pod_resources
    for part in (*collectors, poller._restart, sources.names, kubelet, kubelet._offers):
        part._clock = clock
    sources.names._changed_at = clock()


@contextlib.asynccontextmanager
async def scenario_fault(watch: Watch, *faults: Fault) -> AsyncIterator[None]:
    """Have faults of the scenario in force inside the block."""
    await watch.put(*faults)
    try:
        yield
    finally:
        await watch.put()
