"""Who computes on a whole GPU: what KFD lists, and when its list is no answer."""

import os
from pathlib import Path

import pytest

from exporter.model import DeviceProcess
from exporter.workloads.pid_namespace import MACHINE
from tests.hardware.amd.tree import GIB, GPU_ID, Tree, unreadable

COMPUTE = frozenset({"compute"})


@pytest.fixture
def whole(tree: Tree) -> Tree:
    """Give a node with one whole GPU of 104 compute units."""
    tree.card()
    tree.node()
    return tree


async def test_processes_with_memory(whole: Tree) -> None:
    """Memory in bytes, and the share of compute units that waves fill right now."""
    whole.process(4242, 3 * GIB, 52)
    whole.process(41, 1024, 0)
    gpu = await whole.gpu()
    assert gpu.processes == (
        DeviceProcess(pid=41, memory=1024, kinds=COMPUTE),
        DeviceProcess(pid=4242, memory=3 * GIB, kinds=COMPUTE),
    )
    assert gpu.process_utilization == {41: 0.0, 4242: 50.0}
    assert gpu.withheld == {}


async def test_a_process_that_only_opened_the_gpu_is_not_on_it(whole: Tree) -> None:
    """Every ROCm process opens all GPUs that it is allowed to."""
    whole.process(7, 0, 0)
    assert (await whole.gpu()).processes == ()


async def test_a_process_with_a_queue_and_no_memory_is_on_it(whole: Tree) -> None:
    """Its memory may lie on another GPU, or on the host."""
    folder = whole.process(7, 0, 4)
    whole.write(folder / "queues/0/gpuid", "999")
    whole.write(folder / "queues/1/gpuid", str(GPU_ID))
    assert (await whole.gpu()).processes == (DeviceProcess(pid=7, memory=0, kinds=COMPUTE),)


async def test_further_contexts_of_a_process_count(whole: Tree) -> None:
    """A process can hold several contexts, each with its own figures."""
    whole.process(7, GIB, 26)
    whole.process(7, 2 * GIB, 26, within="context_1")
    gpu = await whole.gpu()
    assert gpu.processes == (DeviceProcess(pid=7, memory=3 * GIB, kinds=COMPUTE),)
    assert gpu.process_utilization == {7: 50.0}


async def test_no_process_at_all(whole: Tree) -> None:
    """An empty list says that nobody computes."""
    gpu = await whole.gpu()
    assert (gpu.processes, gpu.process_utilization) == ((), {})


async def test_without_kfd_the_processes_are_not_known(tree: Tree) -> None:
    """That is not a GPU without processes."""
    tree.card()
    gpu = await tree.gpu()
    assert (gpu.up, gpu.processes, gpu.process_utilization) == (True, None, None)
    assert "processes" in gpu.withheld


async def test_a_list_that_cannot_be_read_is_not_known(whole: Tree) -> None:
    """One process whose memory is refused may be anyone's: the list is no answer."""
    whole.process(7, GIB, 1)
    unreadable(whole.kfd / f"proc/8/vram_{GPU_ID}")
    reading = await whole.read()
    assert reading.gpus[0].processes is None
    assert [(call, error) for _, call, error in reading.errors] == [(f"sysfs vram_{GPU_ID}", "EISDIR")]


async def test_a_gpu_that_does_not_meter_occupancy(whole: Tree) -> None:
    """The figure is there for some architectures only: without it, nothing is known of use."""
    whole.process(7, GIB)
    gpu = await whole.gpu()
    assert ([process.pid for process in gpu.processes or ()], gpu.process_utilization) == ([7], None)


async def test_one_process_that_is_not_metered(whole: Tree) -> None:
    """Its share is not known; those of the others are."""
    whole.process(7, GIB)
    whole.process(8, GIB, 104)
    assert (await whole.gpu()).process_utilization == {7: None, 8: 100.0}


async def test_a_gpu_of_unknown_size_gives_no_shares(tree: Tree) -> None:
    """Compute units of how many is no share."""
    tree.card()
    tree.node(simd_count=0)
    tree.process(7, GIB, 26)
    assert (await tree.gpu()).process_utilization is None


async def test_what_is_no_process(whole: Tree) -> None:
    """Only numbers are pids."""
    whole.write(whole.kfd / f"proc/self/vram_{GPU_ID}", "5")
    assert (await whole.gpu()).processes == ()


@pytest.mark.parametrize(("namespace", "told"), [(MACHINE, True), ("pid:[4026532448]", False)])
async def test_pids_are_those_of_the_machine(whole: Tree, namespace: str, told: bool) -> None:
    """KFD does not translate: in another pid namespace its numbers mean somebody else."""
    whole.process(7, GIB, 1)
    own = whole.proc / str(os.getpid()) / "ns"
    own.mkdir(parents=True)
    (own / "pid").symlink_to(namespace)
    (whole.proc / "self").symlink_to(str(os.getpid()))
    gpu = await whole.gpu()
    assert (gpu.processes is not None, gpu.process_utilization is not None) == (told, told)
    assert ("processes" in gpu.withheld) is not told


@pytest.mark.parametrize(("command", "told"), [("kthreadd", True), ("sh", False), (None, False)])
async def test_the_kernels_threads_prove_the_machine(whole: Tree, command: str | None, told: bool) -> None:
    """The link to the namespace needs rights; the kernel's own threads live nowhere else."""
    whole.process(7, GIB, 1)
    (whole.proc / "self").symlink_to("4242")
    if command is not None:
        _write(whole.proc / "2/comm", command)
    assert ((await whole.gpu()).processes is not None) is told


async def test_other_pids_do_not_hide_what_a_partition_uses(tree: Tree) -> None:
    """The sum of memory is right whoever the processes are."""
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
