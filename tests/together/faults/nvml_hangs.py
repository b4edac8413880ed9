"""The matrix of hangs: each function of NVML that is called returns late, or never."""

import contextlib
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from functools import partial

from exporter.demo.scenario import NvmlHang, Scenario
from exporter.nvml.driver.library import FINDING as FINDING_CALLS
from tests.together.faults.cells import Cell, Claim, Result
from tests.together.faults.compare import failures_of
from tests.together.faults.harness import scenario_fault, watched
from tests.together.faults.nvml_calls import OF_PARTS, driver_of
from tests.together.faults.nvml_cells import C2C, OF_NODE, ONCE, PART, SOURCE, STATES, STEP, Case
from tests.together.faults.nvml_claims import Reach
from tests.together.faults.nvml_errors import Matrix, Select
from tests.together.faults.nvml_nodes import show_on_bus
from tests.together.faults.pages import Page
from tests.waiting import wait_until_async

FINDING = tuple(FINDING_CALLS)
SLOW, FOR_EVER = "returns late", "never returns"
"""Before the timeout of the call, or when the fault is over."""
# Seconds of the node for which a reading is shown, and polls after which it is gone.
STALE_AFTER, STALE_POLLS = 3 * STEP, 4
HUNG_POLLS = 2
# Nothing can be read without these: the library, and its version.
OF_DRIVER = (
    "nvmlInit",
    "nvmlShutdown",
    "nvmlSystemGet",
    "nvmlDeviceGetCount",
)
# A wait for events hangs in a thread of its own, a pair of GPUs costs the series of the pair, and what is
# freed is not needed.
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


class Hangs(Matrix):
    """The cells of one node's driver."""

    async def hung(self, case: Case) -> Result:
        """Have a cell's calls hang and return the result."""
        reach, before = self._reach(case), _threads()
        cell = Cell(source=SOURCE, what=case.function, how=case.how, where=case.where)
        claim = Claim(
            own=lambda series: self._may_change(case, reach, series),
            health=lambda page, now: self._hung_wrongly(case, reach, page, now),
            states=STATES,
        )
        polls = STALE_POLLS if reach is Reach.DRIVER else HUNG_POLLS
        result = await self._watch.under(cell, self._hang(case), claim, partial(self.outcome, case), polls)
        broken = list(result.broken)
        if reach is Reach.DRIVER:
            # The sweep that hung has readings from when it began.
            await self._watch.rest()
        if reach is Reach.DRIVER and result.outcome != "all GPUs of the driver":
            broken.append("stale readings of the driver are shown")
        await wait_until_async(lambda: _threads() <= before, f"no thread is left in the driver: {cell}")
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
        fault = NvmlHang(kind="nvml_hang", function=case.function, device=case.device or None, seconds=None)
        limits = self._watch.calls
        async with limits.hanging(fault, returns=case.how == SLOW), scenario_fault(self._watch, fault):
            yield
        await limits.settled()

    def _may_change(self, case: Case, reach: Reach, series: str) -> bool:
        if series in self._driver.passing and (reach is Reach.DRIVER or not self._asked(case)):
            return True
        if reach is Reach.DRIVER:
            return bool(OF_NODE.match(series)) or any(uuid in series for uuid in self._gpus)
        if reach is Reach.NOTHING:
            return case.function in APART and "gpuslice_gpu_peer_" in series
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


async def results(
    scenario: Scenario,
    *,
    select: Select = list,
    skip: frozenset[str] = frozenset(),
    part: tuple[int, int] = (0, 1),
) -> AsyncIterator[Result]:
    """Go through the selected cells of a node, of the n-th ``part`` of its functions without ``skip``."""
    async with watched(scenario, step=STEP, stale_after=STALE_AFTER) as watch:
        show_on_bus(watch.node)
        driver = await driver_of(watch)
        matrix = Hangs(watch, driver)
        functions = [name for name in driver.uses if name not in skip | ONCE]
        for case in select(every_case(matrix, functions[part[0] :: part[1]])):
            yield await matrix.hung(case)


def every_case(matrix: Matrix, functions: Iterable[str]) -> Iterator[Case]:
    """List the cells of some functions: at each place, late and never."""
    for function in functions:
        yield from (Case(function, how, *at) for at in matrix.places(function) for how in (SLOW, FOR_EVER))
