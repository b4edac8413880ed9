"""Faults of a driver and its GPUs: what the page keeps meanwhile, and the recovery."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from exporter.config import ListenAddress
from exporter.demo.node import FakeNode
from exporter.demo.nvml.events import Happening
from exporter.demo.scenario import Scenario
from exporter.exposition import Exposition, Format
from exporter.model import Snapshot
from exporter.poll.poller import Poller
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.core.golden.page import Page
from tests.core.poller.bench import (
    FAR,
    QUICK,
    brief_waits,
    failing,
    health,
    holders,
    polled,
    rows,
    running,
)
from tests.fake.demo.making import gpu, instance, made, pod
from tests.site import site_of
from tests.waiting import LIMIT_SECONDS, wait_until_async

FAULT, OVER = 10, 20
XID = 0x8
INIT, WAIT = "nvmlInitWithFlags", "nvmlEventSetWait_v2"
# Series of a GPU that does not answer, without those that identify it and counters.
LASTING = {
    "gpuslice_gpu_condition",
    "gpuslice_gpu_up",
    "gpuslice_gpu_events_watched",
    "gpuslice_gpu_xid_last_timestamp_seconds",
    "gpuslice_gpu_holders",
    "gpuslice_gpu_slices",
    "gpuslice_gpu_slices_allocated",
    "gpuslice_gpu_slices_unhealthy",
    "gpuslice_container_slices",
    "gpuslice_container_compute_entitled_ratio",
    "gpuslice_container_memory_peak_bytes",
    "gpuslice_container_last_active_timestamp_seconds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Faults, the GPUs of two that are down, the reason of the collector, and the text of liveness."""

    faults: tuple[dict[str, Any], ...]
    down: set[int]
    reason: str = ""
    restart: str = ""


def nvml_error(code: str, **where: str) -> dict[str, Any]:
    """Let calls fail from FAULT to OVER."""
    return {"kind": "nvml_error", "at": FAULT, "for": OVER - FAULT, "code": code, **where}


RELOAD = {"kind": "driver_reload", "at": FAULT, "for": OVER - FAULT}
SITUATIONS = {
    "a lost GPU": Situation(faults=(nvml_error("GPU_IS_LOST", device="{gpu:1}"),), down={1}),
    "a GPU that must be reset": Situation(faults=(nvml_error("RESET_REQUIRED", device="{gpu:1}"),), down={1}),
    "a GPU of unknown errors": Situation(faults=(nvml_error("UNKNOWN", device="{gpu:1}"),), down={1}),
    "a driver that is loaded again": Situation(faults=(RELOAD,), down={0, 1}, reason="Uninitialized"),
    "a driver that was upgraded": Situation(
        faults=(RELOAD, nvml_error("LIB_RM_VERSION_MISMATCH", function="nvmlDeviceGetCount_v2")),
        down={0, 1},
        reason="LibRmVersionMismatch",
        restart="it must be restarted",
    ),
    "device nodes that were revoked": Situation(
        faults=tuple(nvml_error("UNKNOWN", device=f"{{gpu:{place}}}") for place in range(2)),
        down={0, 1},
        reason="Unknown",
        restart="restart the pod",
    ),
}
each_situation = pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)


def node_of(*faults: dict[str, Any], gpus: int = 2, **changes: Any) -> Scenario:
    """Return Hoppers, which have a profiling metric, each held by a pod whose process works at 40 %."""
    process = {"memory": "1 GiB", "load": {"high": 40}}
    return made(
        gpus=[gpu(count=gpus, architecture=9, memory_total="80 GiB")],
        pods=[pod(f"p{n}", process, devices={"nvidia.com/gpu": [f"{{gpu:{n}}}"]}) for n in range(gpus)],
        offers=[{"resource": "nvidia.com/gpu", "of": "gpus"}],
        faults=list(faults),
        **changes,
    )


def page_of(snapshot: Snapshot) -> Page:
    """Return the page that is made of a snapshot."""
    return Page(Exposition().page(snapshot).body(Format.TEXT).decode())


def ups(snapshot: Snapshot) -> list[bool]:
    """Return which GPUs on the page are up, in the order of their places in the scenario."""
    page = page_of(snapshot)
    return [bool(page.value("gpuslice_gpu_up", uuid=row.identity.uuid)) for row in snapshot.gpus]


