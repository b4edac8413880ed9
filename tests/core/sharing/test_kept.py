"""Holdings are resolved again if, and only if, an input changes."""

from dataclasses import replace

import pytest

from exporter.demo.scenario import catalog
from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    DeviceProcess,
    GpuReading,
    Holdings,
    Memory,
    NodeObject,
    OfferedDevice,
    SystemFiles,
)
from exporter.sharing import resolve_holdings
from exporter.sharing.base.holdings import KeptHoldings, fixed_part
from exporter.sharing.base.view import NodeFacts
from tests.core.poller.bench import polled
from tests.core.sharing.build import allocations, gpu, pod, pods

GPU = replace(gpu(), memory=Memory(total=1 << 34, used=1 << 30, free=15 << 30), processes=())
UUID = GPU.identity.uuid
HELD = Allocation(ContainerRef("ml", "train", "main"), "nvidia.com/gpu", UUID)
LISTED = allocations([HELD], [OfferedDevice("nvidia.com/gpu", UUID)])
FACTS = NodeFacts(pods=pods(pod("train")))
CLIENT = DeviceProcess(pid=7, memory=1 << 20, kinds=frozenset({"mps"}))


class Asked:
    """Counts how often holdings are found."""

    def __init__(self) -> None:
        self.times = 0
        self.kept = KeptHoldings(self._resolve)

    def of(
        self, reading: GpuReading = GPU, listed: Allocations | None = LISTED, facts: NodeFacts = FACTS
    ) -> Holdings:
        """Ask for the holdings of a node of one GPU."""
        return self.kept.of([reading], listed, facts)

    def _resolve(
        self, gpus: tuple[GpuReading, ...], listed: Allocations | None, facts: NodeFacts
    ) -> Holdings:
        self.times += 1
        return resolve_holdings(gpus, listed, facts)


def test_unchanged_inputs_are_not_resolved_again() -> None:
    asked = Asked()
    first = asked.of()
    later = replace(
        GPU,
        memory=Memory(total=1 << 34, used=2 << 30, free=14 << 30),
        utilization_percent=50,
        processes=(DeviceProcess(pid=8, memory=None, kinds=frozenset({"compute"})),),
        read_at=9.0,
        sweep=9,
    )
    again = NodeFacts(pods=pods(pod("train")))
    assert asked.of(later, replace(LISTED, read_at=9.0), again) is first
    assert asked.times == 1


@pytest.mark.parametrize(
    "change",
    [
        {"listed": None},
        {"listed": allocations([HELD], None)},
        {"listed": allocations([], LISTED.offered)},
        {"listed": allocations([HELD._replace(holder=ContainerRef("ml", "other", "main"))], LISTED.offered)},
        {"facts": NodeFacts(pods=pods(pod("train", {"a": "b"})))},
        {"facts": NodeFacts(pods=None)},
        {"facts": replace(FACTS, node=NodeObject(labels={"a": "b"}))},
        {"facts": replace(FACTS, files={"hami": SystemFiles()})},
        {"reading": replace(GPU, up=False)},
        {"reading": replace(GPU, compute_mode="exclusive_process")},
        {"reading": replace(GPU, processes=None)},
        {"reading": replace(GPU, processes=(CLIENT,))},
        {"reading": replace(GPU, mig_enabled=True)},
        {"reading": replace(GPU, memory=Memory(total=1 << 33, used=0, free=1 << 33))},
    ],
)
def test_changed_inputs_are_resolved_again(change) -> None:
    asked = Asked()
    asked.of()
    changed = asked.of(**change)
    resolved = {"reading": GPU, "listed": LISTED, "facts": FACTS} | change
    assert changed == resolve_holdings([resolved["reading"]], resolved["listed"], resolved["facts"])
    asked.of()
    assert asked.times == 3


def test_a_failed_resolution_is_tried_again() -> None:
    failing = [True]

    def resolve(*_: object) -> Holdings:
        if failing[0]:
            raise RuntimeError
        return Holdings(known=True)

    kept = KeptHoldings(resolve)
    with pytest.raises(RuntimeError):
        kept.of([GPU], LISTED, FACTS)
    failing[0] = False
    assert kept.of([GPU], LISTED, FACTS).known


@pytest.mark.parametrize(
    "name", ["showcase", "dra", "hami", "vgpu-host", "a10-mps", "amd-dra", "koordinator"]
)
async def test_systems_read_only_the_fixed_part_of_gpus(name: str) -> None:
    async with polled(catalog.load(name)) as (_, poller):
        await poller.poll()
        found = poller.evidence
        inputs = found.allocations, NodeFacts(pods=found.workloads.pods, node=found.node, files=found.files)
        whole = resolve_holdings(found.gpus, *inputs)
        assert whole.holdings
        assert resolve_holdings(map(fixed_part, found.gpus), *inputs) == whole
