"""The fake node as a whole: start, steps, and removal without leftovers."""

import asyncio
import re
import threading

import grpc.aio
import pynvml
import pytest

from exporter.demo.node import FakeNode
from exporter.demo.scenario import catalog
from exporter.model import ContainerRef, DeviceKey
from podresources import messages
from tests.fake.demo.making import MIB, gpu, instance, made, pod
from tests.truth import truth_of
from tests.waiting import LIMIT_SECONDS, wait_until_async


def by_hand() -> float:
    """Return 0, so that time passes by steps only."""
    return 0.0


async def listed(node: FakeNode, within: float = LIMIT_SECONDS) -> dict[tuple[str, str], set[str]]:
    """Return the ids that the kubelet lists by (pod, resource)."""
    # A pool of its own: otherwise a new channel waits until the failed one would try again.
    alone = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"unix:{node.paths.pod_resources_socket}", alone) as channel:
        call = channel.unary_unary("/v1.PodResourcesLister/List")
        answer = messages.ListPodResourcesResponse.FromString(await call(b"", timeout=within))
    return {
        (pod_resources.name, devices.resource_name): {
            device_id
            for other in container.devices
            if other.resource_name == devices.resource_name
            for device_id in other.device_ids
        }
        for pod_resources in answer.pod_resources
        for container in pod_resources.containers
        for devices in container.devices
    }


def use(node: FakeNode) -> None:
    """Return the use of a device in a file."""
    pynvml.nvmlLib = node.nvml
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml.nvmlInit()


@pytest.fixture(autouse=True)
def _clean_binding():
    """Leave no library behind in the binding."""
    yield
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


# Time-slicing, MIG with new layouts, vGPUs, AMD partitions, the files of a sharing system.
@pytest.mark.parametrize("name", ["t4-timeslicing", "h100-mixed", "vgpu-host", "mi300x-cpx", "hami"])
async def test_sums_hold_for_three_minutes_of_some_scenarios(name):
    await check_sums(name)


@pytest.mark.slow
async def test_sums_hold_for_three_minutes_of_every_scenario():
    for name in catalog.names():
        await check_sums(name)


async def check_sums(name: str) -> None:
    """Run a scenario for three minutes."""
    async with FakeNode(catalog.load(name), clock=by_hand) as node:
        for t in range(0, 181, 10):
            await node.step(t)
            truth = truth_of(node)
            for device in truth.devices.values():
                assert 0 <= device.unattributed <= device.memory_used
                assert device.memory_used + device.memory_reserved <= device.memory_total
                assert device.sm_percent is None or 0 <= device.sm_percent <= 100
            # Ids that are only a number have no card until an annotation names one.
            assert not [resource for resource in truth.unresolved if resource.startswith("nvidia.com/")]
        assert node.time == 180


async def test_driver_kubelet_and_files_agree():
    """The driver's processes have files, the kubelet's ids are those of the driver."""
    async with FakeNode(catalog.load("t4-timeslicing"), clock=by_hand) as node:
        use(node)
        ids = await listed(node)
        uuids = set()
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuids.add(pynvml.nvmlDeviceGetUUID(handle))
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                assert (node.paths.proc_root / str(process.pid) / "cgroup").exists()
        assert ids["infer-1", "nvidia.com/gpu"] == {f"{node.scenario.gpus[1].uuid}::{n}" for n in (0, 3, 7)}
        assert {device_id.partition("::")[0] for group in ids.values() for device_id in group} <= uuids
        assert len(node.kubelet.offered) == 40


async def test_the_truth_of_a_shared_gpu():
    """Replicas count as slices, processes as use, and the rest as unattributed."""
    async with FakeNode(catalog.load("t4-timeslicing"), clock=by_hand) as node:
        truth = truth_of(node)
        boards = [DeviceKey(board.uuid) for board in node.scenario.gpus]
        server = truth.containers[ContainerRef("team-a", "infer-1", "server"), boards[1]]
        assert (server.slices, server.processes, server.memory) == (3, 2, (2460 + 1180) * MIB)
        idle = truth.containers[ContainerRef("ml", "nb-bruno", "notebook"), boards[0]]
        assert (idle.slices, idle.memory, idle.sm_percent) == (1, 0, 0)
        rogue = truth.containers[ContainerRef("dev", "shell-oskar", "shell"), boards[3]]
        assert (rogue.slices, rogue.memory, rogue.sm_percent) == (0, 820 * MIB, 24)
        pinned = ContainerRef("research", "pinned", "main")
        assert truth.containers[pinned, boards[2]].memory == 0
        assert truth.containers[pinned, boards[3]].memory == 1024 * MIB
        assert truth.devices[boards[0]].unattributed == (180 + 48) * MIB