def series_of(snapshot: Snapshot, uuid: str) -> set[str]:
    """Return the series of a GPU and its holders, without those that identify them and counters."""
    names = {name for name, labels, _ in page_of(snapshot).samples if labels.get("uuid") == uuid}
    return {name for name in names if not name.endswith(("_info", "_total"))}


def xids(snapshot: Snapshot) -> dict[str, float]:
    """Return the XID errors that occurred, by code."""
    series = page_of(snapshot).series("gpuslice_gpu_xid_code_errors_total")
    return {labels["xid"]: count for labels, count in series if count}


def happen(node: FakeNode, xid: int) -> None:
    """Let the first GPU report an XID."""
    address = node.nvml.board.gpus[0].address
    node.nvml.events.happen(Happening(device=address, type=XID, data=xid))


def assert_all_given_back(node: FakeNode) -> None:
    """Expect the library to be shut down, all handles freed, and no use of a freed one."""
    assert node.nvml.opened == 0
    assert (node.nvml.gpm.live, node.nvml.gpm.misuses) == (0, [])
    assert (len(node.nvml.events), node.nvml.events.misuse) == (0, {})


async def liveness(poller: Poller) -> tuple[int, str]:
    """Ask whether the process should be restarted."""
    site = site_of(lambda: poller.snapshot, lambda: poller.restart_reason)
    server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
    url = await server.start()
    try:
        async with ClientSession() as session, session.get(f"{url}-/healthy") as answer:
            return answer.status, await answer.text()
    finally:
        await server.stop()


@each_situation
async def test_a_gpu_that_is_down_keeps_its_holders_and_counts_and_no_reading(situation: Situation):
    async with polled(node_of(*situation.faults), **QUICK) as (node, poller):
        before = await poller.poll()
        await node.step(FAULT)
        during = await poller.poll()
        assert ups(during) == [place not in situation.down for place in range(2)]
        assert holders(during) == {"p0", "p1"}
        assert during.node.unresolved == {}
        for place, row in enumerate(during.gpus):
            shown, earlier = (series_of(each, row.identity.uuid) for each in (during, before))
            if place in situation.down:
                assert "gpuslice_gpu_holders" in shown <= LASTING
                assert rows(during, f"p{place}")[0].compute_entitled == 1
            else:
                assert shown >= earlier
                assert rows(during, f"p{place}")[0].compute_used == 0.4
        if situation.down == {0, 1}:
            # The driver is not heard of: neither its versions nor its count.
            assert (during.node.driver, during.node.gpu_count) == (None, None)


@each_situation
async def test_the_fault_is_named_and_a_restart_requested_only_if_it_helps(situation: Situation):
    async with polled(node_of(*situation.faults), **QUICK) as (node, poller):
        await poller.poll()
        await node.step(FAULT)
        snapshot = await poller.poll()
        assert failing(snapshot) == ({"nvml"} if situation.reason else set())
        assert set(health(snapshot, "nvml").errors) == ({situation.reason} if situation.reason else set())
        status, text = await liveness(poller)
        assert status == (503 if situation.restart else 200)
        assert situation.restart in text
        assert situation.restart in health(snapshot, "nvml").message


@each_situation
async def test_the_first_poll_after_a_fault_has_everything(situation: Situation):
    """Sums go on, and all handles are freed."""
    async with polled(node_of(*situation.faults), **QUICK) as (node, poller):
        await poller.poll()
        before = await poller.poll()
        for _ in range(3):
            await node.step(FAULT)
            during = await poller.poll()
            assert node.nvml.opened <= 1
        await node.step(OVER)
        after = await poller.poll()
        assert node.nvml.opened == 1
        assert (ups(after), failing(after)) == ([True, True], set())
        assert poller.restart_reason is None
        assert (await liveness(poller))[0] == 200
        for name in ("p0", "p1"):
            sums = [rows(each, name)[0].totals for each in (before, during, after)]
            assert [each.first_seen for each in sums] == [sums[0].first_seen] * 3
            for figure in ("entitled_gpu_seconds", "used_gpu_seconds", "energy_joules"):
                values = [getattr(each, figure) for each in sums]
                assert values == sorted(values)
    assert_all_given_back(node)


