"""The matrix of hangs: each function of NVML that is called does not return, for a while or for ever."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from exporter.demo.scenario import NvmlHang, Scenario
from exporter.nvml.driver.library import FINDING as FINDING_CALLS
from exporter.poll.budget import Budget
from tests.faults.cells import Cell, Claim, Result
from tests.faults.compare import failures_of
from tests.faults.harness import Watch, scenario_fault, watched
from tests.faults.nvml_calls import OF_PARTS, Driver, driver_of
from tests.faults.nvml_cells import C2C, OF_EVENTS, OF_NODE, ONCE, PART, SOURCE, STATES, STEP, WAIT, Case
from tests.faults.nvml_claims import Reach
from tests.faults.nvml_errors import Matrix
from tests.faults.nvml_nodes import show_on_bus
from tests.faults.pages import Page, name_of
from tests.poller.bench import until

FINDING = tuple(FINDING_CALLS)
# The timeout of a call of the program, at the default interval between polls.
CALL_TIMEOUT = Budget.of_interval(5.0).call_timeout
SLOW, LATE, FOR_EVER = "1 s", "45 s", "for ever"
# How long a call hangs, in seconds: less than the timeout, longer than some polls, or until it is let go.
DURATIONS: Mapping[str, float | None] = {SLOW: 1.0, LATE: 45.0, FOR_EVER: None}
# In tests calls hang for so much less time. The timeout is shorter too, but more than enough for a call that
# only waits for a processor.
SCALE, SHORT_TIMEOUT = 0.04, 0.5
# So many parts of the node may hang one after another until a poll is over its deadline.
ALL_PARTS = 10
# So many seconds of the node are a reading shown, at most, and so many polls later it is gone.
STALE_AFTER, STALE_POLLS = 3 * STEP, 4
HUNG_POLLS = 2
# Of so many functions one hangs until after the polls, and comes back by itself.
LATE_EVERY = 8
OF_EACH_KIND = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetCount_v2",
)


# Nobody can go on without what these are about: the library, and what it is.
OF_DRIVER = (
    "nvmlInit",
    "nvmlShutdown",
    "nvmlSystemGet",
    "nvmlDeviceGetCount",
)
# A wait for events hangs in a thread of its own, a pair of GPUs costs what is told of the pair, and nobody
# needs what is given back.
APART = frozenset(
    {
        "nvmlEventSetWait_v2",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlEventSetFree",
        "nvmlGpmSampleFree",
    }
)
# These are for all GPUs, and cost events and profiling.
FOR_ALL = frozenset({"nvmlEventSetCreate", "nvmlGpmSampleAlloc"})
# Within so many seconds a thread has ended whose call has returned.
END_SECONDS = 5.0


class Hangs(Matrix):
    """The cells of one node's driver; durations are ``scale`` times as long as they are called."""

    def __init__(self, watch: Watch, driver: Driver, scale: float) -> None:
        super().__init__(watch, driver)
        self._scale = scale

    async def hung(self, case: Case) -> Result:
        """Have a cell's calls hang and say what came of it."""
        reach, before = self._reach(case), _threads()
        cell = Cell(source=SOURCE, what=case.function, how=f"hangs {case.how}", where=case.where)
        claim = Claim(
            own=lambda series: self._may_change(case, reach, series),
            health=lambda page, now: self._hung_wrongly(case, reach, page, now),
            states=STATES,
        )
        polls = STALE_POLLS if reach is Reach.DRIVER else HUNG_POLLS
        result = await self._watch.under(cell, self._hang(case), claim, partial(self.outcome, case), polls)
        broken = list(result.broken)
        if reach is Reach.DRIVER:
            # The sweep that hung tells what was so when it began.
            await self._watch.rest()
        if reach is Reach.DRIVER and result.outcome != "all GPUs of the driver":
            broken.append("what the driver said is shown when it is stale")
        with contextlib.suppress(AssertionError):
            await until(lambda: _threads() <= before, within=END_SECONDS)
        if _threads() > before:
            broken.append(f"{_threads() - before} threads are left in the driver")
        return replace(result, broken=tuple(broken))

    def _reach(self, case: Case) -> Reach:
        if case.how == SLOW or case.function in APART:
            return Reach.NOTHING
        if case.function.startswith(OF_DRIVER):
            return Reach.DRIVER
        of_readings = case.where == PART or case.function in OF_PARTS | FOR_ALL
        return Reach.READINGS if of_readings else Reach.DEVICE

    @contextlib.asynccontextmanager
    async def _hang(self, case: Case) -> AsyncIterator[None]:
        again = self._driver.again(case.function, asked=self._asked(case))
        if again is not None:
            await again()
        lasts = DURATIONS[case.how]
        seconds = None if lasts is None else lasts * self._scale
        hang = NvmlHang(kind="nvml_hang", function=case.function, device=case.device or None, seconds=seconds)
        async with scenario_fault(self._watch, hang):
            yield
            if seconds is not None and case.how != SLOW:
                # It comes back by itself.
                await asyncio.sleep(seconds)
        await self._settled()

    async def _settled(self) -> None:
        """Wait until the sweep has ended that hung, and nothing is left out any more."""
        poller = self._watch.poller
        sweep = poller._devices._nvml._task
        if sweep is not None:
            await asyncio.wait({sweep}, timeout=END_SECONDS)
        with contextlib.suppress(AssertionError):
            await until(lambda: not poller._sources.nvml._sweeper.calls.hanging, within=END_SECONDS)

    def _may_change(self, case: Case, reach: Reach, series: str) -> bool:
        if series in self._driver.passing and (reach is Reach.DRIVER or not self._asked(case)):
            return True
        if reach is Reach.DRIVER:
            return bool(OF_NODE.match(series)) or any(uuid in series for uuid in self._gpus)
        if reach is Reach.NOTHING:
            # A wait is seen to hang after some seconds of the clock, which polls may take on a busy machine.
            of_wait = case.function == WAIT and name_of(series) in OF_EVENTS
            return of_wait or (case.function in APART and "gpuslice_gpu_peer_" in series)
        if not case.device:
            return any(uuid in series for uuid in self._gpus)
        gpu = self._gpu(case.device)
        if gpu not in series or case.where != PART or case.function.startswith(FINDING):
            return gpu in series
        return self._of_part(case.device, series)

    def _hung_wrongly(self, case: Case, reach: Reach, before: Page, page: Page) -> Iterator[str]:
        failed = set(failures_of(before, page))
        expected = {("nvml", "deadline")} if reach is Reach.DRIVER else set()
        if {key for key in failed if len(key) == 2} != expected:
            yield f"collectors fail otherwise: {sorted(failed)}"
        calls = {key for key in failed if len(key) == 3}
        costs = reach in (Reach.READINGS, Reach.DEVICE)
        if not costs and case.function not in APART and calls:
            yield f"failures are counted that did not occur: {calls}"
        if costs and not (calls and all(self._is_hang(case, key) for key in calls)):
            yield f"the hang is not counted as what it is: {sorted(calls)}"
        down = {uuid for uuid in self._gpus if page.value("gpuslice_gpu_up", uuid=uuid) == 0}
        hit = {self._gpu(case.device)} if case.device else set(self._gpus)
        if reach is Reach.DEVICE and not (down and down <= hit and (down == hit or not case.device)):
            yield f"gpuslice_gpu_up is 0 of {sorted(down)} and should be of {sorted(hit)}"
        if reach in (Reach.NOTHING, Reach.READINGS) and down:
            yield f"gpuslice_gpu_up is 0 of {sorted(down)}"

    def _is_hang(self, case: Case, key: tuple[str, ...]) -> bool:
        whose = {self._gpu(case.device)} if case.device else {"", *self._gpus}
        named = case.function.startswith(C2C.get(key[1], key[1]))
        return key[0] in whose and named and key[2] == "Hangs"


