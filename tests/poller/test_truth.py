"""A whole node, from the driver's calls to the snapshot, against what is so."""

import pytest

from exporter.demo.node import FakeNode
from exporter.demo.scenario import catalog
from exporter.model import Snapshot
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.poller.bench import failing, health, holders, memories, polled, rows, settings_of
from tests.truth import Truth, truth_of

# Nodes on which every process can be seen and named.
CLEAR = (
    "a10-mps",
    "a100-mig-mixed",
    "a100-mig-single",
    "h100-exclusive",
    "h100-mixed",
    "mig-timeslicing",
    "old-driver",
    "showcase",
    "t4-timeslicing",
)


def assert_containers(snapshot: Snapshot, truth: Truth):
    """Every container, no other, with its slices, processes and bytes."""
    found = {
        (row.holder, row.device): (row.slices, row.processes, row.memory_used) for row in snapshot.containers
    }
    assert found == {
        key: (each.slices, each.processes, each.memory) for key, each in truth.containers.items()
    }


def assert_devices(snapshot: Snapshot, truth: Truth):
    """Every device, no other, with its memory and what of it is nobody's."""
    found = {key: (memory, rest) for key, memory, rest, _ in memories(snapshot)}
    assert found.keys() == truth.devices.keys()
    for key, (memory, rest) in found.items():
        device = truth.devices[key]
        # An old driver counts what it reserves as used; then it is nobody's.
        extra = device.memory_reserved if memory.reserved is None else 0
        assert (memory.total, memory.used) == (device.memory_total, device.memory_used + extra)
        assert memory.free == memory.total - memory.used - (memory.reserved or 0)
        assert rest == device.unattributed + extra


@pytest.mark.parametrize("name", CLEAR)
async def test_the_snapshot_is_the_truth(name: str):
    """At any time: the containers, their slices, processes and memory, and the rest of each device."""
    async with polled(catalog.load(name)) as (node, poller):
        for t in (0, 20, 45, 100, 180):
            await node.step(t)
            snapshot = await poller.poll()
            assert failing(snapshot) == set()
            assert_containers(snapshot, truth_of(node))
            assert_devices(snapshot, truth_of(node))
            assert snapshot.node.unresolved == {}
            assert snapshot.node.inconsistent == {}
            assert snapshot.node.process_view
            assert snapshot.node.gpu_count == len(node.scenario.gpus)


@pytest.mark.parametrize("name", CLEAR)
async def test_compute_is_the_truth_where_a_driver_tells_it(name: str):
    """On whole GPUs the share of each container; MIG devices and MPS clients have no meter here."""
    async with polled(catalog.load(name)) as (node, poller):
        snapshot = await poller.poll()
        truth = truth_of(node).containers
        for row in snapshot.containers:
            if row.device.mig_uuid or row.sharing == "mps":
                assert (row.compute_used, row.compute_source) == (None, "none")
            else:
                assert row.compute_used == pytest.approx(truth[row.holder, row.device].sm_percent / 100)


@pytest.mark.parametrize("name", CLEAR)
async def test_holders_add_up_to_the_device(name: str):
    """On every device the bytes of all containers and the unattributed ones are those that it uses."""
    async with polled(catalog.load(name)) as (node, poller):
        await node.step(37)
        snapshot = await poller.poll()
        for (uuid, mig_uuid), memory, rest, shared in memories(snapshot):
            on_it = [
                row
                for row in snapshot.containers
                if row.device.uuid == uuid and mig_uuid in ("", row.device.mig_uuid)
            ]
            assert shared or sum(row.memory_used for row in on_it) + rest == memory.used


async def test_pods_come_and_go():
    """A pod is on the page from the poll after it came to the poll after it went; its sums begin anew."""
    async with polled(catalog.load("h100-mixed")) as (node, poller):
        seen = []
        for t in (0, 30, 89, 90):
            await node.step(t)
            snapshot = await poller.poll()
            seen.append(rows(snapshot, "ablation-17"))
        assert [len(found) for found in seen] == [0, 2, 2, 0]
        assert seen[1][0].totals.entitled_gpu_seconds == 0
        assert seen[2][0].totals.entitled_gpu_seconds > 0
        assert seen[2][0].totals.first_seen == seen[1][0].totals.first_seen


