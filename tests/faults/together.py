"""Driver, kubelet, files and join that hang at once: a poll takes no longer than its interval.

Every pair of these, every three, and all of them hang for some polls. What is on the page may leave it or
keep its value, counters may stand, and collectors say that they fail; no number is another one.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator

from exporter.demo.scenario import NvmlHang, Scenario
from exporter.model import Snapshot
from exporter.poll.snapshot_builder import SnapshotBuilder
from tests.demo.making import gpu, pod
from tests.demo.making import made as scenario_of
from tests.faults import kubelet, proc
from tests.faults.cells import Cell, Claim, Result
from tests.faults.compare import failures_of
from tests.faults.harness import Watch, slowness
from tests.faults.nvml_hangs import scenario_fault
from tests.faults.pages import Page

INTERVAL = 2.0
# What a busy machine adds to a poll that ends by the clock.
SLACK = 0.5
POLLS = 2
END_SECONDS = 5.0
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
    """Have these parts hang, and note each poll that takes longer than the interval."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(_timed(watch))
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
    poller = watch.poller
    sources = (poller._devices._nvml, poller._allocations, poller._names, *poller._later())
    left = (poller._joiner._running, *(each._task for each in sources))
    if running := [each for each in left if each is not None]:
        await asyncio.wait(running, timeout=END_SECONDS)


@contextlib.contextmanager
def _timed(watch: Watch) -> Iterator[None]:
    """Poll as the program does, which survives a join that is late, and measure how long that takes."""
    poller, real = watch.poller, watch.poller.poll

    async def poll() -> Snapshot:
        began = time.monotonic()
        poller.poll = real
        try:
            await poller._guarded_poll()
        finally:
            poller.poll = poll
        taken = time.monotonic() - began
        if taken > INTERVAL + SLACK * max(slowness(), 1.0):
            watch.crashes.append(f"a poll takes {taken:.1f} s of {INTERVAL:g} s")
        return poller.snapshot

    poller.poll = poll
    try:
        yield
    finally:
        poller.poll = real


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
        told = {collector for collector, *_ in failures_of(before, page)}
        for part in parts & COLLECTORS.keys() if JOIN not in parts else ():
            if COLLECTORS[part] not in told:
                yield f"{COLLECTORS[part]} is not counted as failing"

    return Claim(own=lambda _: True, health=health, states=kubelet.HEALTH | proc.STATES)


def outcome(before: Page, page: Page) -> str:
    """Return which collectors failed."""
    told = sorted({f"{key[0]}: {key[1]}" for key in failures_of(before, page) if len(key) == 2})
    return ", ".join(told) or "the page of before"


async def try_cell(watch: Watch, cell: Cell) -> Result:
    """Have the parts of a cell hang for some polls."""
    parts = frozenset(cell.what.split(" and "))
    return await watch.under(cell, _hanging(watch, parts), claim_of(parts), outcome, POLLS)
