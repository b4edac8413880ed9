"""Partitioned GPUs: names, sizes and processes of the partitions."""

import shutil

import pytest

from exporter.demo import amd_tree
from exporter.model.readings import Memory
from tests.core.hardware.amd.tree import GIB, GPU_ID, Tree, unreadable


@pytest.mark.parametrize("shift", [0, 28])
async def test_the_eight_partitions_of_an_mi300x(tree: Tree, shift: int) -> None:
    """Kernels tell them apart by the function number of their location, some by its highest bits."""
    tree.partitions(8, shift=shift)
    gpu = await tree.gpu()
    assert (gpu.mig_enabled, gpu.mig_slices, gpu.mig_complete) == (True, 8, True)
    assert (gpu.processes, gpu.process_utilization) == (None, None)
    assert gpu.mig is not None
    assert [part.uuid for part in gpu.mig] == ["0000:19:00.0", *(f"amdgpu_xcp_{n}" for n in range(21, 28))]
    assert [part.render_minor for part in gpu.mig] == list(range(128, 136))
    assert [(part.gi, part.ci) for part in gpu.mig] == [(place, 0) for place in range(8)]
    assert {part.profile for part in gpu.mig} == {"cpx_nps1"}
    assert {(part.compute_slices, part.instance_slices, part.multiprocessors) for part in gpu.mig} == {
        (1, 1, 38)
    }
    assert {part.memory for part in gpu.mig} == {Memory(total=24 * GIB, used=0, free=24 * GIB)}
    assert not any(part.memory_shared for part in gpu.mig)


async def test_a_partition_of_two_has_half_of_the_gpu(tree: Tree) -> None:
    tree.partitions(2, "NPS2")
    gpu = await tree.gpu()
    assert gpu.mig is not None
    assert [(part.uuid, part.profile, part.multiprocessors) for part in gpu.mig] == [
        ("0000:19:00.0", "dpx_nps2", 152),
        ("amdgpu_xcp_21", "dpx_nps2", 152),
    ]
    assert gpu.mig[1].memory == Memory(total=96 * GIB, used=0, free=96 * GIB)


async def test_functions_of_one_device_are_separate_gpus(tree: Tree) -> None:
    """Virtual functions share bus and device."""
    for number, unique in enumerate((0xA, 0xB)):
        event = f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:19:00.{number}"
        tree.card(number, 128 + number, uevent=event, unique_id=f"{unique:016x}")
        tree.node(
            number + 1,
            GPU_ID + number,
            location_id=0x1900 | number,
            drm_render_minor=128 + number,
            unique_id=unique,
        )
    tree.process(7, GIB, 52, GPU_ID + 1)
    first, second = (await tree.read()).gpus
    assert (first.mig_enabled, first.processes) == (False, ())
    assert (second.mig_enabled, second.process_utilization) == (False, {7: 50.0})


async def test_a_gpu_in_spx_mode_is_whole(tree: Tree) -> None:
    tree.partitions(1)
    tree.process(7, GIB, 152)
    gpu = await tree.gpu()
    assert (gpu.mig_enabled, gpu.mig, gpu.mig_slices) == (False, (), None)
    assert [process.pid for process in gpu.processes or ()] == [7]
    assert gpu.process_utilization == {7: 50.0}


async def test_processes_are_attributed_to_their_partition(tree: Tree) -> None:
    """Their share is of the compute units of the whole GPU."""
    tree.partitions(8)
    tree.process(7, 3 * GIB, 38, GPU_ID)
    tree.process(7, 0, 0, GPU_ID + 1)
    tree.process(8, 5 * GIB, 19, GPU_ID + 1)
    tree.process(9, GIB, 0, GPU_ID + 1)
    gpu = await tree.gpu()
    first, second, third = (gpu.mig or ())[:3]
    assert first.process_utilization == {7: 12.5}
    assert second.process_utilization == {8: 6.25, 9: 0.0}
    assert [(process.pid, process.memory) for process in second.processes or ()] == [(8, 5 * GIB), (9, GIB)]
    assert second.memory == Memory(total=24 * GIB, used=6 * GIB, free=18 * GIB)
    assert (third.processes, third.process_utilization) == ((), {})


async def test_activity_by_partition_comes_from_the_metrics_table(tree: Tree) -> None:
    device = tree.partitions(4)
    tree.write(device / "gpu_metrics", amd_tree.table("1.6", {}, [[10, 30], [0, 0], [100, 99], [7, 8]]))
    assert [part.utilization_percent for part in (await tree.gpu()).mig or ()] == [20, 0, 100, 8]


async def test_a_table_of_another_partitioning_is_ignored(tree: Tree) -> None:
    device = tree.partitions(4)
    tree.write(device / "gpu_metrics", amd_tree.table("1.6", {}, [[10]] * 8))
    assert {part.utilization_percent for part in (await tree.gpu()).mig or ()} == {None}


async def test_partitions_without_kfd_are_unknown(tree: Tree) -> None:
    tree.partitions(8)
    shutil.rmtree(tree.kfd)
    gpu = await tree.gpu()
    assert (gpu.mig_enabled, gpu.mig, gpu.mig_complete) == (True, None, False)
    assert (gpu.up, gpu.processes) == (True, None)


