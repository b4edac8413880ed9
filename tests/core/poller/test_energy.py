"""Joules of containers against what their processes drew, on a driver whose energy is read every 15 s."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.demo.machine import GpuState
from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario
from exporter.model import Snapshot
from tests.core.poller.bench import polled_by_node_time
from tests.fake.demo.making import gpu, instance, made, node_of, pod

ENERGY, MINUTE = "nvmlDeviceGetTotalEnergyConsumption", 60
SHARED, CUT = "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"
PODS = ("steady", "square", "leaving")
LEAVES = 33
# Watts of a whole GPU at full load above those of an idle one, and its part that the load below switches.
ACTIVE, SWITCHED = 630.0, 0.6
LOADS: tuple[dict[str, Any], ...] = (
    {"high": 20},
    {"shape": "square", "low": 0, "high": 100 * SWITCHED, "period": 40},
    {"shape": "sine", "low": 0, "high": 20, "period": 40},
)
GONE = {"kind": "pod_delete", "at": LEAVES, "pod": "ml/leaving"}


def hopper(**changes: Any) -> dict[str, Any]:
    """Return a GPU of Hopper, which meters MIG devices."""
    return gpu(architecture=9, memory_total="80 GiB", power_idle_mw=70_000, power_max_mw=700_000, **changes)


def node(gpus: list[dict[str, Any]], resource: str, ids: list[str], **more: Any) -> Scenario:
    """Return a node of three pods, each with a slice of ``resource`` and a process of a load of its own."""
    pods = [
        pod(name, {"memory": "1 GiB", "load": load}, devices={resource: [device]})
        for name, load, device in zip(PODS, LOADS, ids, strict=True)
    ]
    offers = [{"resource": resource, "ids": ids}]
    return made(node=node_of(580), gpus=gpus, pods=pods, offers=offers, **{"faults": [GONE]} | more)


def time_sliced(**more: Any) -> Scenario:
    """Return a node of one GPU that three pods share."""
    return node([hopper()], SHARED, [f"{{gpu:0}}::{replica}" for replica in range(len(PODS))], **more)


def cut() -> Scenario:
    """Return a node of one GPU with three MIG devices."""
    parts = {"profile": "1g.10gb", "memory_bytes": "9 GiB"}
    devices = [instance(7 + place, place, **parts) for place in range(len(PODS))]
    gpus = [hopper(mig={"max_slices": 7, "instances": devices})]
    return node(gpus, CUT, [f"{{gpu:0/mig:{place}}}" for place in range(len(PODS))])


def whole() -> Scenario:
    """Return a node of three GPUs, each held whole."""
    ids = [f"{{gpu:{place}}}" for place in range(len(PODS))]
    return node([hopper(count=len(PODS))], "nvidia.com/gpu", ids)


class Truth:
    """Joules by pod and GPU, second by second: what processes draw, and idle power by entitlement.

    ``at`` has those of each GPU by the value of its counter.
    """

    def __init__(self, node: FakeNode, entitled: float) -> None:
        self._node, self._entitled = node, entitled
        self._drawn: defaultdict[tuple[str, str], float] = defaultdict(float)
        self.at: dict[tuple[str, int], dict[tuple[str, str], float]] = {}
        self._note()

    async def second(self) -> None:
        """Let a second pass."""
        before = self._node.gpus
        await self._node.step(self._node.time + 1)
        for earlier, later in zip(before, self._node.gpus, strict=True):
            drawn = (earlier.power_mw + later.power_mw) / 2 / 1000
            first, last = dict(_used(earlier)), dict(_used(later))
            used = {name: (first.get(name, 0.0) + last.get(name, 0.0)) / 2 for name in first | last}
            idle = 1 - sum(used.values())
            for name, part in used.items():
                self._drawn[name, later.gpu.uuid] += drawn * (part + idle * self._entitled)
        self._note()

    def _note(self) -> None:
        for state in self._node.gpus:
            uuid = state.gpu.uuid
            of_gpu = {key: value for key, value in self._drawn.items() if key[1] == uuid}
            self.at.setdefault((uuid, state.totals["energy"]), of_gpu)


def _used(state: GpuState) -> Iterator[tuple[str, float]]:
    for process in state.processes:
        assert process.running.pod is not None
        slices = process.instance.compute_slices / 7 if process.instance else 1.0
        yield process.running.pod.name, process.sm / 100 * slices


def joules(snapshot: Snapshot) -> dict[tuple[str, str], float]:
    """Return the joules of each pod that is there, with the GPU."""
    return {(row.holder.pod, row.device.uuid): row.totals.energy_joules or 0.0 for row in snapshot.containers}


@pytest.mark.parametrize(
    ("scenario", "entitled", "part", "interval"),
    [(time_sliced, 1 / 3, 1.0, 5), (cut, 1 / 7, 1 / 7, 1), (whole, 1.0, 1.0, 5)],
)
async def test_each_pod_gets_what_it_drew(scenario, entitled, part, interval):
    """Over a minute of changing loads, to one poll; a pod that ends has what was counted before."""
    uncertain = interval * ACTIVE * SWITCHED * part
    async with polled_by_node_time(scenario()) as (node, poller):
        truth, last = Truth(node, entitled), {}
        for second in range(MINUTE):
            if second:
                await truth.second()
            if second % interval:
                continue
            snapshot = await poller.poll()
            now = joules(snapshot)
            assert all(now[key] >= last.get(key, 0.0) for key in now)
            last |= now
            for gpu in snapshot.gpus:
                uuid, counted = gpu.identity.uuid, gpu.reading.energy_millijoules
                given = sum(value for (_, of), value in last.items() if of == uuid)
                assert given + gpu.unattributed_energy_joules == pytest.approx(counted / 1000)
                for key, drawn in truth.at[uuid, counted].items():
                    if key in now:
                        assert now[key] == pytest.approx(drawn, abs=uncertain)
        asked = [count for (name, _), count in node.nvml.calls.items() if name == ENERGY]
        assert len(asked) == len(node.gpus)
        assert max(asked) <= 5
        assert {name for name, _ in last} == set(PODS)
        assert min(last.values()) > uncertain


@pytest.mark.parametrize("bad", [0, 200, 2**50])
async def test_a_bad_reading_is_not_shown_and_charges_no_pod(bad: int):
    """Each pod has the same with it as without it, from the next good reading on."""
    totals: list[dict[tuple[str, str], float]] = []
    for spoilt in (False, True):
        async with polled_by_node_time(time_sliced()) as (node, poller):
            answer, wrong = getattr(node.nvml, ENERGY), False

            def energy(handle: Any, reference: Any, answer=answer) -> int:
                code: int = answer(handle, reference)
                reference._obj.value = bad if wrong else reference._obj.value  # noqa: B023
                return code

            setattr(node.nvml, ENERGY, energy)
            shown = {}
            for second in range(0, MINUTE + 1, 5):
                for moment in range(max(second - 4, 0), second + 1):
                    await node.step(moment)
                wrong = spoilt and second in range(25, 40)
                snapshot = await poller.poll()
                shown[second] = snapshot.gpus[0].reading.energy_millijoules
                counted = sum(joules(snapshot).values()) + snapshot.gpus[0].unattributed_energy_joules
                assert counted <= node.gpus[0].totals["energy"] / 1000 + 1e-6
            assert (None in shown.values()) is spoilt
            known = [value for value in shown.values() if value is not None]
            assert known == sorted(known)
            totals.append(joules(snapshot))
    assert totals[1] == pytest.approx(totals[0], rel=0.05)


async def test_a_reading_that_fails_loses_nothing():
    """The next one covers its time, and each pod has its part of all of it."""
    failing = {"kind": "nvml_error", "at": 9, "for": 22, "function": ENERGY, "code": "UNKNOWN"}
    totals: list[dict[tuple[str, str], float]] = []
    drawn: list[float] = []
    for faults in ([], [failing]):
        async with polled_by_node_time(time_sliced(faults=faults)) as (node, poller):
            shown = []
            for second in range(0, MINUTE, 5):
                for moment in range(max(second - 4, 0), second + 1):
                    await node.step(moment)
                snapshot = await poller.poll()
                shown.append(snapshot.gpus[0].reading.energy_millijoules)
            assert (None in shown) is bool(faults)
            totals.append(joules(snapshot))
            drawn.append(sum(totals[-1].values()) + snapshot.gpus[0].unattributed_energy_joules)
    assert drawn[1] == pytest.approx(drawn[0])
    assert totals[1] == pytest.approx(totals[0], rel=0.05)
    assert min(totals[1].values()) > 0
