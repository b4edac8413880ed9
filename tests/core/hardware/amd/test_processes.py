"""Processes of a whole GPU: what KFD lists, and when its list is unknown."""

import os
from pathlib import Path

import pytest

from exporter.model import DeviceProcess
from exporter.workloads.pid_namespace import MACHINE
from tests.core.hardware.amd.tree import GIB, GPU_ID, Tree, unreadable

COMPUTE = frozenset({"compute"})


@pytest.fixture
def whole(tree: Tree) -> Tree:
    """Return a node with one whole GPU of 104 compute units."""
    tree.card()
    tree.node()
    return tree


async def test_processes_have_memory_and_a_share_of_compute_units(whole: Tree) -> None:
    whole.process(4242, 3 * GIB, 52)
    whole.process(41, 1024, 0)
    gpu = await whole.gpu()
    assert gpu.processes == (
        DeviceProcess(pid=41, memory=1024, kinds=COMPUTE),
        DeviceProcess(pid=4242, memory=3 * GIB, kinds=COMPUTE),
    )
    assert gpu.process_utilization == {41: 0.0, 4242: 50.0}
    assert gpu.withheld == {}


async def test_a_process_that_only_opened_the_gpu_is_not_listed(whole: Tree) -> None:
    whole.process(7, 0, 0)
    assert (await whole.gpu()).processes == ()


async def test_a_process_with_a_queue_and_no_memory_is_listed(whole: Tree) -> None:
    folder = whole.process(7, 0, 4)
    whole.write(folder / "queues/0/gpuid", "999")
    whole.write(folder / "queues/1/gpuid", str(GPU_ID))
    assert (await whole.gpu()).processes == (DeviceProcess(pid=7, memory=0, kinds=COMPUTE),)


async def test_contexts_of_a_process_are_added_up(whole: Tree) -> None:
    whole.process(7, GIB, 26)
    whole.process(7, 2 * GIB, 26, within="context_1")
    gpu = await whole.gpu()
    assert gpu.processes == (DeviceProcess(pid=7, memory=3 * GIB, kinds=COMPUTE),)
    assert gpu.process_utilization == {7: 50.0}


async def test_an_empty_list_is_an_observation(whole: Tree) -> None:
    gpu = await whole.gpu()
    assert (gpu.processes, gpu.process_utilization) == ((), {})


async def test_without_kfd_processes_are_unknown(tree: Tree) -> None:
    tree.card()
    gpu = await tree.gpu()
    assert (gpu.up, gpu.processes, gpu.process_utilization) == (True, None, None)
    assert "processes" in gpu.withheld


async def test_one_unreadable_process_makes_the_list_unknown(whole: Tree) -> None:
    whole.process(7, GIB, 1)
    unreadable(whole.kfd / f"proc/8/vram_{GPU_ID}")
    reading = await whole.read()
    assert reading.gpus[0].processes is None
    assert [(call, error) for _, call, error in reading.errors] == [(f"sysfs vram_{GPU_ID}", "EISDIR")]


async def test_without_occupancy_utilization_is_unknown(whole: Tree) -> None:
    """Some architectures report it only."""
    whole.process(7, GIB)
    gpu = await whole.gpu()
    assert ([process.pid for process in gpu.processes or ()], gpu.process_utilization) == ([7], None)


async def test_one_process_without_occupancy_is_unknown(whole: Tree) -> None:
    whole.process(7, GIB)
    whole.process(8, GIB, 104)
    assert (await whole.gpu()).process_utilization == {7: None, 8: 100.0}


async def test_without_compute_units_utilization_is_unknown(tree: Tree) -> None:
    tree.card()
    tree.node(simd_count=0)
    tree.process(7, GIB, 26)
    assert (await tree.gpu()).process_utilization is None


async def test_entries_that_are_no_pids_are_ignored(whole: Tree) -> None:
    whole.write(whole.kfd / f"proc/self/vram_{GPU_ID}", "5")
    assert (await whole.gpu()).processes == ()


@pytest.mark.parametrize(("namespace", "known"), [(MACHINE, True), ("pid:[4026532448]", False)])
async def test_in_another_pid_namespace_processes_are_unknown(
    whole: Tree, namespace: str, known: bool
) -> None:
    """KFD does not translate pids."""
    whole.process(7, GIB, 1)
    own = whole.proc / str(os.getpid()) / "ns"
    own.mkdir(parents=True)
    (own / "pid").symlink_to(namespace)
    (whole.proc / "self").symlink_to(str(os.getpid()))
    gpu = await whole.gpu()
    assert (gpu.processes is not None, gpu.process_utilization is not None) == (known, known)
    assert ("processes" in gpu.withheld) is not known


@pytest.mark.parametrize(("command", "known"), [("kthreadd", True), ("sh", False), (None, False)])
async def test_kernel_threads_prove_the_pid_namespace_of_the_host(
    whole: Tree, command: str | None, known: bool
) -> None:
    """The link to the namespace needs rights."""
    whole.process(7, GIB, 1)
    (whole.proc / "self").symlink_to("4242")
    if command is not None:
        _write(whole.proc / "2/comm", command)
    assert ((await whole.gpu()).processes is not None) is known


async def test_memory_of_a_partition_is_known_in_another_pid_namespace(tree: Tree) -> None:
    tree.partitions(2)
    tree.process(7, GIB, 1, GPU_ID)
    (tree.proc / "self").symlink_to("4242")
    first = ((await tree.gpu()).mig or ())[0]
    assert first.processes is None
    assert first.memory is not None
    assert first.memory.used == GIB


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
