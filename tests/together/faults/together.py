"""Driver, kubelet, files and join that hang at once: polls end all the same.

Every pair of these, every three, and all of them hang for some polls. What is on the page may leave it or
keep its value, counters may stand, and collectors say that they fail; no number is another one.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from unittest import mock

from exporter.demo.scenario import NvmlHang, Scenario
from exporter.model import Snapshot
from exporter.poll.poller import Poller
from exporter.poll.snapshot_builder import SnapshotBuilder
from tests.fake.demo.making import gpu, pod
from tests.fake.demo.making import made as scenario_of
from tests.together.faults import kubelet, proc
from tests.together.faults.cells import Cell, Claim, Result
from tests.together.faults.compare import failures_of
from tests.together.faults.harness import Watch, scenario_fault
from tests.together.faults.limits import PATIENT, SHORT_SECONDS
from tests.together.faults.pages import Page

POLLS = 2
DRIVER, KUBELET, FILES, JOIN = PARTS = ("driver", "kubelet", "files", "join")
COLLECTORS = {DRIVER: "nvml", KUBELET: "podresources", FILES: "processes"}
CELLS = tuple(
    Cell(source="several", what=" and ".join(parts), how="hang", where="node")
    for count in (2, 3, 4)
    for parts in itertools.combinations(PARTS, count)
)


def node() -> Scenario:
    """Make two GPUs that two pods share each: the figures of a device are those of no container."""
    process = {"memory": "1 GiB", "load": {"high": 30}}
    return scenario_of(
        identity="pods_api",
        gpus=[gpu(count=2)],
        offers=[{"resource": kubelet.GPU, "of": "gpus", "replicas": 4}],
        pods=[
            pod(f"p{place}{number}", process, devices={kubelet.GPU: [f"{{gpu:{place}}}::{number}"]})
            for place in range(2)
            for number in range(2)
        ],
    )


@contextlib.asynccontextmanager
async def _hanging(watch: Watch, parts: frozenset[str]) -> AsyncIterator[None]:
    """Have these parts hang while polls end by short limits; other sources may be late then, too.

    A join that does not hang has all the time it needs: a poll without one changes no page.
    """
    poller = watch.poller
    budget = poller._budget.patient(SHORT_SECONDS)
    if JOIN not in parts:
        budget = budget._replace(join=PATIENT.join)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(mock.patch.object(poller, "_budget", budget))
        stack.enter_context(mock.patch.object(poller, "poll", partial(_guarded_poll, poller, poller.poll)))
        if KUBELET in parts:
            await stack.enter_async_context(kubelet.hanging(watch, watch.node.kubelet.socket))
        if FILES in parts:
            for stat in watch.node.paths.proc_root.glob("[0-9]*/stat"):
                await stack.enter_async_context(proc.hanging(stat))
        if JOIN in parts:
            stack.enter_context(_late_join())
        if DRIVER in parts:
            hang = NvmlHang(kind="nvml_hang", function="nvmlDeviceGetCount_v2", device=None, seconds=None)
            await stack.enter_async_context(scenario_fault(watch, hang))
        yield
    # What hung has come to an end before the next poll looks for it.
    sources = (poller._devices._nvml, poller._allocations, poller._names, *poller._later())
    left = (poller._joiner._running, *(source._task for source in sources))
    if running := [task for task in left if task is not None]:
        await asyncio.wait(running)


async def _guarded_poll(poller: Poller, real: Callable[[], Awaitable[Snapshot]]) -> Snapshot:
    """Poll as the program does, which survives a join that is late."""
    with mock.patch.object(poller, "poll", real):
        await poller._guarded_poll()
    return poller.snapshot


@contextlib.contextmanager
def _late_join() -> Iterator[None]:
    over, real = threading.Event(), SnapshotBuilder.snapshot

    def late(builder: SnapshotBuilder, *arguments: object) -> Snapshot:
        over.wait()
        return real(builder, *arguments)

    SnapshotBuilder.snapshot = late
    try:
        yield
    finally:
        SnapshotBuilder.snapshot = real
        over.set()


def claim_of(parts: frozenset[str]) -> Claim:
    """Anything may be unknown, and nothing false; what hangs is named unless the join hangs, too."""

    def health(before: Page, page: Page) -> Iterator[str]:
        failing = {collector for collector, *_ in failures_of(before, page)}
        for part in parts & COLLECTORS.keys() if JOIN not in parts else ():
            if COLLECTORS[part] not in failing:
                yield f"{COLLECTORS[part]} is not counted as failing"

    return Claim(own=lambda _: True, health=health, states=kubelet.HEALTH | proc.STATES)


def outcome(before: Page, page: Page) -> str:
    """Return which collectors failed."""
    failing = sorted({f"{key[0]}: {key[1]}" for key in failures_of(before, page) if len(key) == 2})
    return ", ".join(failing) or "the page of before"


async def try_cell(watch: Watch, cell: Cell) -> Result:
    """Have the parts of a cell hang for some polls."""
    parts = frozenset(cell.what.split(" and "))
    return await watch.under(cell, _hanging(watch, parts), claim_of(parts), outcome, POLLS)
