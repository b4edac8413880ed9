"""A recording shows what its node shows, and has none of its names."""

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from exporter.commands.record import scenario as recorded_from
from exporter.commands.record.mask import Mask
from exporter.demo.scenario import Scenario, catalog
from exporter.demo.scenario.catalog import dump, parse
from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    DriverInfo,
    GpuIdentity,
    GpuReading,
    HardwareReading,
    Memory,
    OfferedDevice,
    PodIdentity,
    ProcessPlace,
    Snapshot,
    Workloads,
)
from exporter.model.poll_result import PollResult
from tests.core.commands.program import TIMEOUT
from tests.core.poller.bench import polled
from tests.fake.demo.making import MIB, gpu, instance, made, pod
from tests.truth import Truth, truth_of

POD_UID = "0f2a6d1e-51e6-4b3f-9f43-0a4cf2d0a111"
STATIC_UID = "d8ab1b2e4f7c9a3b5d6e7f8091a2b3c4"
UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Names of the pods of sharing systems themselves, which stay.
OWN_NAMES = {
    "kai-resource-reservation",
    "resource-reservation",
    "runai-reservation",
    "nvshare-device-plugin",
    "tensorfusion-worker",
    "scaleops-system",
    # Words that stay in texts stay as names of containers too.
    "cache",
    "compute",
    "render",
    "worker",
}
ANYBODY, ANYWHERE = ContainerRef("", "", ""), DeviceKey("")


def shape(snapshot: Snapshot) -> dict[str, Any]:
    """Return all of a snapshot but names, times and counters."""
    makers = {row.identity.uuid: row.identity.vendor for row in snapshot.gpus}
    return {
        # Devices without a driver are in the order of their names, which are masked.
        "gpus": sorted(
            (
                (
                    row.identity.vendor,
                    _model(row.identity.vendor, row.identity.model),
                    row.identity.index,
                    row.sharing,
                    row.slices,
                    row.holders,
                    row.reading and row.reading.memory,
                    row.unattributed_memory,
                )
                for row in snapshot.gpus
            ),
            key=repr,
        ),
        "migs": [
            (row.reading.gi, row.reading.ci, row.reading.profile, row.reading.memory, row.slices, row.holders)
            for row in snapshot.migs
        ],
        "containers": sorted(
            (
                (
                    replace(
                        row,
                        holder=ANYBODY,
                        device=ANYWHERE,
                        pod_uid="",
                        model=_model(makers.get(row.device.uuid, ""), row.model),
                        totals=None,
                        compute_used=None,
                        claims=(),
                    ),
                    sorted((bool(claim.request), claim.driver, claim.device) for claim in row.claims),
                    bool(row.holder.container),
                )
                for row in snapshot.containers
            ),
            key=repr,
        ),
        "unresolved": snapshot.node.unresolved,
        "blind": snapshot.node.blind,
        "view": snapshot.node.process_view,
        "success": [(each.name, each.success) for each in snapshot.collectors],
    }


def _model(vendor: str, model: str) -> str:
    """Return the model of an NVIDIA GPU; that of others may be a word of an annotation, which is masked."""
    return model if vendor == "nvidia" else ""


def readings(snapshot: Snapshot) -> list[GpuReading]:
    """Return the readings of the boards without identities, processes and profiling metrics.

    Peers are named by their place. Reasons of missing readings are left out: they may be errors of one poll.
    """
    boards = [row.reading for row in snapshot.gpus if row.reading is not None]
    places = {reading.identity.uuid: str(place) for place, reading in enumerate(boards)}
    result = []
    for reading in boards:
        topology = reading.topology
        if topology is not None:
            peers = {places[uuid]: link for uuid, link in topology.peers.items()}
            topology = replace(topology, peers=peers)
        result.append(
            GpuReading(
                **{
                    each.name: getattr(reading, each.name)
                    for each in fields(GpuReading)
                    if each.name not in {*NOT_THE_BOARDS, "fabric"}
                },
                identity=replace(reading.identity, uuid="", serial=None),
                fabric=reading.fabric and replace(reading.fabric, cluster=bool(reading.fabric.cluster)),
                topology=topology,
                mig=tuple(
                    replace(mig, uuid="", processes=None, profiling=None, process_utilization=None)
                    for mig in reading.mig or ()
                ),
            )
        )
    return result


def holdings(truth: Truth) -> tuple[list[int], dict[str, int]]:
    """Return the slices that containers hold, without names, and the unresolved ids by resource."""
    return sorted(each.slices for each in truth.containers.values() if each.slices), dict(truth.unresolved)


