"""Advice of a node on its holders: a fake driver and kubelet, and two days that pass in seconds."""

import asyncio
from typing import Any

import pynvml
import pytest

from exporter.advice.kept import Keeper
from exporter.advice.model import Advice, savings_of
from exporter.advice.node_windows import advice_of_node
from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario
from exporter.formats.advice import advice_paragraphs
from exporter.model import ADVICE_LABEL
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.core.poller.bench import budget_of, settings_of
from tests.fake.demo.making import gpu, instance, made, node_of, pod

BEGAN, HOUR = 1_700_000_000.0, 3600.0
# Seconds between polls: that of the advice's own steps takes long, so the quick lane polls less often.
OFTEN, SELDOM = 300.0, 1800.0
GIB = 1 << 30
SHARED = "nvidia.com/gpu.shared"


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


async def advised(scenario: Scenario, step: float, *hours: float) -> list[dict[str, Advice]]:
    """Return the advice on each pod after each of some hours with a poll in every step."""
    found: list[dict[str, Advice]] = []
    reported = [int(each * HOUR / step) + 1 for each in hours]
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = settings_of(node, poll_interval=step, stale_after=2 * step)
        sources = Sources(settings, node.nvml, clock=lambda: node.time, budget=budget_of(settings, 10.0))
        poller = Poller(settings, sources, clock=lambda: node.time, wall=lambda: BEGAN + node.time)
        keeper = Keeper()
        poller.subscribe(keeper.record)
        try:
            for poll in range(reported[-1] + 1):
                await node.step(poll * step)
                await poller.poll()
                if poll in reported:
                    advices = advice_of_node(poller.snapshot, keeper)
                    found.append({use.holder.pod: advice for advice in advices for use in advice.window.uses})
        finally:
            node.nvml.release()
            await poller.close()
            pynvml.nvmlLib = None
            pynvml._nvmlGetFunctionPointer_cache.clear()
    return found


def whole() -> Scenario:
    """Return GPUs that are held whole, and two that two pods share; one of those reports no process's use.

    ``opted-out`` is like ``small``, with a label.
    """
    loads = (
        ("small", process("6 GiB", high=10)),
        ("idle", process("6 GiB", high=0)),
        ("large", process("70 GiB", high=90)),
        ("served", process("20 GiB", high=30) | {"command": "VLLM::EngineCore"}),
        ("opted-out", process("6 GiB", high=10)),
    )
    labels = {"opted-out": {ADVICE_LABEL: "off"}, "idle": {ADVICE_LABEL: "on"}}
    pods = [
        held(name, "nvidia.com/gpu", f"{{gpu:{place}}}", running) | {"labels": labels.get(name, {})}
        for place, (name, running) in enumerate(loads)
    ]
    ids = [f"{{gpu:{gpu}}}::{replica}" for gpu in (5, 6) for replica in range(2)]
    pods += [held(f"p{place}", SHARED, each, process("8 GiB", high=20)) for place, each in enumerate(ids)]
    offers = [
        {"resource": "nvidia.com/gpu", "ids": [f"{{gpu:{place}}}" for place in range(len(loads))]},
        {"resource": SHARED, "ids": ids},
    ]
    unmeasured = hopper(
        unsupported=["nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"]
    )
    return made(node=node_of(580), gpus=[hopper(count=6), unmeasured], pods=pods, offers=offers)


@pytest.fixture(scope="module", params=[SELDOM, pytest.param(OFTEN, marks=pytest.mark.slow)])
def days(request: pytest.FixtureRequest) -> list[dict[str, Advice]]:
    """Return the advice on each pod of a node before it has been there for a day, and after."""
    return asyncio.run(advised(whole(), request.param, 23, 25))


@pytest.fixture
def found(days: list[dict[str, Advice]]) -> dict[str, Advice]:
    """Return the advice on each pod of a node after a day."""
    return days[1]


def test_after_a_day_each_holder_has_a_verdict_or_a_reason(found: dict[str, Advice]) -> None:
    assert {name: advice.reason for name, advice in found.items() if advice.reason} == {
        "served": "preallocated",
        "opted-out": "opted_out",
    }
    assert {name: advice.options[0].verdict for name, advice in found.items() if advice.options} == {
        "small": "mig_profile",
        "idle": "release",
        "large": "keep",
        **dict.fromkeys(("p0", "p1", "p2", "p3"), "replicas"),
    }
    small = found["small"]
    assert small.options[0].target == "1g.10gb"
    assert small.need is not None
    assert small.need.memory == pytest.approx(1.15 * 6 * GIB, rel=0.01)
    assert small.need.compute == pytest.approx(0.12, abs=0.02)
    assert (small.confidence, small.window.pods) == ("medium", 1)


def test_a_pod_that_opted_out_has_no_advice_and_frees_nothing(found: dict[str, Advice]) -> None:
    assert (found["opted-out"].reason, found["opted-out"].options) == ("opted_out", ())
    assert advice_paragraphs(found["opted-out"]) == (
        "No advice: a pod has the label gpuslice-exporter/advice: off.",
    )
    assert found["idle"].options[0].verdict == "release"
    pods = ("opted-out", "idle", "large", "served")
    assert savings_of([found[pod] for pod in pods]).freed == pytest.approx(
        found["idle"].options[0].gpus_freed
    )


def test_before_a_day_every_holder_is_young(days: list[dict[str, Advice]]) -> None:
    reasons = {name: advice.reason for name, advice in days[0].items()}
    assert reasons.pop("opted-out") == "opted_out"
    assert set(reasons) == set(days[1]) - {"opted-out"}
    assert set(reasons.values()) == {"young"}
    assert {advice.options for advice in days[0].values()} == {()}


def test_holders_that_take_turns_are_judged_together(found: dict[str, Advice]) -> None:
    """Two of two replicas use a fifth of the GPU each: four replicas fit, by compute."""
    assert found["p0"] is found["p1"]
    assert {use.holder.pod for use in found["p0"].window.uses} == {"p0", "p1"}
    assert (found["p0"].options[0].verdict, found["p0"].options[0].target) == ("replicas", "4 replicas")


def test_the_sum_of_holders_is_unknown_if_theirs_is(found: dict[str, Advice]) -> None:
    """The driver reports no utilization of processes: only memory limits the number of replicas."""
    assert found["p2"].reason is None, found["p2"].why
    assert found["p2"] is found["p3"]
    assert found["p2"].options[0].target == "8 replicas"
    assert "compute unknown, a smaller slice may be slower" in found["p2"].options[0].notes


async def test_a_mig_device_that_is_too_large_names_the_smaller_one_and_what_is_free_beside_it() -> None:
    parts = [instance(1, 0, profile="3g.40gb", memory_bytes="39 GiB", size=4)]
    resource = "nvidia.com/mig-3g.40gb"
    pods = [held("cut", resource, "{gpu:0/mig:0}", process("4 GiB", high=10))]
    gpus = [hopper(mig={"max_slices": 7, "instances": parts})]
    offers = [{"resource": resource, "ids": ["{gpu:0/mig:0}"]}]
    (found,) = await advised(made(node=node_of(580), gpus=gpus, pods=pods, offers=offers), SELDOM, 25)
    assert found["cut"].reason is None, found["cut"].why
    assert (found["cut"].options[0].verdict, found["cut"].options[0].target) == ("smaller_profile", "1g.10gb")
    assert found["cut"].options[0].would_fit
