"""A node that changes in the middle of a poll, and what the page may say of it.

GPU 0 is cut into two MIG devices, GPU 1 is time-sliced. A change is made of the faults of scenarios, which
begin between two seconds of the node's time.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from exporter.demo.node import FakeNode
from exporter.demo.scenario import Fault, PodAdd, Scenario
from tests.fake.demo.making import gpu, instance, made, node_of, pod
from tests.together.faults.cells import Cell, Result
from tests.together.faults.harness import Watch, watched
from tests.together.faults.layout_checks import Seen, check_between, check_now
from tests.together.faults.layout_moments import KINDS, Kind, Moments, hold_calls, passing
from tests.together.faults.pages import Page
from tests.truth import truth_of

LONG = 10_000.0
HALF = {"profile": "3g.20gb", "memory_bytes": "19968 MiB", "overhead": "30 MiB", "multiprocessors": 42}
QUARTER = {"profile": "2g.10gb", "memory_bytes": "9856 MiB", "overhead": "20 MiB", "multiprocessors": 28}
LEAST = {"profile": "1g.5gb", "memory_bytes": "4864 MiB", "overhead": "10 MiB", "multiprocessors": 14}
MIG, GPU = "nvidia.com/mig-{}", "nvidia.com/gpu"
# The process of one pod, and that of a younger pod, which gets the same number.
PID, YOUNGER, QUIET_PID = 4242, 4245, 4243


def running(memory: str, load: int, **more: Any) -> dict[str, Any]:
    """Make a process."""
    return {"memory": memory, "load": {"high": load}, **more}


def holder(name: str, resource: str, device: str, *processes: dict[str, Any]) -> dict[str, Any]:
    """Make a pod that holds one device."""
    return pod(name, *processes, devices={resource: [device]})


CUT_HALVES = [instance(1, 0, size=4, **HALF), instance(2, 4, size=4, **HALF)]
REPARTITIONED = [
    instance(1, 0, size=4, **HALF),
    instance(3, 4, size=2, **QUARTER),
    instance(7, 6, size=1, **LEAST),
]
STAYS = holder("stays", MIG.format("3g.20gb"), "{gpu:0/mig:0}", running("6000 MiB", 70))
GOES = holder("goes", MIG.format("3g.20gb"), "{gpu:0/mig:1}", running("4000 MiB", 60))
RECUT = {"kind": "mig_layout", "gpu": 0, "instances": REPARTITIONED}
WEB = holder("web", GPU, "{gpu:1}::0", running("1000 MiB", 40, pid=PID))
QUIET = holder("quiet", GPU, "{gpu:1}::1", running("700 MiB", 0, pid=QUIET_PID))
COMES = holder("comes", GPU, "{gpu:1}::2", running("3000 MiB", 20, pid=4244))
REUSER = holder("reuser", GPU, "{gpu:1}::0", running("2222 MiB", 10, pid=YOUNGER))
ENDED = holder("web", GPU, "{gpu:1}::0")
NEIGHBOUR = holder("neighbour", GPU, "{gpu:1}::2", running("2222 MiB", 10, pid=YOUNGER))

CHANGES: Mapping[str, list[dict[str, Any]]] = {
    "repartitioned": [{"kind": "pod_delete", "pod": "ml/goes"}, RECUT],
    "repartitioned under its holder": [RECUT],
    "pod deleted": [{"kind": "pod_delete", "pod": "ml/web"}],
    "pod added": [{"kind": "pod_add", "pod": COMES}],
    "process ended": [{"kind": "process_exit", "pid": PID}],
    "pid given out again": [
        {"kind": "pod_delete", "pod": "ml/web"},
        {"kind": "pod_add", "pod": REUSER},
    ],
    "pid given to a neighbour": [
        {"kind": "pod_delete", "pod": "ml/web"},
        {"kind": "pod_add", "pod": ENDED},
        {"kind": "pod_add", "pod": NEIGHBOUR},
    ],
    "all at once": [
        RECUT,
        {"kind": "pod_delete", "pod": "ml/goes"},
        {"kind": "pod_delete", "pod": "ml/web"},
        {"kind": "pod_add", "pod": REUSER},
        {"kind": "process_exit", "pid": QUIET_PID},
    ],
}
"""What may change, by name."""


@cache
def changing(change: str) -> Scenario:
    """Return the node with a change that is to begin at second 1."""
    board = gpu(memory_total="40960 MiB", mig={"max_slices": 7, "instances": CUT_HALVES})
    scenario = made(
        node=node_of(550),
        identity="pods_api",
        gpus=[board, gpu(memory_total="15360 MiB")],
        offers=[
            {"resource": MIG.format("{profile}"), "of": "mig", "gpus": [0]},
            {"resource": GPU, "of": "gpus", "gpus": [1], "replicas": 4},
        ],
        pods=[STAYS, GOES, WEB, QUIET],
        faults=[{"at": 1, **fault} for fault in CHANGES[change]],
    )
    return replace(scenario, faults=tuple(map(_with_one_pid, scenario.faults)))


def _with_one_pid(fault: Fault) -> Fault:
    """Give the younger process the pid of the older, which no scenario allows."""
    if not isinstance(fault, PodAdd):
        return fault
    (container,) = fault.pod.containers
    processes = tuple(replace(each, pid=PID) if each.pid == YOUNGER else each for each in container.processes)
    containers = (replace(container, processes=processes),)
    return replace(fault, pod=replace(fault.pod, containers=containers))


class Bench:
    """A watched node whose change can be made and taken back, again and again."""

    def __init__(self, watch: Watch, change: str) -> None:
        self.watch = watch
        self._still = threading.Lock()
        hold_calls(watch.node, self._still)
        self._faults = changing(change).faults
        self.node.scenario = replace(changing(change), faults=())

    @property
    def node(self) -> FakeNode:
        """The node that changes."""
        return self.watch.node

    async def change(self) -> None:
        """Let it begin now."""
        begun = self.node.time + 1
        self._set(begun, None)
        # The driver never lists a process whose number the kernel has given to another one.
        with self._still:
            await self.node.step(begun)

    async def take_back(self) -> None:
        """Let it be over."""
        over = self.node.time + 1
        begun = max((fault.at for fault in self.node.scenario.faults), default=over)
        self._set(begun, over - begun)
        await self.node.step(over)

    async def page(self) -> Page:
        """Poll without time passing, and return the page."""
        await self.watch.poller.poll()
        return await self.watch.page()

    async def moments(self, kind: Kind) -> int:
        """Count the moments of a poll."""
        counted = Moments(self.change)
        with passing(self.node, kind, counted):
            await self.watch.poller.poll()
        return counted.seen

    async def changed_at(self, kind: Kind, moment: int) -> Seen:
        """Change the node at one moment of a poll; return the truth and the pages around it."""
        earlier, before = await self.page(), truth_of(self.node)
        with passing(self.node, kind, Moments(self.change, moment)):
            during = await self.page()
        # Calls that depend on what was answered may be fewer than those counted.
        if truth_of(self.node).time == before.time:
            await self.change()
        after = await self.page()
        seen = Seen(before=before, now=truth_of(self.node), earlier=earlier, during=during, after=after)
        await self.take_back()
        return seen

    def _set(self, at: float, for_: float | None) -> None:
        faults = tuple(replace(fault, at=at, for_=for_) for fault in self._faults)
        self.node.scenario = replace(self.node.scenario, faults=faults)


@asynccontextmanager
async def bench(change: str) -> AsyncIterator[Bench]:
    """Watch a node that can change, polled twice."""
    async with watched(changing(change)) as watch:
        found = Bench(watch, change)
        await found.page()
        await found.page()
        yield found


def all_of(moments: int) -> Sequence[int]:
    """Return all moments of a poll, from 1 on."""
    return range(1, moments + 1)


def some_of(moments: int) -> Sequence[int]:
    """Return the first moment of a poll, one in the middle and the last."""
    return sorted({1, (moments + 1) // 2, moments} - {0})


async def results(select: Callable[[int], Sequence[int]] = all_of) -> AsyncIterator[Result]:
    """Make every change at moments of a poll; a cell is a change at all selected moments of a kind."""
    for change in CHANGES:
        async with bench(change) as found:
            for kind in KINDS:
                moments, wrong = select(await found.moments(kind)), list[str]()
                for moment in moments:
                    wrong += _wrong(await found.changed_at(kind, moment), f"{change} at {kind} {moment}")
                how = f"at {'each of ' if select is all_of else ''}{len(moments)} moments"
                cell = Cell(source="node", what=change, how=how, where=kind)
                outcome = "old or new, then new" if not wrong else f"{len(wrong)} pages are wrong"
                yield Result(cell=cell, outcome=outcome, lost=0, polls=1, broken=tuple(wrong))


def _wrong(seen: Seen, when: str) -> Iterator[str]:
    for check in (check_between, check_now):
        try:
            check(seen)
        except AssertionError as error:
            yield f"{when}, {check.__name__}: {error}"
