"""The containers of Volcano's vGPU hold what its scheduler wrote, in the units of its plugin."""

import pytest

from exporter.model import (
    ContainerFile,
    DeviceKey,
    DeviceUse,
    Meter,
    NodeObject,
    OfferedDevice,
    SliceCount,
    SystemFiles,
)
from tests.core.attribution.build import GIB, MIG, UUID, gpu, held, mig, mig_gpu
from tests.core.sharing.build import OTHER_UUID, by, container, numbered, only, pod, pods, resolve, where
from tests.core.sharing.cases import Case

KEY = "volcano.sh/vgpu-ids-new"
NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"
MIB = 1 << 20
GPUS = [gpu(), numbered(1, 1)]


def offered(*uuids, count=10):
    """Return what the plugin offers: slices, and memory and cores one by one."""
    parts = ((NUMBER, ""), (MEMORY, "memory-"), (CORES, "core-"))
    return [
        OfferedDevice(resource, f"{uuid}-{word}{place}")
        for uuid in uuids
        for resource, word in parts
        for place in range(count)
    ]


def ids(name, uuid=UUID, place=4, **more):
    """Return what the kubelet lists of a container: a slice, with memory and cores of any GPU."""
    return (
        held(name, f"{uuid}-{place}", resource=NUMBER, **more)
        + held(name, *(f"{OTHER_UUID}-memory-{each}" for each in range(5)), resource=MEMORY, **more)
        + held(name, f"{OTHER_UUID}-core-{place}", resource=CORES, **more)
    )


def registered(units, uuid=UUID):
    """Return a node whose plugin says that a GPU has so much memory."""
    text = (
        f"{uuid},10,{units},NVIDIA-Tesla T4,true,hami-core:{OTHER_UUID},10,x,NVIDIA-Tesla T4,true,hami-core:"
    )
    return NodeObject(annotations={"volcano.sh/node-vgpu-register": text})


CASE = Case(
    name="volcano-vgpu",
    isolation="soft",
    reason="volcano_vgpu_annotation",
    annotate=lambda text: {KEY: text},
    here=f"{OTHER_UUID},NVIDIA,3000,30:",
    gone="GPU-gone,NVIDIA,3000,30:",
    entitled=(3000 * MIB, 0.3),
    amounts={NUMBER: 1},
    ids=ids,  # with memory and cores, which belong to no GPU
    offered=tuple(offered(UUID, OTHER_UUID)),
    slices=SliceCount(NUMBER, 10, 1),
)


def test_a_renamed_resource_is_known_by_the_annotation():
    annotated = pods(pod("train", {KEY: f"{UUID},NVIDIA,3000,0:"}))
    holding = only(resolve(GPUS, held("train", f"{UUID}-0", resource="acme.io/gpu"), pods=annotated))
    assert (holding.sharing, holding.resource) == ("volcano-vgpu", "acme.io/gpu")
    assert (holding.memory_entitled, holding.compute_entitled) == (3000 * MIB, None)


def test_a_bad_device_costs_only_itself(objections):
    """As Volcano reads: the negative one is left out, and its neighbour is not."""
    # volcano-sh/volcano vgpu/device_info_test.go
    annotated = pods(pod("train", {KEY: f"{UUID},NVIDIA,-5,30:{OTHER_UUID},NVIDIA,2048,10:"}))
    holding = only(resolve(GPUS, ids("train"), offered(UUID, OTHER_UUID), objections, pods=annotated))
    assert (holding.device, holding.memory_entitled) == (DeviceKey(OTHER_UUID), 2048 * MIB)
    assert not objections.counts


def test_only_containers_with_requests_have_a_segment():
    """The plugin finds the folder of a cache by the place of the segment, which is another container's."""
    annotated = pod("train", {KEY: f"{UUID},NVIDIA,500,0:"}, containers=("proxy", "main"))
    use = DeviceUse(device=UUID, memory_used=7 * MIB, compute_used=0.5)
    file = ContainerFile(pod_uid="uid-train", container="proxy", devices=(use,))
    files = {"hami": SystemFiles(containers=(file,))}
    holding = only(resolve(GPUS, ids("train"), offered(UUID), pods=pods(annotated), files=files))
    assert holding.holder == container("train")
    assert holding.meter == Meter(source="hami", memory=7 * MIB, compute=0.5)