def numbers_of(scenario: Scenario) -> set[str]:
    """Return the numbers that identify boards and containers."""
    numbers = {board.serial for board in scenario.gpus if board.serial}
    for each in scenario.pods:
        numbers |= {each.uid, *(container.container_id[:12] for container in each.containers)}
    return numbers


def names_of(scenario: Scenario) -> set[str]:
    """Return the names that users gave."""
    names = {scenario.node.name}
    for each in scenario.pods:
        names |= {each.namespace, each.name, *(container.name for container in each.containers)}
        names |= {claim.name for container in each.containers for claim in container.claims}
    return names


def texts_of(value: Any) -> Iterator[str]:
    """Yield every text of a JSON document, except names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (key for key in value if not key.isidentifier())
        for inner in value.values():
            yield from texts_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_of(inner)


class Recording(NamedTuple):
    """The snapshot of a node, its true holdings, and its recording, written and read again."""

    snapshot: Snapshot
    truth: Truth
    scenario: Scenario


async def shown(scenario: Scenario, at: float = 0) -> tuple[Snapshot, PollResult, Truth]:
    """Poll a node; return its snapshot, the poll's results, and the true holdings."""
    async with polled(scenario, deadline=TIMEOUT, pcie_throughput="on") as (node, poller):
        await node.step(at)
        return await poller.poll(), poller.evidence, truth_of(node)


async def recording(scenario: Scenario, at: float = 0) -> Recording:
    """Poll a node, and record it."""
    snapshot, evidence, truth = await shown(scenario, at)
    return Recording(snapshot, truth, parse(dump(recorded_from(evidence, scenario.node.name, Mask()))))


@cache
def recorded(name: str) -> Recording:
    """Record a scenario, once for all tests."""
    return asyncio.run(recording(catalog.load(name)))


@cache
def recorded_again(name: str) -> Recording:
    """Record the recording of a scenario."""
    return asyncio.run(recording(recorded(name).scenario))


def two_containers(identity: str) -> Scenario:
    """Return a GPU shared by two containers of one pod, and used by a third that does not hold it."""
    process = {"device": "{gpu:0}", "memory": "1 GiB"}
    sharing = {
        "namespace": "ml",
        "name": "pair",
        "containers": [
            {"name": name, "devices": {"nvidia.com/gpu": [f"{{gpu:0}}::{n}"]}, "processes": [process]}
            for n, name in enumerate(("left", "right"))
        ],
    }
    other = pod("other")
    other["containers"] += [{"name": "side", "processes": [process]}]
    offers = [{"resource": "nvidia.com/gpu", "of": "gpus", "replicas": 4}]
    return made(identity=identity, pods=[sharing, other], offers=offers)


NEW_DRIVER = {
    "name": "node-1",
    "driver_version": "580.65.06",
    "nvml_version": "13.580.65.06",
    "cuda_version": 13000,
}
BUSY = pod("busy", {"device": "{gpu:0}", "memory": "1 GiB", "streams": 2, "load": {"high": 97}})
# Fields of a reading that are not of the board, or change from poll to poll.
NOT_THE_BOARDS = {
    "identity",
    "topology",
    "mig",
    "sweep",
    "read_at",
    "read_monotonic",
    "slow_read_at",
    "boot_seconds",
    "processes",
    "process_utilization",
    "profiling",
    "unsupported",
    "withheld",
    "vgpus",
}
VARIANTS = {
    "names by id": two_containers("pods_api"),
    "names by directory": two_containers("pod_logs"),
    "no names": two_containers("none"),
    "no names, one holder": replace(catalog.load("lost-gpu"), identity="none"),
    "no host pids": replace(catalog.load("h100-exclusive"), host_pid=False),
    "compute instances": made(
        gpus=[
            gpu(
                mig={
                    "instances": [
                        instance(1, 4, ci=ci, profile="1c.3g.8gb", memory_bytes="8 GiB", size=4)
                        for ci in range(3)
                    ]
                    + [instance(2, 0), instance(3, 1)]
                }
            )
        ],
        offers=[{"resource": "nvidia.com/mig-{profile}", "of": "mig"}],
    ),
}