async def test_counts_of_xids_survive_a_reload_of_the_driver():
    async with polled(node_of(RELOAD), **QUICK) as (node, poller):
        await poller.poll()
        happen(node, 79)
        assert node.nvml.events.settle(LIMIT_SECONDS)
        assert xids(await poller.poll()) == {"79": 1}
        await node.step(FAULT)
        away = await poller.poll()
        assert (xids(away), [row.watched for row in away.gpus]) == ({"79": 1}, [False, False])
        await node.step(OVER)
        await poller.poll()
        happen(node, 79)
        assert node.nvml.events.settle(LIMIT_SECONDS)
        assert xids(await poller.poll()) == {"79": 2}
    assert_all_given_back(node)


def absent(place: int, at: float, seconds: float) -> dict[str, Any]:
    """Let a GPU be unplugged for a while."""
    return {"kind": "gpu_absent", "gpu": place, "at": at, "for": seconds}


async def test_an_unplugged_gpu_leaves_the_page_with_its_rows():
    """Its allocation is counted as unresolved."""
    async with polled(node_of(absent(0, FAULT, 10)), **QUICK) as (node, poller):
        await poller.poll()
        gone, stays = (board.uuid for board in node.scenario.gpus)
        await node.step(FAULT)
        for _ in range(2):
            snapshot = await poller.poll()
            assert [(row.identity.uuid, row.identity.index) for row in snapshot.gpus] == [(stays, 0)]
            assert (ups(snapshot), failing(snapshot)) == ([True], set())
            assert series_of(snapshot, gone) == set()
            assert snapshot.node.gpu_count == 1
            assert snapshot.node.unresolved == {"nvidia.com/gpu": 1}
            assert rows(snapshot, "p1")[0].compute_used == 0.4
        opened = node.nvml.calls[INIT, ""]
        await node.step(OVER)
        back = await poller.poll()
        assert [row.identity.uuid for row in back.gpus] == [gone, stays]
        assert (ups(back), back.node.unresolved) == ([True, True], {})
        assert (opened, node.nvml.calls[INIT, ""]) == (2, 3)
    assert_all_given_back(node)


async def test_a_gpu_that_is_plugged_in_appears_with_the_next_poll():
    """The driver is opened again for it, once."""
    async with polled(node_of(absent(1, 0, FAULT)), **QUICK) as (node, poller):
        first = await poller.poll()
        assert (ups(first), first.node.unresolved) == ([True], {"nvidia.com/gpu": 1})
        await node.step(FAULT)
        for _ in range(2):
            snapshot = await poller.poll()
            assert (ups(snapshot), snapshot.node.unresolved) == ([True, True], {})
            assert rows(snapshot, "p1")[0].slices == 1
        assert node.nvml.calls[INIT, ""] == 2


async def test_a_gpu_that_does_not_come_back_with_the_driver_is_gone():
    async with polled(node_of(RELOAD, absent(0, FAULT + 2, 100)), **QUICK) as (node, poller):
        await poller.poll()
        await node.step(FAULT)
        assert ups(await poller.poll()) == [False, False]
        await node.step(FAULT + 2)
        assert ups(await poller.poll()) == [False, False]
        await node.step(OVER)
        assert ups(await poller.poll()) == [True]


async def test_a_slow_start_of_the_driver_delays_no_poll_and_is_not_repeated():
    hang = {"kind": "nvml_hang", "function": INIT, "for": 30}
    async with polled(node_of(hang), **QUICK) as (node, poller):
        for _ in range(3):
            with brief_waits(poller, "nvml"):
                snapshot = await poller.poll()
            assert (failing(snapshot), set(health(snapshot, "nvml").errors)) == ({"nvml"}, {"deadline"})
            assert (snapshot.gpus, snapshot.node.gpu_count) == ((), None)
            assert poller.restart_reason is None
        assert node.nvml.calls[INIT, ""] == 1
        await node.step(30)
        async with running(poller):
            await wait_until_async(lambda: not failing(poller.snapshot))
        assert ups(poller.snapshot) == [True, True]
        assert node.nvml.calls[INIT, ""] == 1
    assert_all_given_back(node)


