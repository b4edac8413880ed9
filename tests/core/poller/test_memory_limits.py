"""Nodes on which the kernel or the driver limits the memory of containers, from the first file on."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.demo.scenario import CgroupLimit, Scenario, catalog
from exporter.demo.tree import own_path
from exporter.model import ContainerRow, Snapshot
from exporter.model.memory_limits import zone_of
from exporter.poll import file_readers
from exporter.poll.file_readers import CgroupReader
from tests.core.poller.bench import failing, polled
from tests.truth import truth_of

GIB = 1 << 30
CALL = "nvmlDeviceGetMemoryLimits_v1"


def by_pod(snapshot: Snapshot) -> dict[str, ContainerRow]:
    return {row.holder.pod: row for row in snapshot.containers}


def zones(snapshot: Snapshot) -> dict[str, str | None]:
    rows = by_pod(snapshot)
    return {
        pod: zone_of(row.memory_charged, row.memory_guaranteed, row.memory_limit) for pod, row in rows.items()
    }


def without_limits(name: str) -> Scenario:
    """Return a node on which nothing meters cgroups."""
    scenario = catalog.load(name)
    return replace(scenario, node=replace(scenario.node, memory_limits=""))


async def test_without_the_hosts_pids_the_page_shows_use_where_it_showed_none() -> None:
    async with polled(without_limits("memory-limits")) as (_, poller):
        before = by_pod(await poller.poll())
    assert {row.memory_used for row in before.values()} == {None}

    async with polled(catalog.load("memory-limits")) as (node, poller):
        snapshot = await poller.poll()
        truth = truth_of(node)
    assert {row.memory_source for row in snapshot.containers} == {"cgroup"}
    for row in snapshot.containers:
        assert row.memory_used == truth.containers[row.holder, row.device].memory
    for gpu in snapshot.gpus:
        uuid = gpu.identity.uuid
        used = sum(row.memory_used for row in snapshot.containers if row.device.uuid == uuid)
        assert used + gpu.unattributed_memory == gpu.reading.memory.used


async def test_each_zone_is_seen() -> None:
    async with polled(catalog.load("memory-limits")) as (_, poller):
        snapshot = await poller.poll()
    assert zones(snapshot) == {
        "nb-anna": "safe",
        "nb-bruno": "borrowing",
        "reranker": "full",
        "embed": None,
        "shell-oskar": "borrowing",
        "shell-petra": "safe",
    }


async def test_the_drivers_limits_are_known_from_the_second_poll_on() -> None:
    async with polled(catalog.load("memory-limits-misc")) as (node, poller):
        assert by_pod(await poller.poll())["nb-anna"].memory_limit is None
        rows = by_pod(await poller.poll())
        calls = sum(count for (name, _), count in node.nvml.calls.items() if name == CALL)
    anna, bruno, oskar = (rows[pod] for pod in ("nb-anna", "nb-bruno", "shell-oskar"))
    assert (anna.memory_guaranteed, anna.memory_limit, anna.isolation) == (4 * GIB, 6 * GIB, "soft")
    assert (bruno.memory_used - bruno.memory_charged, bruno.memory_source) == (2 * GIB, "process")
    assert (oskar.memory_limit, oskar.memory_charged, oskar.isolation) == (None, None, "soft")
    # Three holders, and the pods of two of them.
    assert calls == 5


async def test_without_the_hosts_pids_the_driver_is_the_meter_as_well() -> None:
    async with polled(replace(catalog.load("memory-limits-misc"), host_pid=False)) as (_, poller):
        await poller.poll()
        rows = by_pod(await poller.poll())
    used = {pod: (row.memory_used, row.memory_source) for pod, row in rows.items()}
    assert used == {
        "nb-anna": (2400 << 20, "cgroup"),
        "nb-bruno": ((6400 << 20) - 2 * GIB, "cgroup"),
        "shell-oskar": (None, "none"),
    }


async def test_what_stops_existing_leaves_the_page_at_the_next_poll() -> None:
    async with polled(catalog.load("memory-limits")) as (node, poller):
        await poller.poll()
        for path in node.paths.cgroup_root.rglob("cri-containerd-*"):
            shutil.rmtree(path)
        rows = by_pod(await poller.poll())
    assert {(row.memory_used, row.memory_limit, row.memory_guaranteed) for row in rows.values()} == {
        (None, None, None)
    }
    assert {row.isolation for row in rows.values()} == {"none"}
    assert failing(poller.snapshot) == {"processes"}


@pytest.mark.parametrize("name", ["memory-limits", "memory-limits-misc"])
async def test_a_limited_exporter_reports_no_memory_of_that_gpu(name: str) -> None:
    scenario = catalog.load(name)
    limit = CgroupLimit(path=own_path(scenario.cgroup), device=scenario.gpus[0].uuid, hard=GIB)
    # Outside a pod: its own path is in its cgroup file.
    async with polled(replace(scenario, cgroup_limits=(limit,))) as (node, poller):
        own = node.paths.proc_root / "self"
        own.mkdir()
        (own / "cgroup").write_text(f"0::{limit.path}\n")
        await poller.poll()
        await poller.poll()
        gpu = (await poller.poll()).gpus[0]
        others = poller.snapshot.gpus[1:]
    assert gpu.reading.memory is None
    assert "own cgroup" in gpu.reading.withheld["memory"]
    assert gpu.unattributed_memory is None
    assert all(other.reading.memory is not None for other in others)


async def test_a_node_without_limits_is_asked_nothing_and_says_nothing() -> None:
    async with polled(without_limits("memory-limits-misc")) as (node, poller):
        await poller.poll()
        snapshot = await poller.poll()
        assert not [name for (name, _) in node.nvml.calls if name == CALL]
    assert {row.limit_backend for row in snapshot.containers} == {""}
    assert failing(snapshot) == set()


async def test_an_older_driver_is_not_asked() -> None:
    async with polled(catalog.load("a10-mps")) as (_, poller):
        for _ in range(3):
            await poller.poll()
        assert not any(poller._sources.limited_cgroups.values())


async def test_a_gpu_that_appears_does_not_wait_for_the_next_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_readers, "WALK_SECONDS", math.inf)
    container = f"kubepods.slice/pod{'0' * 32}/{'a' * 64}"
    (tmp_path / container).mkdir(parents=True)
    reader = CgroupReader(tmp_path, tmp_path, "")
    try:
        assert (await reader.read(())).cgroups == {}
        assert list((await reader.read(["00000000:02:00.0"])).cgroups) == [f"/{container}"]
        shutil.rmtree(tmp_path / container)
        assert (await reader.read(["00000000:02:00.0"])).cgroups, "the tree is walked in each poll"
    finally:
        reader.close()
