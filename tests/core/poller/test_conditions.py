"""Conditions of the GPUs of scenarios: when each is raised, and when it is cleared."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from exporter.demo.scenario import Scenario, catalog
from exporter.model import Condition, Snapshot
from tests.core.poller.bench import polled, polled_by_node_time
from tests.fake.demo.making import gpu, made
from tests.waiting import LIMIT_SECONDS

PERIOD = 30
BEGAN = 1_700_000_000.0
GOLDEN = Path(__file__).parents[2] / "core/golden"
DRIVER_RELOAD = str(GOLDEN / "driver-reload/scenario.json")
RESET_REQUIRED = str(GOLDEN / "reset-required/scenario.json")


async def seen(scenario: Scenario, times: Iterable[int]) -> Mapping[int, Snapshot]:
    """Return the snapshots at these seconds, with polls at these only."""
    snapshots = {}
    async with polled_by_node_time(scenario, began=BEGAN) as (node, poller):
        for time in times:
            await node.step(time)
            assert node.nvml.events.settle(LIMIT_SECONDS)
            snapshots[time] = await poller.poll()
    return snapshots


def states(snapshots: Mapping[int, Snapshot], place: int, condition: Condition) -> dict[int, bool | None]:
    """Return the states of a condition of one GPU by second, None while it is unknown."""
    return {time: one.gpus[place].conditions.get(condition) for time, one in snapshots.items()}


async def test_a_gpu_is_lost_until_it_answers():
    snapshots = await seen(catalog.load("lost-gpu"), (10, 30, 60, 90))

    assert states(snapshots, 2, "lost") == {10: False, 30: True, 60: True, 90: False}
    assert set(states(snapshots, 0, "lost").values()) == {False}
    assert snapshots[60].gpus[2].raised["lost"].since == BEGAN + 30
    assert states(snapshots, 2, "needs_reset") == {10: False, 30: None, 60: None, 90: False}


async def test_an_xid_needs_a_reset_until_the_driver_was_reloaded():
    """The need outlasts the silence of the GPU, and ends with counters that start again."""
    snapshots = await seen(catalog.load(DRIVER_RELOAD), (0, 10, 15, 20, 30))

    assert states(snapshots, 1, "needs_reset") == {0: False, 10: True, 15: True, 20: True, 30: False}
    assert snapshots[10].gpus[1].raised["needs_reset"].causes == (
        "XID 62: A microcontroller of the GPU halted",
    )
    assert states(snapshots, 0, "needs_reset") == {0: False, 10: False, 15: None, 20: None, 30: False}


async def test_a_gpu_that_must_be_reset_is_lost_and_says_why():
    snapshots = await seen(catalog.load(RESET_REQUIRED), (10, 15, 20, 30))

    assert states(snapshots, 1, "lost") == {10: False, 15: True, 20: True, 30: False}
    assert states(snapshots, 1, "needs_reset") == {10: False, 15: True, 20: True, 30: False}
    assert set(states(snapshots, 0, "needs_reset").values()) == {False}


async def test_the_conditions_of_sick_gpus():
    snapshots = await seen(catalog.load("sick-gpus"), (10, 25, *range(40, 400, PERIOD)))
    last = snapshots[max(snapshots)]

    assert [set(row.raised) for row in last.gpus] == [
        {"replace_board"},
        set(),
        {"needs_reset", "uncorrected_memory_errors"},
        {"throttled_by_heat_or_power"},
        {"needs_reset", "link_degraded"},
        {"needs_reboot"},
    ]
    assert last.gpus[2].raised["needs_reset"].causes == (
        "recovery action reset",
        "a row remapping is pending",
        "XID 48: Uncorrectable memory error (double bit)",
    )
    assert last.gpus[4].raised["link_degraded"].causes == ("11 of 12 NVLinks are active",)
    assert states(snapshots, 5, "needs_reboot")[25] is False


async def test_throttling_is_unknown_until_enough_was_observed():
    snapshots = await seen(catalog.load("sick-gpus"), range(0, 400, PERIOD))

    hot, cool = (states(snapshots, place, "throttled_by_heat_or_power") for place in (3, 0))
    assert hot[120] is None
    assert hot[390] is True
    assert cool[120] is None
    assert cool[150] is cool[390] is False


async def test_a_released_driver_is_a_condition_of_each_gpu():
    """Whether a GPU is lost is unknown meanwhile."""
    async with polled(made(gpus=[gpu(count=2)])) as (_, poller):
        before = await poller.poll()
        poller._sources.release.release()
        during = await poller.poll()
        poller._sources.release.reopen()
        after = await poller.poll()

    for snapshot in (before, after):
        assert [row.conditions["driver_released"] for row in snapshot.gpus] == [False, False]
        assert [row.conditions["lost"] for row in snapshot.gpus] == [False, False]
    assert [dict(row.conditions) for row in during.gpus] == [{"driver_released": True}] * 2