def test_several_containers_have_a_segment_each():
    annotation = {KEY: f"{UUID},NVIDIA,500,10:;{OTHER_UUID},NVIDIA,600,20:"}
    annotated = pod("train", annotation, containers=("first", "proxy", "last"), limits={"last": {NUMBER: 1}})
    allocated = ids("train", container="first") + ids("train", place=5, container="last")
    holdings = resolve(GPUS, allocated, offered(UUID, OTHER_UUID), pods=pods(annotated))
    by_holder = by(holdings, "holder.container", "device.uuid", "memory_entitled")
    assert by_holder == {"first": (UUID, 500 * MIB), "last": (OTHER_UUID, 600 * MIB)}


@pytest.mark.parametrize(
    ("units", "memory"),
    [
        # The GPU has 16384 MiB.
        pytest.param("16384", 300 * MIB, id="a unit of one MiB"),
        pytest.param("1638", 3000 * MIB, id="a unit of ten MiB"),
        pytest.param("16", None, id="a unit of a thousand MiB, or a bit more"),
        pytest.param("0", 300 * MIB, id="no units"),
        pytest.param("-1", 300 * MIB, id="no number"),
        pytest.param("9" * 5000, 300 * MIB, id="a number without end"),
        pytest.param("99999", None, id="more units than MiB"),
    ],
)
def test_memory_may_be_counted_in_larger_units(units, memory):
    annotated = pods(pod("train", {KEY: f"{UUID},NVIDIA,300,0:"}))
    holding = only(resolve(GPUS, ids("train"), offered(UUID), pods=annotated, node=registered(units)))
    assert holding.memory_entitled == memory


def test_a_register_without_sizes_is_counted(objections):
    annotated = pods(pod("train", {KEY: f"{UUID},NVIDIA,300,0:"}))
    for _ in range(2):
        resolve(GPUS, ids("train"), offered(UUID), objections, pods=annotated, node=registered("many"))
    assert objections.counts == {"volcano_vgpu_node": 1}


def test_a_gpu_without_readings_counts_in_mebibytes():
    """Where the size of the GPU is not known, the plugin's default is taken."""
    annotated = pods(pod("train", {KEY: f"{UUID},NVIDIA,300,0:"}))
    holding = only(resolve(gpu(memory=None), ids("train"), pods=annotated, node=registered("1638")))
    assert holding.memory_entitled == 300 * MIB


def test_a_mig_device_is_held_whole():
    """In MIG mode the bracket means a MIG device: the only one there is."""
    annotated = pods(pod("train", {KEY: f"{UUID}[group2-0],NVIDIA,4864,0:"}))
    holdings = resolve([mig_gpu([mig()])], ids("train"), pods=annotated)
    assert only(holdings).device == DeviceKey(UUID, MIG)
    assert (only(holdings).memory_entitled, only(holdings).isolation) == (5 * GIB, "hard")


def test_without_annotations_ids_are_the_next_best():
    holdings = resolve(GPUS, ids("train"), offered(UUID, OTHER_UUID))
    holding = only(holdings)
    assert (holding.device, holding.resource, holding.memory_entitled) == (DeviceKey(UUID), NUMBER, None)
    assert holding.sharing == "volcano-vgpu"
    assert set(holdings.blind) == {"volcano-vgpu"}
    assert not holdings.unresolved


def test_both_systems_may_be_on_a_node():
    annotated = pods(
        pod("of-volcano", {KEY: f"{UUID},NVIDIA,300,0:"}),
        pod("of-hami", {"hami.io/vgpu-devices-allocated": f"{UUID},NVIDIA,400,0:;"}),
    )
    allocated = ids("of-volcano") + held("of-hami", f"{UUID}-1")
    holdings = resolve(GPUS, allocated, offered(UUID), pods=annotated)
    assert by(holdings, "holder.pod", "sharing") == {"of-volcano": "volcano-vgpu", "of-hami": "hami"}
    assert where(holdings) == {"of-volcano": [DeviceKey(UUID)], "of-hami": [DeviceKey(UUID)]}
