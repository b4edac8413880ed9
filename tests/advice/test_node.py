"""Advice of a node on its holders: a fake driver and kubelet, and two days that pass in seconds."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from exporter.advice import Advice
from exporter.advice.kept import Keeper
from exporter.advice.node_windows import advice_of_node
from exporter.advice.savings import savings_of
from exporter.demo.node import FakeNode
from exporter.demo.scenario.catalog import Scenario
from exporter.formats.advice import advice_paragraphs
from exporter.model import ADVICE_LABEL, Snapshot
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.demo.making import gpu, instance, made, node_of, pod
from tests.poller.bench import budget_of, settings_of

BEGAN, STEP, HOUR = 1_700_000_000.0, 300.0, 3600.0
GIB = 1 << 30


def hopper(**changes: Any) -> dict[str, Any]:
    """Return an H100, which has MIG and a profiling meter."""
    board = {"model": "NVIDIA H100 80GB HBM3", "architecture": 9, "memory_total": "80 GiB"}
    cut = {"max_slices": 7, "enabled": False}
    return gpu(**(board | {"overhead": "0 MiB", "mig": cut} | changes))


def held(name: str, resource: str, device: str, *processes: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with one device."""
    return pod(name, *processes, devices={resource: [device]})


def process(memory: str, **load: Any) -> dict[str, Any]:
    """Return a process."""
    return {"memory": memory, "load": load}


async def lived(scenario: Scenario, hours: float, seen: Callable[[Snapshot, Keeper], None]) -> None:
    """Let hours pass on a node, with a poll in each step; ``seen`` gets the last snapshot."""
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = settings_of(node, poll_interval=STEP, stale_after=2 * STEP)
        sources = Sources(settings, node.nvml, clock=lambda: node.time, budget=budget_of(settings, 10.0))
        poller = Poller(settings, sources, clock=lambda: node.time, wall=lambda: BEGAN + node.time)
        keeper = Keeper()
        poller.subscribe(keeper.record)
        try:
            for step in range(int(hours * HOUR / STEP) + 2):
                await node.step(step * STEP)
                await poller.poll()
            seen(poller.snapshot, keeper)
        finally:
            node.nvml.release()
            await asyncio.wait_for(poller.close(), 10)
            pynvml.nvmlLib = None
            pynvml._nvmlGetFunctionPointer_cache.clear()


async def advised(scenario: Scenario, hours: float) -> dict[str, Advice]:
    """Return the advice on each pod after some hours."""
    found: dict[str, Advice] = {}

    def see(snapshot: Snapshot, keeper: Keeper) -> None:
        for advice in advice_of_node(snapshot, keeper):
            found.update({use.holder.pod: advice for use in advice.window.uses})

    await lived(scenario, hours, see)
    return found


def whole() -> Scenario:
    """Return four GPUs: one computes a little, one never, one is full, and one is held for an engine."""
    loads = (
        ("small", process("6 GiB", high=10)),
        ("idle", process("6 GiB", high=0)),
        ("large", process("70 GiB", high=90)),
        ("served", process("20 GiB", high=30) | {"command": "VLLM::EngineCore"}),
    )
    pods = [
        held(name, "nvidia.com/gpu", f"{{gpu:{place}}}", running)
        for place, (name, running) in enumerate(loads)
    ]
    return made(node=node_of(580), gpus=[hopper(count=4)], pods=pods)


async def test_after_a_day_each_holder_has_a_verdict_or_a_reason() -> None:
    """A small one fits a MIG device, an idle one is released, a full one stays, an engine gets a reason."""
    found = await advised(whole(), 25)

    assert {name: advice.reason for name, advice in found.items() if advice.reason} == {
        "served": "preallocated"
    }
    assert {name: advice.options[0].verdict for name, advice in found.items() if advice.options} == {
        "small": "mig_profile",
        "idle": "release",
        "large": "keep",
    }
    small = found["small"]
    assert small.options[0].target == "1g.10gb"
    assert small.need is not None
    assert small.need.memory == pytest.approx(1.15 * 6 * GIB, rel=0.01)
    assert small.need.compute == pytest.approx(0.12, abs=0.02)
    assert (small.confidence, small.window.pods) == ("medium", 1)