# AMD GPUs, vGPUs and memory limits of cgroups are not recorded.
LEFT_OUT = {"amd-dra", "hami-amd", "memory-limits", "memory-limits-misc", "mi210", "mi300x-cpx", "vgpu-host"}
RECORDED = [name for name in catalog.names() if name not in LEFT_OUT]
FEW = ["a100-mig-mixed", "dra-only", "gke", "hami", "kai", "t4-timeslicing"]
BOARDS = {
    "a Blackwell": made(
        node=NEW_DRIVER,
        gpus=[
            gpu(
                count=2,
                model="NVIDIA B200",
                architecture=10,
                memory_temperature=True,
                links={"nvlinks": 18, "down": 1, "switch": True, "errors": {"recovery": 3}},
            )
        ],
        pods=[BUSY],
    ),
    "a module": made(
        node=NEW_DRIVER,
        gpus=[gpu(model="NVIDIA GH200 480GB", architecture=9, memory_temperature=True)],
        pods=[BUSY],
    ),
    "a board that says little": made(
        gpus=[
            gpu(
                serial=None,
                vbios=None,
                bar1_total=None,
                health={"ecc": None},
                links={"nvlinks": 4, "numa_node": None, "cpus": ""},
                unsupported=[
                    "field:165",
                    "field:74",
                    "nvmlDeviceGetNvLinkState",
                    "nvmlDeviceGetClockInfo:3",
                    "nvmlDeviceGetPowerUsage",
                    "nvmlDeviceGetUtilizationRates",
                    "nvmlDeviceGetPersistenceMode",
                    "nvmlDeviceGetPowerManagementLimitConstraints",
                ],
            )
        ],
        pods=[BUSY],
    ),
    "hot": made(gpus=[gpu(architecture=8, temperature_base=60, power_limit_mw=80_000, fan=40)], pods=[BUSY]),
    "a pair of which one link is down": made(
        gpus=[
            gpu(links={"nvlinks": 4, "to": {"{gpu:1}": 4}, "relations": {"{gpu:1}": "PIX"}}),
            gpu(links={"nvlinks": 4, "down": 1, "to": {"{gpu:0}": 4}}),
        ],
        pods=[BUSY],
    ),
    "no field values": made(gpus=[gpu(unsupported=["nvmlDeviceGetFieldValues"])], pods=[BUSY]),
}


def assert_recorded_as_it_is(name: str) -> None:
    """Assert that a recording, and one of it, show what the node shows, with its holdings."""
    before, again = recorded(name), recorded_again(name)
    assert shape(again.snapshot) == shape(before.snapshot)
    assert shape(asyncio.run(shown(again.scenario))[0]) == shape(before.snapshot)
    assert holdings(again.truth) == holdings(before.truth)


