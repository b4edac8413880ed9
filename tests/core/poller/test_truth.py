"""The snapshot of a whole node, from the driver's calls on, against the truth of its scenario."""

import pytest

from exporter.demo.scenario import catalog
from exporter.model import Snapshot
from tests.core.poller.bench import failing, health, holders, memories, polled, polled_by_node_time, rows
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
    """Expect every container, no other, with its slices, processes and memory."""
    found = {
        (row.holder, row.device): (row.slices, row.processes, row.memory_used) for row in snapshot.containers
    }
    assert found == {
        key: (expected.slices, expected.processes, expected.memory)
        for key, expected in truth.containers.items()
    }


def assert_compute(snapshot: Snapshot, truth: Truth):
    """Expect the share of each container on whole GPUs."""
    for row in snapshot.containers:
        if row.device.mig_uuid or row.sharing == "mps":
            # MIG devices and MPS clients have no meter here.
            assert (row.compute_used, row.compute_source) == (None, "none")
        else:
            percent = truth.containers[row.holder, row.device].sm_percent
            assert row.compute_used == pytest.approx(percent / 100)


def assert_devices(snapshot: Snapshot, truth: Truth):
    """Expect every device, no other, with its memory; containers and the rest add up to the used memory."""
    assert {key for key, *_ in memories(snapshot)} == truth.devices.keys()
    for key, memory, rest, shared in memories(snapshot):
        device = truth.devices[key]
        # An old driver counts memory that it reserves as used, which no container does.
        extra = device.memory_reserved if memory.reserved is None else 0
        assert (memory.total, memory.used) == (device.memory_total, device.memory_used + extra)
        assert memory.free == memory.total - memory.used - (memory.reserved or 0)
        assert rest == device.unattributed + extra
        uuid, mig_uuid = key
        used = [
            row.memory_used
            for row in snapshot.containers
            if row.device.uuid == uuid and mig_uuid in ("", row.device.mig_uuid)
        ]
        assert shared or sum(used) + rest == memory.used


@pytest.mark.parametrize("name", CLEAR)
async def test_the_snapshot_is_the_truth_at_any_time(name: str):
    async with polled(catalog.load(name)) as (node, poller):
        for t in (0, 37, 100):
            await node.step(t)
            snapshot = await poller.poll()
            assert failing(snapshot) == set()
            if t == 0:
                # Later readings are averages since the poll before.
                assert_compute(snapshot, truth_of(node))
            assert_containers(snapshot, truth_of(node))
            assert_devices(snapshot, truth_of(node))
            assert snapshot.node.unresolved == snapshot.node.inconsistent == {}
            assert snapshot.node.process_view
            assert snapshot.node.gpu_count == len(node.scenario.gpus)


async def test_a_pod_is_on_the_page_from_its_first_poll_to_its_last():
    async with polled(catalog.load("h100-mixed")) as (node, poller):
        seen = []
        for t in (0, 30, 89, 90):
            await node.step(t)
            seen.append(rows(await poller.poll(), "ablation-17"))
        assert [len(found) for found in seen] == [0, 2, 2, 0]
        first, last = seen[1][0].totals, seen[2][0].totals
        assert first.entitled_gpu_seconds == 0
        assert last.entitled_gpu_seconds > 0
        assert last.first_seen == first.first_seen


async def test_sums_grow_with_the_time_between_two_polls():
    async with polled_by_node_time(catalog.load("h100-exclusive"), stale_after=3600.0) as (node, poller):
        await poller.poll()
        await node.step(1000)
        second = await poller.poll()
        idle, busy = rows(second, "nb-dmitri")[0].totals, rows(second, "vllm-0")[0].totals
        assert idle.entitled_gpu_seconds == pytest.approx(1000)
        assert idle.used_gpu_seconds == 0
        assert 0 < busy.used_gpu_seconds < busy.entitled_gpu_seconds
        assert idle.last_active == idle.first_seen


async def test_a_lost_gpu_is_down_and_only_its_holder_has_no_use():
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


async def test_snapshots_are_numbered_and_dated_and_do_not_change():
    async with polled(catalog.load("a10-mps")) as (node, poller):
        before = poller.snapshot
        assert (before.sequence, before.gpus, before.containers) == (0, (), ())
        first = await poller.poll()
        shown = repr(first)
        await node.step(30)
        second = await poller.poll()
        assert [first.sequence, second.sequence] == [1, 2]
        assert first.timestamp < second.timestamp
        assert poller.snapshot is second
        assert repr(first) == shown
        assert health(second, "nvml").last_success >= health(first, "nvml").last_success


@pytest.mark.parametrize(("late", "share"), [(1.004, 1.0), (2.004, 0.0)])
async def test_polls_as_far_apart_as_answers_are_shown(late: float, share: float):
    """A poll some milliseconds late is no missed one: use, energy and idle times go on."""
    async with polled_by_node_time(catalog.load("t4-timeslicing"), poll_interval=60.0, stale_after=60.0) as (
        node,
        poller,
    ):
        shares = []
        for poll in range(4):
            await node.step(60.0 * late * poll)
            [busy] = rows(await poller.poll(), "nb-anna")
            shares.append(busy.compute_used)
        assert sum(shares[1:]) > 0
        assert busy.totals.used_gpu_seconds == pytest.approx(60.0 * late * sum(shares[1:]) * share)


async def test_rows_are_sorted_and_their_evidence_is_kept():
    async with polled(catalog.load("showcase")) as (node, poller):
        snapshot = await poller.poll()
        assert [gpu.identity.index for gpu in snapshot.gpus] == list(range(len(node.scenario.gpus)))
        assert list(snapshot.containers) == sorted(
            snapshot.containers, key=lambda row: (row.holder, row.device)
        )
        names = ["nvml", "podresources", "processes", "identity", "sharing"]
        assert [collector.name for collector in snapshot.collectors] == names
        assert poller.evidence.hardware.gpus
        assert poller.evidence.allocations.read_at == snapshot.node.allocations_read_at
        assert poller.evidence.workloads.process_view