async def test_an_xid_causes_an_early_poll_that_shows_no_container_idle():
    """Without new samples use is not 0."""
    async with polled(node_of(), **FAR) as (node, poller):
        await poller.first()
        used = [row.compute_used for row in poller.snapshot.containers]
        async with running(poller):
            happen(node, 43)
            await wait_until_async(lambda: xids(poller.snapshot) == {"43": 1})
        assert [row.compute_used for row in poller.snapshot.containers] == used == [0.4, 0.4]


async def test_a_new_mig_layout_causes_an_early_poll():
    layout = {"kind": "mig_layout", "at": FAULT, "gpu": 0, "instances": [instance(3, 2)]}
    cut = gpu(architecture=9, mig={"instances": [instance(1, 0), instance(2, 1)]})
    async with polled(made(gpus=[cut], faults=[layout]), **FAR) as (node, poller):
        await poller.first()
        async with running(poller):
            await node.step(FAULT)
            await wait_until_async(lambda: [row.reading.gi for row in poller.snapshot.migs] == [3])
    assert_all_given_back(node)


def is_released(poller: Poller) -> bool:
    """Whether the page says that the driver is given up."""
    return page_of(poller.snapshot).value("gpuslice_driver_released") == 1


async def test_in_a_release_window_the_driver_is_shut_down_and_holders_stay():
    """Before the next poll it is shut down and all of its handles are freed; later it is opened again."""
    async with polled(node_of(), **FAR) as (node, poller):
        await poller.first()
        async with running(poller):
            happen(node, 79)
            await wait_until_async(lambda: xids(poller.snapshot) == {"79": 1})
            poller._sources.release.release()
            await wait_until_async(lambda: is_released(poller))
            assert_all_given_back(node)
            calls = node.nvml.total_calls
            away = await poller.poll()
            assert node.nvml.total_calls == calls
            assert (ups(away), holders(away), xids(away)) == ([False, False], {"p0", "p1"}, {"79": 1})
            for row in away.gpus:
                assert series_of(away, row.identity.uuid) <= LASTING
            assert set(health(away, "nvml").errors) == {"Released"}
            assert health(away, "nvml").message == "the driver is released because SIGUSR1 was received"
            assert poller.restart_reason is None
            poller._sources.release.reopen()
            await wait_until_async(lambda: not is_released(poller))
            assert (ups(poller.snapshot), failing(poller.snapshot)) == ([True, True], set())
            assert (node.nvml.opened, xids(poller.snapshot)) == (1, {"79": 1})
    assert_all_given_back(node)


async def test_in_a_window_that_is_open_at_the_start_the_driver_is_never_opened(tmp_path: Path):
    file = tmp_path / "release"
    file.touch()
    async with polled(node_of(), driver_release_file=file, **QUICK) as (node, poller):
        await poller.first()
        async with running(poller):
            await wait_until_async(lambda: poller.snapshot.sequence >= 3)
            assert (node.nvml.total_calls, poller.snapshot.gpus) == (0, ())
            assert is_released(poller)
            file.unlink()
            await wait_until_async(lambda: not is_released(poller))
            assert ups(poller.snapshot) == [True, True]


async def test_a_gpu_that_is_unplugged_in_a_release_window_is_gone_after_it():
    async with polled(node_of(absent(0, FAULT, 100)), **QUICK) as (node, poller):
        await poller.poll()
        poller._sources.release.release()
        await node.step(FAULT)
        assert ups(await poller.poll()) == [False, False]
        poller._sources.release.reopen()
        assert ups(await poller.poll()) == [True]


async def test_a_driver_that_hangs_is_not_shown_as_released():
    """Its caller needs it closed."""
    hang = {"kind": "nvml_hang", "function": WAIT}
    async with polled(node_of(hang), **QUICK) as (node, poller):
        await poller.poll()
        await wait_until_async(lambda: node.nvml.calls[WAIT, ""] == 1)
        poller._sources.release.release()
        snapshot = await poller.poll()
        assert (is_released(poller), node.nvml.opened) == (False, 1)
        assert set(health(snapshot, "nvml").errors) == {"NotReleased"}
        assert ups(snapshot) == [False, False]
        node.nvml.release()
        async with running(poller):
            await wait_until_async(lambda: is_released(poller))
        assert_all_given_back(node)