async def test_sums_grow_with_the_time_between_two_polls():
    """GPU-seconds are counted in the seconds that passed between two polls."""
    async with polled(catalog.load("h100-exclusive"), stale_after=3600.0) as (node, poller):
        now = [0.0]
        poller._clock = lambda: now[0]
        await poller.poll()
        now[0] += 1000
        await node.step(1000)
        second = await poller.poll()
        idle, busy = rows(second, "nb-dmitri")[0].totals, rows(second, "vllm-0")[0].totals
        assert idle.entitled_gpu_seconds == pytest.approx(1000)
        assert idle.used_gpu_seconds == 0
        assert 0 < busy.used_gpu_seconds < busy.entitled_gpu_seconds
        assert idle.last_active == idle.first_seen


async def test_a_gpu_that_is_lost():
    """It stays on the page as down, its holder without use, and nothing else changes; then it is back."""
    async with polled(catalog.load("lost-gpu")) as (node, poller):
        lost = node.scenario.gpus[2].uuid
        for t, up in [(0, True), (20, False), (79, False), (80, True)]:
            await node.step(t)
            snapshot = await poller.poll()
            assert {gpu.identity.uuid: gpu.reading.up for gpu in snapshot.gpus} == {
                gpu.uuid: up or gpu.uuid != lost for gpu in node.scenario.gpus
            }
            assert holders(snapshot) == {f"transcode-{n}" for n in range(4)}
            (row,) = rows(snapshot, "transcode-2")
            assert row.slices == 1
            assert [row.memory_used is None, row.compute_used is None] == [not up, not up]
            assert all(rows(snapshot, f"transcode-{n}")[0].memory_used for n in (0, 1, 3))


async def test_each_poll_is_a_new_snapshot():
    """Snapshots are numbered and dated; what was handed out does not change."""
    async with polled(catalog.load("a10-mps")) as (node, poller):
        before = poller.snapshot
        assert (before.sequence, before.gpus, before.containers) == (0, (), ())
        first = await poller.poll()
        told = repr(first)
        await node.step(30)
        second = await poller.poll()
        assert [first.sequence, second.sequence] == [1, 2]
        assert first.timestamp < second.timestamp
        assert poller.snapshot is second
        assert repr(first) == told
        assert health(second, "nvml").last_success >= health(first, "nvml").last_success


@pytest.mark.parametrize(("late", "share"), [(1.004, 1.0), (2.004, 0.0)])
async def test_polls_as_far_apart_as_answers_are_shown(late: float, share: float):
    """A poll some milliseconds late is the next one, not a missed one: use, energy and idle times go on."""
    async with FakeNode(catalog.load("t4-timeslicing"), clock=lambda: 0.0) as node:
        settings, now = settings_of(node, poll_interval=60.0, stale_after=60.0), [1000.0]
        poller = Poller(settings, Sources(settings, node.nvml, lambda: now[0]), clock=lambda: now[0])
        try:
            shares = []
            for poll in range(4):
                await node.step(60.0 * late * poll)
                now[0] = 1000.0 + 60.0 * late * poll
                await poller.poll()
                [busy] = [row for row in poller.snapshot.containers if row.holder.pod == "nb-anna"]
                shares.append(busy.compute_used)
            assert sum(shares[1:]) > 0
            assert busy.totals.used_gpu_seconds == pytest.approx(60.0 * late * sum(shares[1:]) * share)
        finally:
            await poller.close()


async def test_order_and_evidence():
    """Rows come in a stable order, and what they were made of is kept for those who look closer."""
    async with polled(catalog.load("showcase")) as (node, poller):
        snapshot = await poller.poll()
        assert [gpu.identity.index for gpu in snapshot.gpus] == list(range(len(node.scenario.gpus)))
        assert list(snapshot.containers) == sorted(
            snapshot.containers, key=lambda row: (row.holder, row.device)
        )
        assert [each.name for each in snapshot.collectors] == [
            "nvml",
            "podresources",
            "processes",
            "identity",
            "sharing",
        ]
        assert poller.evidence.hardware.gpus
        assert poller.evidence.allocations.read_at == snapshot.node.allocations_read_at
        assert poller.evidence.workloads.process_view