@pytest.mark.parametrize("name", FEW)
def test_a_node_is_recorded_as_it_is(name: str):
    assert_recorded_as_it_is(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_every_node_of_the_catalog_is_recorded_as_it_is(name: str):
    assert_recorded_as_it_is(name)


def assert_without_names(name: str) -> None:
    """Assert that no UUID, number or name of the node is in its recording."""
    scenario = catalog.load(name)
    masked = recorded(name).scenario
    text, original = dump(replace(masked, name="", description="")), dump(scenario)
    assert set(UUID.findall(text.lower())).isdisjoint(UUID.findall(original.lower()))
    assert not [number for number in numbers_of(scenario) if number in text]
    texts = "\n".join(texts_of(json.loads(text)))
    survivors = {
        each for each in names_of(scenario) if re.search(rf"(?<![\w.-]){re.escape(each)}(?![\w.-])", texts)
    }
    assert survivors <= OWN_NAMES


@pytest.mark.parametrize("name", FEW)
def test_no_name_of_a_node_is_recorded(name: str):
    assert_without_names(name)


@pytest.mark.slow
def test_no_name_of_any_node_of_the_catalog_is_recorded():
    for name in catalog.names():
        assert_without_names(name)


async def assert_readings_recorded(scenario: Scenario) -> None:
    """Assert that a board is recorded with its readings, and without those that are missing."""
    before = await recording(scenario, at=37)
    after, *_ = await shown(before.scenario)
    assert readings(after) == readings(before.snapshot)


@pytest.mark.parametrize("name", BOARDS)
async def test_every_reading_of_a_board_is_recorded(name: str):
    await assert_readings_recorded(BOARDS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
async def test_every_reading_of_the_catalog_is_recorded(name: str):
    # Offers are not a part of a board, and on some nodes they are tens of thousands of ids.
    await assert_readings_recorded(replace(catalog.load(name), faults=(), offers=()))


@pytest.mark.parametrize("name", VARIANTS)
async def test_a_node_with_few_names_is_recorded_as_it_is(name: str):
    """Containers that can be told apart can be told apart in the recording, and no others."""
    before = await recording(VARIANTS[name])
    after, *_ = await shown(before.scenario)
    assert shape(after) == shape(before.snapshot)


def evidence(*gpus: GpuReading, places=(), pods=()) -> PollResult:
    """Return the results of a poll."""
    return PollResult(
        hardware=HardwareReading(driver=DriverInfo(), gpus=gpus, gpu_count=len(gpus)),
        workloads=Workloads(
            places={place.pid: place for place in places},
            pods={each.uid: each for each in pods},
            process_view=True,
        ),
    )


def board(index: int, *pids: int) -> GpuReading:
    """Return a GPU with processes of 1 MiB."""
    return GpuReading(
        identity=GpuIdentity(
            uuid=f"GPU-00000000-0000-0000-0000-00000000000{index}",
            index=index,
            minor=index,
            model="T",
            serial="1650921030217",
            architecture="Ampere",
        ),
        memory=Memory(total=1 << 30, used=10 * MIB, free=(1 << 30) - 10 * MIB, reserved=0),
        mig_enabled=False,
        processes=tuple(DeviceProcess(pid=pid, memory=MIB, kinds=frozenset({"compute"})) for pid in pids),
        process_utilization={},
    )


def place(pid: int, uid: str | None) -> ProcessPlace:
    """Return where a process runs."""
    return ProcessPlace(pid=pid, known=True, pod_uid=uid)


def test_a_process_on_several_gpus_is_recorded_as_several():
    """A process of a scenario is on one device."""
    trainer = PodIdentity(uid=POD_UID, namespace="ml", name="train", containers=("main",))
    results = evidence(board(0, 4711), board(1, 4711), places=[place(4711, POD_UID)], pods=[trainer])
    recorded = parse(dump(recorded_from(results, "node", Mask())))
    (container,) = recorded.pods[0].containers
    assert [process.device for process in container.processes] == [each.uuid for each in recorded.gpus]
    assert len({process.pid for process in container.processes}) == 2


def test_the_uid_of_a_static_pod_is_masked():
    """It has 32 digits and no dash."""
    static = PodIdentity(uid=STATIC_UID, namespace="kube-system", name="etcd-node-7", containers=("etcd",))
    results = evidence(board(0, 4711), places=[place(4711, STATIC_UID)], pods=[static])
    text = dump(recorded_from(results, "node", Mask()))
    assert STATIC_UID not in text
    assert "etcd" not in text
    assert parse(text).pods[0].uid


def test_a_pod_without_a_name_stays_a_pod():
    """Its process is not recorded as one of the host."""
    results = evidence(board(0, 4711), places=[place(4711, POD_UID)])
    recorded = recorded_from(results, "node", Mask())
    (process,) = recorded.host_processes
    assert "/pod" in process.cgroup
    assert POD_UID not in process.cgroup


def test_masks_are_equal_if_and_only_if_the_originals_are():
    mask = Mask()
    first = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
    masked = mask.uuid(first)
    assert masked.startswith("GPU-")
    assert masked != first
    assert mask.text(f"{first}::3") == f"{masked}::3"
    assert mask.text(f"MIG-{first}/3/0") == f"MIG-{masked}/3/0"
    assert mask.text(first.replace("4cf8", "4CF8")) == masked
    assert mask.text(f"{first}-7") == f"{masked}-7"
    assert mask.text("nvidia0/vgpu1") == "nvidia0/vgpu1"
    assert mask.uuid(first.replace("4cf8", "4cf9")) != masked
    assert (mask.serial("1650921030217"), mask.serial(None)) == ("0000000000001", None)
    assert [mask.name("pod", name) for name in ("ml/a", "ml/b", "ml/a")] == ["pod-1", "pod-2", "pod-1"]
    assert mask.name("container", "ml/a") == "container-1"
    assert (mask.uid(""), Mask(on=False).uid(STATIC_UID)) == ("", STATIC_UID)
    assert Mask(on=False).name("pod", "ml/a") == "a"


def test_other_device_plugins_are_left_out():
    """Their device ids may name people and places. Unknown words in the id of a GPU are replaced."""
    ref = ContainerRef("ml", "a", "main")
    allocated = (
        Allocation(ref, "acme.internal/hsm", "hsm-paris-rack7"),
        Allocation(ref, "nvidia.com/gpu", "paris-gpu-7"),
    )
    offered = tuple(OfferedDevice(each.resource, each.device_id) for each in allocated)
    allocations = Allocations(allocated=allocated, offered=offered, api_version="v1", read_at=0.0)
    text = dump(recorded_from(PollResult(allocations=allocations), "node", Mask()))
    assert "paris" not in text
    assert "acme" not in text
    assert "nvidia.com/gpu" in text