async def test_the_truth_of_mig_devices_and_unknown_ids():
    """Instances share the memory of their GPU instance; unknown memory and unknown ids stay unknown."""
    cuts = [
        instance(1, 0, ci=ci, profile="1c.3g.8gb", memory_bytes="8 GiB", size=4, overhead="1 MiB")
        for ci in (0, 1)
    ]
    one = {"device": "{gpu:0/mig:0}", "memory": "1 GiB", "load": {"high": 40}}
    two = {"device": "{gpu:0/mig:1}", "memory": None, "load": {"high": 30}}
    devices = {"r": ["{gpu:0/mig:0}", "GPU-gone", "GPU-gone::1"]}
    pods = [pod("a", one, devices=devices), pod("b", two)]
    scenario = made(gpus=[gpu(mig={"instances": cuts})], pods=pods)
    async with FakeNode(scenario, clock=by_hand) as node:
        truth = truth_of(node)
    mig = scenario.gpus[0].mig
    assert mig is not None
    whole = DeviceKey(scenario.gpus[0].uuid)
    first, second = (DeviceKey(whole.uuid, device.uuid) for device in mig.instances)
    assert truth.unresolved == {"r": 2}
    assert truth.devices[first].memory_used == truth.devices[second].memory_used == 1025 * MIB
    assert truth.devices[first].unattributed == MIB
    assert (truth.devices[first].sm_percent, truth.devices[second].sm_percent) == (40, 30)
    assert truth.devices[whole].sm_percent is None
    assert truth.devices[whole].unattributed == 101 * MIB
    assert truth.containers[ContainerRef("ml", "a", "main"), first].slices == 1
    assert truth.containers[ContainerRef("ml", "b", "main"), second].memory is None
    assert truth.containers[ContainerRef("ml", "b", "main"), second].sm_percent == 30


async def test_the_same_seed_gives_the_same_node():
    """With another seed the node differs."""

    async def truths(seed: int) -> list[object]:
        async with FakeNode(catalog.load("showcase"), clock=by_hand, seed=seed) as node:
            by_time = []
            for t in (0, 7, 31, 90):
                await node.step(t)
                by_time.append(truth_of(node))
            return by_time

    assert await truths(1) == await truths(1)
    assert await truths(1) != await truths(2)


async def test_the_kubelet_lists_a_pod_while_it_exists():
    async with FakeNode(catalog.load("h100-mixed"), clock=by_hand) as node:
        seen = []
        for t in (0, 30, 89, 90):
            await node.step(t)
            seen.append(("ablation-17", "nvidia.com/gpu") in await listed(node))
        assert seen == [False, True, True, False]


async def test_advance_moves_the_node_to_the_time_of_its_clock():
    now = 0.0
    async with FakeNode(made(), clock=lambda: now) as node:
        now = 42.0
        await node.advance()
        assert node.time == 42


async def test_without_a_clock_time_passes_by_itself(monkeypatch):
    monkeypatch.setattr("exporter.demo.node.PERIOD_SECONDS", 0.01)
    async with FakeNode(made()) as node:
        await wait_until_async(lambda: node.time > 0)


async def test_the_kubelet_stops_rejects_and_hangs_for_the_time_of_its_faults():
    faults = [
        {"kind": "kubelet_down", "at": 10, "for": 10},
        {"kind": "kubelet_rate_limit", "at": 30, "for": 10},
        {"kind": "kubelet_hang", "at": 50, "for": 10},
    ]
    pods = [pod("p", devices={"r": ["{gpu:0}"]})]
    seen = []
    async with FakeNode(made(pods=pods, faults=faults), clock=by_hand) as node:
        for t in (0, 10, 20, 30, 40, 50, 60):
            await node.step(t)
            try:
                # A hanging kubelet does not answer in any time; the others have two minutes.
                seen.append(str(len(await listed(node, within=0.3 if t == 50 else LIMIT_SECONDS))))
            except grpc.aio.AioRpcError as error:
                seen.append(error.code().name)
    assert seen == ["1", "UNAVAILABLE", "1", "RESOURCE_EXHAUSTED", "1", "DEADLINE_EXCEEDED", "1"]


async def test_a_node_may_start_without_its_kubelet():
    async with FakeNode(made(faults=[{"kind": "kubelet_down", "for": 5}]), clock=by_hand) as node:
        assert not node.paths.pod_resources_socket.exists()
        await node.step(5)
        assert await listed(node) == {}


async def test_every_path_for_the_exporter_exists():
    async with FakeNode(catalog.load("a10-mps"), clock=by_hand) as node:
        paths = node.paths
        assert paths.pod_resources_socket.is_socket()
        assert paths.pods_api_socket.is_socket()
        assert paths.kubelet_root.is_dir()
        assert (paths.proc_root / "uptime").is_file()
        assert (paths.sys_root / "module/nvidia/version").is_file()
        assert re.match(
            r"vision_detector-0_[0-9a-f-]{36}$", min(path.name for path in paths.pod_log_dir.iterdir())
        )


async def test_an_old_kubelet_serves_no_v1_and_no_pods_api():
    async with FakeNode(catalog.load("old-driver"), clock=by_hand) as node:
        assert not node.paths.pods_api_socket.exists()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await listed(node)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_no_folder_task_or_hanging_thread_is_left():
    hang = {"kind": "nvml_hang", "function": "nvmlDeviceGetCount_v2"}
    threads = threading.active_count()
    async with FakeNode(made(faults=[hang])) as node:
        use(node)
        root = node.paths.proc_root.parent
        caller = threading.Thread(target=pynvml.nvmlDeviceGetCount)
        caller.start()
        assert root.is_dir()
    caller.join(LIMIT_SECONDS)
    assert not caller.is_alive()
    assert not root.exists()
    assert threading.active_count() <= threads + 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_given_folder_is_not_removed(tmp_path):
    async with FakeNode(made(), root=tmp_path, clock=by_hand):
        pass
    assert (tmp_path / "proc/uptime").exists()


async def test_a_start_that_fails_raises_its_error_and_stops_the_kubelet(tmp_path):
    (tmp_path / "proc").write_text("in the way")
    with pytest.raises(FileExistsError):
        await FakeNode(made(), root=tmp_path, clock=by_hand).__aenter__()
