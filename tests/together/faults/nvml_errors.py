"""The matrix of errors: each function of NVML that is called, with each code, on each kind of device."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

import pynvml

from exporter.demo.nvml.call import code_of
from exporter.demo.scenario import NvmlError, Scenario
from exporter.nvml.driver.library import error_name
from tests.together.faults.cells import Cell, Claim, Result, Trial
from tests.together.faults.compare import LIVE, failures_of
from tests.together.faults.harness import Watch, watched
from tests.together.faults.nvml_calls import OF_LAYOUT, OF_PARTS, Driver, driver_of
from tests.together.faults.nvml_cells import (
    ALL,
    BY_ARGUMENT,
    C2C,
    NODE,
    OF_DEVICE,
    OF_MODEL,
    OF_MODELS,
    OF_NODE,
    OLDER_FORM,
    ONCE,
    ONE,
    OVER_TIME,
    PART,
    PROFILES,
    REMEMBERED,
    REPORT,
    RUNNING,
    SOURCE,
    SPLIT,
    STATES,
    STEP,
    VIEW,
    WAIT,
    Case,
)
from tests.together.faults.nvml_claims import (
    EVENTS,
    FINDERS,
    KINDS,
    OLDER,
    SAID_AS,
    SAYS_NONE,
    Effect,
    Kind,
    Reach,
    effect,
)
from tests.together.faults.nvml_nodes import show_on_bus
from tests.together.faults.pages import Page, name_of
from tests.waiting import wait_until_async

Select = Callable[[Iterable[Case]], Sequence[Case]]
"""Selects some of the cells of a matrix; ``list`` selects all."""


class Matrix:
    """The cells of one node's driver, and what each of them must do."""

    def __init__(self, watch: Watch, driver: Driver) -> None:
        scenario = watch.node.scenario
        self._watch, self._driver = watch, driver
        self._gpus = tuple(gpu.uuid for gpu in scenario.gpus)
        self._parts = {cut.uuid: gpu.uuid for gpu in scenario.gpus if gpu.mig for cut in gpu.mig.instances}

    def places(self, function: str) -> Iterator[tuple[str, str]]:
        """List where a function can fail: in words, and the uuid."""
        use = self._driver.uses[function]
        if "" in use.devices:
            yield NODE, ""
            return
        gpus = [device for device in use.devices if device in self._gpus]
        if not gpus:
            gpus = sorted({self._gpu(device) for device in use.devices})
        yield ONE, min(use.always.intersection(gpus) or gpus)
        if len(gpus) > 1:
            yield ALL, ""
        parts = [device for device in use.devices if device in self._parts]
        if function not in OF_LAYOUT:
            yield from ((PART, device) for device in dict.fromkeys([*parts[:1], *parts[-1:]]))

    async def results(self, cases: Sequence[Case]) -> list[Result]:
        """Put the faults of cells on in turn, and return the results."""
        return await self._watch.in_turn(self._calls_fail(cases[0]), [self._trial(case) for case in cases])

    def _trial(self, case: Case) -> Trial:
        expected = self._effect(case)
        claim = Claim(
            own=lambda series: self._own(case, expected, series),
            health=lambda before, page: self._wrong(case, expected, before, page),
            states=self._states(case),
            believed=KINDS[case.how] in SAYS_NONE.get(case.function, ()),
        )
        cell = Cell(source=SOURCE, what=case.function, how=case.how, where=case.where)
        return Trial(cell, claim, partial(self.outcome, case), partial(self._fail, case))

    async def _fail(self, case: Case) -> None:
        """Have the calls of a cell fail at the next poll, or the wait for events at once."""
        fault = NvmlError(
            kind="nvml_error", code=case.how, function=case.function, device=case.device or None
        )
        if case.function == WAIT:
            await self._watch.put(fault)
            await self._wait_fails()
        else:
            self._watch.plan(fault)

    async def _wait_fails(self) -> None:
        """Wait until the thread of events has its answer: it asks again, or has ended."""
        wait, calls = self._watch.poller._sources.nvml._sweeper.events._wait, self._watch.node.nvml.calls
        asked = calls[WAIT, ""]
        await wait_until_async(
            lambda: wait is None or not wait._thread.is_alive() or calls[WAIT, ""] > asked + 1
        )

    def in_turn(self, cases: Iterable[Case]) -> Iterator[list[Case]]:
        """Divide cells into those that may follow one another while the page has not recovered.

        What every poll asks may fail with another code of the same meaning at each. What costs more than its
        readings begins at rest, since a page does not recover within two polls from minutes without a GPU.
        """
        for (function, *_, kind), group in groupby(cases, self._sort):
            alike = list(group)
            if kind is Kind.FAILED and function not in OVER_TIME and self._costs_readings(alike[0]):
                yield alike
            else:
                yield from ([case] for case in alike)

    def _costs_readings(self, case: Case) -> bool:
        """Whether every poll makes the call, and lacks nothing but its readings."""
        return self._effect(case).reach in (Reach.NOTHING, Reach.READINGS) and self._asked(case)

    def _effect(self, case: Case) -> Effect:
        return effect(case.function, case.how, part=case.where == PART, everywhere=self._everywhere(case))

    def _sort(self, case: Case) -> tuple[str, str, str, Kind]:
        return case.function, case.where, case.device, KINDS[case.how]

    def _everywhere(self, case: Case) -> bool:
        """Whether it fails on each GPU of the node."""
        asked = {self._gpu(device) for device in self._driver.uses[case.function].devices}
        return case.where == ALL and asked.issuperset(self._gpus)

    def _gpu(self, device: str) -> str:
        return self._parts.get(device, device)

    @contextlib.asynccontextmanager
    async def _calls_fail(self, case: Case) -> AsyncIterator[None]:
        """Have the calls of a cell made in the block, and made again after it, whatever the answers were."""
        again = self._driver.again(case.function, asked=self._asked(case))
        if again is not None:
            await again()
        yield
        self._watch.plan()
        if KINDS[case.how] in REMEMBERED or case.function == REPORT:
            self._driver.reopen()
        if case.function in OF_LAYOUT:
            # Facts of a MIG device are read once while there is that device.
            await self._driver.recut()
            await self._watch.put()

    def _asked(self, case: Case) -> bool:
        """Whether every poll asks a function about the devices of a cell, all of them.

        The wait for events is asked by a thread of its own, all the time.
        """
        if case.function == WAIT:
            return True
        use = self._driver.uses[case.function]
        if case.device in use.devices:
            return case.device in use.always
        return use.always.issuperset(use.devices)

    def _opens(self, case: Case) -> bool:
        """Whether the library is reopened for a cell, or after it: then readings of all GPUs pass."""
        return KINDS[case.how] is not Kind.FAILED or not self._asked(case)

    def _own(self, case: Case, expected: Effect, series: str) -> bool:
        """Return whether the fault may cost a series; while the library is reopened some are absent."""
        of_model = series.startswith(PROFILES) and case.function in OF_MODELS
        if of_model or (series in self._driver.passing and self._opens(case)):
            return True
        if name_of(series) == VIEW:
            return RUNNING in case.function and case.where == ALL
        if OF_NODE.match(series):
            return expected.reach is Reach.DRIVER or case.where == NODE
        if expected.reach is Reach.DRIVER or not case.device:
            return any(uuid in series for uuid in self._gpus)
        gpu = self._gpu(case.device)
        if gpu not in series or case.where != PART or expected.reach is Reach.DEVICE:
            return gpu in series
        return self._of_part(case.device, series)

    def _of_part(self, device: str, series: str) -> bool:
        """Whether a series of a cut GPU is not of another MIG device, or is of all of them."""
        return series.startswith(SPLIT) or not any(part in series for part in self._parts if part != device)

    def _states(self, case: Case) -> frozenset[str]:
        lacking = KINDS[case.how] is Kind.UNSUPPORTED or case.how == "INVALID_ARGUMENT"
        if lacking and case.function in OLDER:
            return STATES | OLDER[case.function]
        if case.function == REPORT:
            # The table stands in, which says so in a label.
            return STATES | OF_MODEL
        return STATES | OF_DEVICE if RUNNING in case.function and case.where == ALL else STATES

    def _wrong(self, case: Case, expected: Effect, before: Page, page: Page) -> Iterator[str]:
        yield from self._wrong_ups(case, expected, page)
        failing = page.value("gpuslice_collector_success", collector="nvml") == 0
        if failing != bool(expected.reason):
            yield f"gpuslice_collector_success of nvml is {int(not failing)}"
        failed = set(failures_of(before, page))
        reasons = {tuple(key) for key in failed if len(key) == 2}
        if reasons != ({("nvml", expected.reason)} if expected.reason else set()):
            yield f"collectors fail with {sorted(reasons)}, not with {expected.reason or 'nothing'}"
        calls = {key for key in failed if len(key) == 3}
        wrong = [key for key in calls if not (expected.counted and self._names(case, key))]
        if wrong:
            yield f"failures are counted that did not occur: {wrong}"
        if expected.counted and not calls and not expected.either:
            yield "the failure is not counted"
        yield from self._wrong_unsupported(case, expected, before, page)

    def _wrong_unsupported(self, case: Case, expected: Effect, before: Page, page: Page) -> Iterator[str]:
        """Check the number of unsupported calls of a GPU, without those of MIG devices and events."""
        said = KINDS[case.how] in SAYS_NONE.get(case.function, ())
        if (
            said
            or case.where != ONE
            or expected.reach is not Reach.READINGS
            or case.function in EVENTS | OF_PARTS | {OLDER_FORM}
        ):
            return
        if KINDS[case.how] is not Kind.UNSUPPORTED or any(
            case.function.startswith(name) for name in BY_ARGUMENT
        ):
            return
        once = not self._asked(case)
        known = before.value("gpuslice_nvml_unsupported", uuid=case.device)
        least = self._driver.unsupported[case.device] if once else known
        count = page.value("gpuslice_nvml_unsupported", uuid=case.device)
        if count is None or least is None or count < least + (not once):
            yield f"gpuslice_nvml_unsupported is {count}, and was {least}"

    def _wrong_ups(self, case: Case, expected: Effect, page: Page) -> Iterator[str]:
        hit = {self._gpu(case.device)} if case.device else set(self._gpus)
        # Not every GPU is asked what is asked about no GPU in particular.
        some = not case.device and expected.reach is Reach.DEVICE and not self._everywhere(case)
        if expected.reach is Reach.DRIVER:
            # Earlier readings are shown while only the count is unknown.
            hit = set() if expected.reason == "NoCount" else set(self._gpus)
        elif expected.reach is not Reach.DEVICE:
            hit = set()
        for uuid in self._gpus:
            up = page.value("gpuslice_gpu_up", uuid=uuid)
            if up != float(uuid not in hit) and not (some and up == 1):
                yield f"gpuslice_gpu_up of {uuid} is {up}"
        if some and not any(page.value("gpuslice_gpu_up", uuid=uuid) == 0 for uuid in hit):
            yield "gpuslice_gpu_up is 0 for no GPU"

    def _names(self, case: Case, key: tuple[str, ...]) -> bool:
        """Whether a failure that is counted is that of this cell."""
        uuid, call, error = key
        named = case.function in {call, f"{call}V", C2C.get(call)} or case.function.startswith(f"{call}_v")
        whose = {""} if case.function in FINDERS and case.where != PART else {self._gpu(case.device)}
        if not case.device:
            whose = {"", *self._gpus}
        code = SAID_AS.get((case.function, case.how), case.how)
        return named and uuid in whose and error == error_name(pynvml.NVMLError(code_of(code)))

    def outcome(self, case: Case, before: Page, page: Page) -> str:
        """Return in words what a fault costs, by the page."""
        down = [uuid for uuid in self._gpus if not page.value("gpuslice_gpu_up", uuid=uuid)]
        well = page.value("gpuslice_collector_success", collector="nvml") == 1
        if len(down) == len(self._gpus) and not well:
            return "all GPUs of the driver"
        if down and case.where == PART:
            return "the GPU that it is a part of"
        if down:
            return "its GPU" if case.device else "all its GPUs"
        if not well:
            return "the count of GPUs"
        lost = before.samples.keys() - page.samples.keys()
        if not self._asked(case) and not case.function.startswith("nvmlGpm"):
            lost -= self._driver.passing
        return "its own readings" if any(name_of(series) not in LIVE for series in lost) else "nothing"


async def results(
    scenario: Scenario,
    *,
    select: Select = list,
    skip: frozenset[str] = frozenset(),
    part: tuple[int, int] = (0, 1),
) -> AsyncIterator[Result]:
    """Go through the selected cells of a node, of the n-th ``part`` of its functions without ``skip``."""
    async with watched(scenario, step=STEP) as watch:
        show_on_bus(watch.node)
        driver = await driver_of(watch)
        matrix = Matrix(watch, driver)
        functions = [name for name in driver.uses if name not in skip | ONCE]
        for cases in matrix.in_turn(select(every_case(matrix, functions[part[0] :: part[1]]))):
            for result in await matrix.results(cases):
                yield result


def every_case(matrix: Matrix, functions: Iterable[str]) -> Iterator[Case]:
    """List the cells of some functions: each code at each place, codes of one kind after another."""
    for function in functions:
        where = list(matrix.places(function))
        for kind in Kind:
            codes = [code for code, its_kind in KINDS.items() if its_kind is kind]
            yield from (Case(function, code, *at) for at in where for code in codes)