def _threads() -> int:
    return sum(thread.name == "nvml" for thread in threading.enumerate())


def everywhere(matrix: Matrix, functions: Iterable[str]) -> Iterator[Case]:
    """List the cells of all functions: at each place, for a while and for ever."""
    for function in functions:
        yield from (Case(function, how, *at) for at in matrix.places(function) for how in (SLOW, FOR_EVER))


def late(matrix: Matrix, functions: Iterable[str]) -> Iterator[Case]:
    """List cells of calls that return when the polls are over, of some functions that are about whole GPUs.

    A wait for events that hangs is noticed after some seconds of the clock, not of the node: it has a test of
    its own.
    """
    others = OF_PARTS | {WAIT}
    about = [name for name in functions if name not in others and not name.startswith(OF_DRIVER)]
    for function in about[::LATE_EVERY]:
        yield Case(function, LATE, *next(iter(matrix.places(function))))


async def results(
    scenario: Scenario,
    chosen: Callable[[Matrix, Iterable[str]], Iterator[Case]],
    *,
    skip: frozenset[str] = frozenset(),
    part: tuple[int, int] = (0, 1),
) -> AsyncIterator[Result]:
    """Go through the cells of a node; of its functions those that are not skipped, and the n-th ``part``."""
    times = {"call_timeout": SHORT_TIMEOUT, "deadline": ALL_PARTS * SHORT_TIMEOUT}
    async with watched(scenario, step=STEP, stale_after=STALE_AFTER, **times) as watch:
        show_on_bus(watch.node)
        driver = await driver_of(watch)
        matrix = Hangs(watch, driver, SCALE)
        functions = [name for name in driver.uses if name not in skip | ONCE]
        for case in chosen(matrix, functions[part[0] :: part[1]]):
            yield await matrix.hung(case)


async def as_long_as_they_say(scenario: Scenario) -> AsyncIterator[Result]:
    """Go through one function of each kind with the timeout of the program, for as long as is said."""
    times = {"call_timeout": CALL_TIMEOUT, "deadline": 2 * CALL_TIMEOUT}
    async with watched(scenario, step=STEP, stale_after=STALE_AFTER, **times) as watch:
        show_on_bus(watch.node)
        matrix = Hangs(watch, await driver_of(watch), 1.0)
        for function in OF_EACH_KIND:
            where = list(matrix.places(function))
            part = next((each for each in where if each[0] == PART), where[0])
            for how in DURATIONS:
                yield await matrix.hung(Case(function, how, *(part if how == FOR_EVER else where[0])))
