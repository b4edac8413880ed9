"""The balances of GPUs on fake nodes: what each situation does to the time of a GPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.demo.scenario import KubeletFailure, NvmlError, PodAdd, PodDelete, Scenario, Unhealthy, catalog
from exporter.model import Snapshot
from exporter.model.balances import NANOSECONDS
from tests.core.poller.bench import polled_by_node_time
from tests.fake.demo.making import gpu, made, pod

GPU = "nvidia.com/gpu"
PERIOD, FAULT = 5, 15


def seconds(snapshot: Snapshot, index: int = 0) -> dict[str, float]:
    """Return the seconds of a GPU by class, without the classes that have none."""
    balances = snapshot.gpus[index].balances
    classes = {**balances.allocation, **balances.use}
    assert sum(balances.allocation.values()) == sum(balances.use.values()) == balances.observed
    return {name: round(part / NANOSECONDS, 3) for name, part in classes.items() if part}


async def balances(scenario: Scenario, *, until: int = 20, index: int = 0, **settings) -> dict[str, float]:
    """Poll a node every five seconds, and return the balances of one GPU at the end."""
    async with polled_by_node_time(scenario, **settings) as (node, poller):
        for time in range(0, until + 1, PERIOD):
            await node.step(time)
            await poller.poll()
        return seconds(poller.snapshot, index)


def node(*, held: int = 1, load: int = 40, **more) -> Scenario:
    """Return a node with a GPU in four replicas, some of them held by a container that computes."""
    parts = {
        "gpus": [gpu()],
        "offers": [{"resource": GPU, "of": "gpus", "replicas": 4}],
        "pods": [
            pod(
                "a",
                {"memory": "1 GiB", "load": {"high": load}},
                devices={GPU: [f"{{gpu:0}}::{n}" for n in range(held)]},
            )
        ],
    }
    return made(**(parts | more))


async def test_held_and_used_time_of_a_quarter():
    assert await balances(node()) == {"held": 5, "free": 15, "holders": 8, "idle_free": 12}
    assert await balances(node(load=10)) == {
        "held": 5,
        "free": 15,
        "holders": 2,
        "idle_held": 3,
        "idle_free": 15,
    }


async def test_a_lost_gpu_is_held_and_else_down():
    lost = NvmlError(kind="nvml_error", at=FAULT, device=node().gpus[0].uuid, code="GPU_IS_LOST")
    found = await balances(replace(node(load=10), faults=(lost,)))
    assert found == {
        "held": 5,
        "free": 7.5,
        "down": 7.5,
        "holders": 1,
        "idle_held": 1.5,
        "idle_free": 7.5,
        "unmeasured": 10,
    }


async def test_a_gpu_that_the_driver_no_longer_lists_is_down():
    lost = NvmlError(
        kind="nvml_error", at=FAULT, function="nvmlDeviceGetHandleByIndex_v2", code="GPU_IS_LOST"
    )
    found = await balances(replace(node(gpus=[gpu(count=2)]), faults=(lost,)), index=1)
    assert found == {"free": 10, "down": 10, "idle_free": 10, "unmeasured": 10}


async def test_a_gpu_is_down_while_its_driver_is_released(tmp_path: Path):
    file = tmp_path / "release"
    async with polled_by_node_time(node(), driver_release_file=file) as (fake, poller):
        await poller.poll()
        await fake.step(PERIOD)
        await poller.poll()
        poller._sources.release._ask("file", "the file exists")
        await fake.step(2 * PERIOD)
        await poller.poll()
        assert poller.snapshot.gpus[0].conditions["driver_released"]
        assert seconds(poller.snapshot) == {
            "held": 2.5,
            "free": 3.75,
            "down": 3.75,
            "holders": 2,
            "idle_free": 3,
            "unmeasured": 5,
        }


async def test_without_the_kubelet_what_is_not_held_is_unknown():
    away = KubeletFailure(kind="kubelet_down", at=FAULT)
    found = await balances(replace(node(load=10), faults=(away,)))
    assert found == {
        "held": 5,
        "free": 7.5,
        "unknown": 7.5,
        "holders": 2,
        "idle_held": 3,
        "idle_free": 15,
    }
    stale = await balances(replace(node(), faults=(away,)), until=100)
    # From a minute after the last answer on, nothing is known of holders.
    assert stale["held"] == (10 + 60) / 4
    assert stale["held"] + stale["free"] + stale["unknown"] == 100


async def test_an_unhealthy_replica_is_withdrawn_while_the_others_are_free():
    sick = Unhealthy(kind="unhealthy", at=FAULT, resource=GPU, devices=(f"{node().gpus[0].uuid}::1",))
    found = await balances(replace(node(held=1), faults=(sick,)))
    assert (found["held"], found["withdrawn"], found["free"]) == (5, 2.5, 12.5)


@pytest.mark.parametrize(("gpus", "name"), [(2, "withdrawn"), (1, "not_offered")])
async def test_an_unhealthy_gpu_is_withdrawn_and_the_last_one_leaves_with_its_resource(gpus, name):
    """The kubelet lists healthy ids only: if a resource has none, it does not list the resource."""
    scenario = made(gpus=[gpu(count=gpus)], offers=[{"resource": GPU, "of": "gpus"}])
    sick = Unhealthy(kind="unhealthy", at=FAULT, resource=GPU, devices=(scenario.gpus[0].uuid,))
    found = await balances(replace(scenario, faults=(sick,)))
    assert found == {"free": 10, name: 10, "idle_free": 20}


async def test_a_gpu_that_no_plugin_offers_is_not_offered():
    assert await balances(made(gpus=[gpu()])) == {"not_offered": 20, "idle_free": 20}


async def test_holders_come_and_go_by_the_poll():
    scenario = node(held=1)
    (leaving,) = scenario.pods
    gone = PodDelete(kind="pod_delete", at=FAULT, pod=f"{leaving.namespace}/{leaving.name}")
    found = await balances(replace(scenario, faults=(gone,)))
    assert (found["held"], found["free"]) == (2.5, 17.5)
    late = PodAdd(kind="pod_add", at=FAULT, pod=leaving)
    found = await balances(replace(scenario, pods=(), faults=(late,)))
    assert (found["held"], found["free"]) == (2.5, 17.5)


@pytest.mark.parametrize(
    ("name", "index", "expected"),
    [
        # Compute inside MIG on an A100 has no meter.
        ("a100-mig-mixed", 3, {"held": 8.571, "free": 11.429, "unmeasured": 20}),
        # A DRA driver without a device plugin: claims hold whole GPUs, and one GPU is free.
        ("dra-only", 3, {"free": 20, "idle_free": 20}),
        # Holders by memory alone.
        ("gpushare", 1, {"held": 16, "free": 4}),
        # A device that no driver reads.
        ("hami-kunlun", 2, {"held": 10, "unknown": 10, "unmeasured": 20}),
        # A claim of an unknown DRA driver may be for any GPU without a holder.
        ("unknown-dra", 1, {"unknown": 20}),
        # One container has the GPU by the plugin, and the same node has a DRA driver.
        ("dra", 3, {"held": 11.429, "free": 2.857, "unpartitioned": 5.714}),
    ],
)
async def test_classes_of_nodes_of_the_catalog(name, index, expected):
    found = await balances(catalog.load(name), index=index)
    used = {"holders", "others", "idle_held", "idle_free", "unmeasured"}
    assert {key: value for key, value in found.items() if key not in used or key in expected} == expected


async def test_a_pause_of_the_exporter_is_not_observed():
    async with polled_by_node_time(node()) as (fake, poller):
        for time in (0, 5, 605, 610):
            await fake.step(time)
            await poller.poll()
        assert seconds(poller.snapshot) == {"held": 2.5, "free": 7.5, "holders": 4, "idle_free": 6}