async def test_a_pod_that_opted_out_has_no_advice_and_frees_nothing() -> None:
    """Only by the value off: without it, all is as before."""
    scenario = whole()
    labels = {"small": {ADVICE_LABEL: "off"}, "idle": {ADVICE_LABEL: "on"}}
    pods = tuple(replace(each, labels=labels.get(each.name, {})) for each in scenario.pods)

    found = await advised(replace(scenario, pods=pods), 25)

    assert (found["small"].reason, found["small"].options) == ("opted_out", ())
    assert advice_paragraphs(found["small"]) == (
        "No advice: a pod has the label gpuslice-exporter/advice: off.",
    )
    assert found["idle"].options[0].verdict == "release"
    assert savings_of(found.values()).freed == pytest.approx(found["idle"].options[0].gpus_freed)


async def test_before_a_day_every_holder_is_young() -> None:
    """Nothing is said of any of them."""
    found = await advised(whole(), 23)

    assert {advice.reason for advice in found.values()} == {"young"}
    assert {advice.options for advice in found.values()} == {()}


async def test_holders_that_take_turns_are_judged_together() -> None:
    """Two of two replicas use a fifth of the GPU each: four replicas fit, by compute."""
    shared = "nvidia.com/gpu.shared"
    ids = [f"{{gpu:0}}::{replica}" for replica in range(2)]
    pods = [held(f"p{place}", shared, each, process("8 GiB", high=20)) for place, each in enumerate(ids)]
    offers = [{"resource": shared, "ids": ids}]

    found = await advised(made(node=node_of(580), gpus=[hopper()], pods=pods, offers=offers), 25)

    assert set(found) == {"p0", "p1"}
    assert found["p0"] is found["p1"]
    assert (found["p0"].options[0].verdict, found["p0"].options[0].target) == (
        "replicas",
        "4 replicas",
    )


async def test_the_sum_of_holders_is_unknown_if_theirs_is() -> None:
    """The driver reports no utilization of processes: only memory limits the number of replicas."""
    shared = "nvidia.com/gpu.shared"
    ids = [f"{{gpu:0}}::{replica}" for replica in range(2)]
    pods = [held(f"p{place}", shared, each, process("8 GiB", high=20)) for place, each in enumerate(ids)]
    offers = [{"resource": shared, "ids": ids}]
    board = hopper(unsupported=["nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"])

    found = await advised(made(node=node_of(580), gpus=[board], pods=pods, offers=offers), 25)

    assert found["p0"].reason is None, found["p0"].why
    assert found["p0"].options[0].target == "8 replicas"
    assert "compute unknown, a smaller slice may be slower" in found["p0"].options[0].notes


async def test_a_mig_device_that_is_too_large_names_the_smaller_one_and_what_is_free_beside_it() -> None:
    """3g.40gb with 4 GiB, and two free memory slices beside it."""
    parts = [instance(1, 0, profile="3g.40gb", memory_bytes="39 GiB", size=4)]
    resource = "nvidia.com/mig-3g.40gb"
    pods = [held("cut", resource, "{gpu:0/mig:0}", process("4 GiB", high=10))]
    gpus = [hopper(mig={"max_slices": 7, "instances": parts})]
    offers = [{"resource": resource, "ids": ["{gpu:0/mig:0}"]}]

    found = await advised(made(node=node_of(580), gpus=gpus, pods=pods, offers=offers), 25)

    assert found["cut"].reason is None, found["cut"].why
    assert (found["cut"].options[0].verdict, found["cut"].options[0].target) == ("smaller_profile", "1g.10gb")
    assert found["cut"].options[0].would_fit