@pytest.mark.parametrize("name", ["amdgpu_xcp.{}", "xcp-{}", "amdgpu_partition.{}.auto"])
async def test_a_platform_device_may_have_any_name(tree: Tree, name: str) -> None:
    """Older kernels number them behind a dot. Devices without a render node are others."""
    tree.partitions(8)
    platform = tree.sys / "devices/platform"
    for number in range(21, 28):
        (platform / f"amdgpu_xcp_{number}").rename(platform / name.format(number))
    tree.write(platform / "serial8250/uevent", "DRIVER=serial8250")
    gpu = await tree.gpu()
    assert [part.uuid for part in gpu.mig or ()] == [
        "0000:19:00.0",
        *(name.format(number) for number in range(21, 28)),
    ]
    assert gpu.mig_complete


async def test_a_partition_without_name_is_shown_in_a_list_that_is_not_complete(tree: Tree) -> None:
    """What KFD knows of it stays; whether it has a holder is unknown."""
    tree.partitions(2)
    tree.process(7, GIB, 19, GPU_ID + 1)
    shutil.rmtree(tree.sys / "devices/platform/amdgpu_xcp_21")
    gpu = await tree.gpu()
    first, second = gpu.mig or ()
    assert (first.uuid, second.uuid, second.render_minor) == ("0000:19:00.0", "0000:19:00.0/1", 129)
    assert [process.pid for process in second.processes or ()] == [7]
    assert not gpu.mig_complete


async def test_a_name_that_comes_later_is_read(tree: Tree) -> None:
    tree.partitions(2)
    render = tree.sys / "devices/platform/amdgpu_xcp_21/drm/renderD129"
    render.rmdir()
    source = tree.source()
    assert [part.uuid for part in (await source.read()).gpus[0].mig or ()][1] == "0000:19:00.0/1"
    render.mkdir()
    assert [part.uuid for part in (await source.read()).gpus[0].mig or ()][1] == "amdgpu_xcp_21"


async def test_a_new_partitioning_is_read_when_kfd_counts_up(tree: Tree) -> None:
    tree.partitions(2)
    counter = tree.write(tree.kfd / "topology/generation_id", "4")
    source = tree.source()
    assert len((await source.read()).gpus[0].mig or ()) == 2
    for folder in (tree.kfd / "topology/nodes").iterdir():
        shutil.rmtree(folder)
    assert len((await source.read()).gpus[0].mig or ()) == 2
    tree.write(counter, "5")
    assert (await source.read()).gpus[0].mig is None


async def test_unknown_memory_of_a_process_makes_its_partition_unknown(tree: Tree) -> None:
    tree.partitions(2)
    tree.process(7, GIB, 3, GPU_ID)
    unreadable(tree.kfd / f"proc/8/vram_{GPU_ID + 1}")
    gpu = await tree.gpu()
    first, second = gpu.mig or ()
    assert first.memory == Memory(total=96 * GIB, used=GIB, free=95 * GIB)
    assert (second.memory, second.processes, second.process_utilization) == (None, None, None)
    assert "processes" in gpu.withheld


async def test_memory_beyond_the_partition_is_unknown(tree: Tree) -> None:
    tree.partitions(2)
    tree.process(7, 97 * GIB, 3, GPU_ID)
    assert ((await tree.gpu()).mig or ())[0].memory is None


@pytest.mark.parametrize("heap", ["0", "4"])
async def test_banks_of_other_kinds_are_not_memory(tree: Tree, heap: str) -> None:
    tree.partitions(2)
    tree.write(tree.kfd / "topology/nodes/1/mem_banks/1/properties", f"heap_type {heap}\nsize_in_bytes 65536")
    tree.write(tree.kfd / "topology/nodes/1/mem_banks/2/properties", "heap_type 2\nsize_in_bytes 4096")
    memory = ((await tree.gpu()).mig or ())[0].memory
    assert memory is not None
    assert memory.total == 96 * GIB + 4096


async def test_a_kfd_node_without_location_is_left_out(tree: Tree) -> None:
    tree.partitions(4)
    _remove_line(tree, "location_id")
    names = [part.uuid for part in (await tree.gpu()).mig or ()]
    assert names == ["0000:19:00.0", "amdgpu_xcp_22", "amdgpu_xcp_23"]


async def test_a_kfd_node_without_render_node_has_no_name(tree: Tree) -> None:
    tree.partitions(4)
    _remove_line(tree, "drm_render_minor")
    gpu = await tree.gpu()
    names = [part.uuid for part in gpu.mig or ()]
    assert names == ["0000:19:00.0", "0000:19:00.0/1", "amdgpu_xcp_22", "amdgpu_xcp_23"]
    assert not gpu.mig_complete


def _remove_line(tree: Tree, name: str) -> None:
    """Remove a property of the second partition."""
    path = tree.kfd / "topology/nodes/2/properties"
    lines = path.read_text().splitlines()
    tree.write(path, "\n".join(line for line in lines if not line.startswith(name)))


async def test_partitions_that_a_container_may_not_see_are_left_out(tree: Tree) -> None:
    device = tree.partitions(8)
    tree.process(7, GIB, 38, GPU_ID + 2)
    for number in (1, 2, 4, 5, 6, 7, 8):
        unreadable(tree.kfd / f"topology/nodes/{number}/gpu_id")
    gpu = await tree.gpu()
    (part,) = gpu.mig or ()
    assert (gpu.mig_enabled, gpu.mig_complete, gpu.mig_slices) == (True, False, None)
    assert (part.uuid, part.gi, part.multiprocessors) == ("amdgpu_xcp_22", 2, 38)
    assert [process.pid for process in part.processes or ()] == [7]
    assert part.process_utilization is None
    tree.write(device / "gpu_metrics", amd_tree.table("1.6", {}, [[place] for place in range(8)]))
    gpu = await tree.gpu()
    assert (gpu.mig_slices, [part.utilization_percent for part in gpu.mig or ()]) == (8, [2])
