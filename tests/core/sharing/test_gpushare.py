"""gpushare and its rebrands: whose units are of which GPU, by the annotations of pods."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import DeviceKey, GpuIdentity, NodeObject, OfferedDevice, SliceCount, SystemFiles
from exporter.sharing import gpushare
from tests.core.attribution.build import GIB, UUID, gpu, held, memory, mig, mig_gpu
from tests.core.sharing.build import OTHER_UUID, by, numbered, only, pod, pods, resolve, rows
from tests.core.sharing.cases import Case

MEMORY, RAINBOND = "aliyun.com/gpu-mem", "rainbond.com/gpu-mem"
CORES = "aliyun.com/gpu-core.percentage"
ALLOCATION = "scheduler.framework.gpushare.allocation"
MIB = 1 << 20
# Minors that are not the indices: GPU 0 is /dev/nvidia1.
NODE = [numbered(0, 1, UUID), numbered(1, 0)]


def units(name, count, uuid=UUID, resource=MEMORY, main="main"):
    """Return what a container holds: units whose ids name a GPU, whichever it was given."""
    return held(name, *(f"{uuid}-_-{n}" for n in range(count)), container=main, resource=resource)


def offers(count, *uuids, resource=MEMORY):
    """Return what the plugin offers: ``count`` units of each GPU."""
    return [OfferedDevice(resource, f"{uuid}-_-{n}") for uuid in uuids for n in range(count)]


def indexed(index="0", assigned="true", dev="16", prefix="ALIYUN_COM"):
    """Return the older annotations."""
    values = {"IDX": index, "ASSIGNED": assigned, "DEV": dev}
    return {f"{prefix}_GPU_MEM_{key}": text for key, text in values.items() if text is not None}


def allocated(shares, assigned="true", **more):
    """Return the newer annotations."""
    return {ALLOCATION: json.dumps(shares), "scheduler.framework.gpushare.assigned": assigned, **more}


CASE = Case(
    name="gpushare",
    isolation="none",
    reason="gpushare_annotation",
    # The ids name the driver's first GPU, and the annotation /dev/nvidia0, which is the second.
    annotate=indexed,
    here="0",
    gone="5",
    entitled=(3 * GIB, None),
    amounts={MEMORY: 3},
    ids=lambda name: units(name, 3),
    offered=tuple(offers(16, UUID, OTHER_UUID)),
    slices=SliceCount(MEMORY, 16, 3),
    malformed=("", "x", "1_0", " 1", "+1", "-2", "01", "1,0", "٣", "9" * 5000, "0x1"),
    unconfirmed=(
        {},
        indexed("0", assigned="false"),
        indexed("0", assigned=None),
        indexed("-1"),  # no GPU had room
        allocated({"0": {"1": 3}}, assigned="false"),
        allocated({"7": {"1": 3}}),  # of another container
    ),
)


def node(annotations, *, gpus=None, resource=MEMORY, offered=None, objections=None):
    """Return the holdings of a node on which pod a holds three units."""
    return resolve(
        gpus or NODE,
        units("a", 3, resource=resource),
        offered=offers(16, UUID, OTHER_UUID, resource=resource) if offered is None else offered,
        pods=pods(pod("a", annotations)),
        objections=objections,
    )


def test_an_unconfirmed_pod_may_be_on_a_gpu_that_left_the_offer():
    """Kubernetes offers healthy devices only, and the holders of the others stay."""
    annotated = pods(pod("a", indexed("0")), pod("b"))
    found = resolve(NODE, units("a", 3) + units("b", 5), offers(16, UUID), pods=annotated)
    gone = DeviceKey(OTHER_UUID)
    assert by(found, "holder.pod", "device") == {"a": gone}
    assert gone in found.unplaced
    assert [count.allocated for count in found.devices[gone].slices] == [None]


def test_the_only_gpu_needs_no_confirmation():
    """Of a pod with several containers the plugin confirms nothing, and gives out the only GPU."""
    annotated = pods(pod("a", indexed("0", assigned="false"), containers=("x", "y")))
    allocated = units("a", 3, main="x") + units("a", 5, main="y")
    holdings = resolve([gpu()], allocated, offers(16, UUID), pods=annotated)
    assert by(holdings, "holder.container", "memory_entitled") == {"x": 3 * GIB, "y": 5 * GIB}
    assert holdings.unresolved == {}
    elsewhere = resolve(NODE, allocated, offers(16, UUID, OTHER_UUID), pods=annotated)
    assert (elsewhere.holdings, set(elsewhere.unresolved)) == ((), {MEMORY})


@pytest.mark.parametrize(
    ("dev", "total", "unit"),
    [
        ("15", 15360 * MIB, GIB),
        ("22", 23028 * MIB, GIB),
        ("140", 143771 * MIB, GIB),
        ("15360", 15360 * MIB, MIB),
        ("80", 15360 * MIB, GIB),
        ("15360", 81559 * MIB, MIB),
    ],
    ids=["T4", "A10", "H200", "T4 by the MiB", "T4 behind an A100", "A100 behind a T4, by the MiB"],
)
def test_a_unit_is_the_size_nearest_to_the_memory_of_the_gpu(dev: str, total: int, unit: int):
    """gpushare-device-plugin pkg/gpu/nvidia/nvidia.go counts every GPU as the first, in GiB or MiB."""
    gpus = [numbered(0, 0, UUID, memory=memory(0, total))]
    assert only(node(indexed("0", dev=dev), gpus=gpus)).memory_entitled == 3 * unit


@pytest.mark.parametrize(("units_of_gpu", "total"), [(0, GIB), (16, None), (16, 0), (500_000_000, GIB)])
def test_an_unknown_unit_is_no_entitlement(units_of_gpu: int, total: int | None):
    assert gpushare.unit_bytes(units_of_gpu, total) is None


def test_without_the_size_of_a_gpu_the_unit_follows_from_the_offered_units():
    assert only(node(indexed("0", dev=None))).memory_entitled == 3 * GIB
    assert only(node(indexed("0", dev=None), offered=())).memory_entitled is None
    assert only(node(indexed("0", dev="x"))).memory_entitled == 3 * GIB


def test_without_the_memory_of_the_gpu_nothing_is_entitled():
    gpus = [numbered(0, 1, UUID), numbered(1, 0, memory=None)]
    assert only(node(indexed("0"), gpus=gpus)).memory_entitled is None


@pytest.mark.parametrize(
    ("resource", "prefix"),
    [
        ("rainbond.com/gpu-mem", "RAINBOND_COM"),
        ("cerit.io/gpu-mem", "CERIT_IO"),
        ("gpu-share.com/gpu-mem", "GPU_SHARE_COM"),
        ("ucloud.cn/gpu-mem", "UCLOUD_CN"),
        ("shared-gpu/gpu-mem", "SHARED"),
    ],
)
def test_forks_are_known_by_the_shape_of_their_annotations(resource: str, prefix: str):
    holding = only(node(indexed("0", prefix=prefix), resource=resource))
    assert (holding.device.uuid, holding.resource, holding.memory_entitled) == (OTHER_UUID, resource, 3 * GIB)


def test_of_two_annotations_that_of_the_domain_of_the_resource_counts():
    both = indexed("0", prefix="RAINBOND_COM") | indexed("1")
    assert only(node(both, resource=RAINBOND)).device.uuid == OTHER_UUID
    assert only(node(both)).device.uuid == UUID
    holdings = node(both, resource="cerit.io/gpu-mem")
    assert (holdings.holdings, holdings.unresolved) == ((), {"cerit.io/gpu-mem": 3})


def test_containers_of_a_pod_have_the_units_they_hold():
    holdings = resolve(
        NODE,
        units("a", 2, main="x") + units("a", 1, OTHER_UUID, main="y"),
        pods=pods(pod("a", indexed("1"), containers=("x", "y"), init=("setup",))),
    ).holdings
    assert [(holding.holder.container, holding.slices, holding.memory_entitled) for holding in holdings] == [
        ("x", 2, 2 * GIB),
        ("y", 1, GIB),
    ]


def test_the_newer_annotation_has_several_gpus_of_a_container():
    """kubeflow/arena and ACK's scheduler write container, minor, units; init containers do not count."""
    annotations = allocated({"0": {"0": 1, "1": 2}, "1": {"0": 4}, "2": {"1": 0}})
    holdings = resolve(
        NODE,
        units("a", 3, main="x") + units("a", 4, main="y") + units("a", 1, main="z"),
        offers(16, UUID, OTHER_UUID),
        pods=pods(pod("a", annotations, containers=("x", "y", "z"), init=("setup",))),
    )
    assert rows(holdings, "device.uuid", "holder.container", "slices") == [
        (UUID, "x", 2),
        (OTHER_UUID, "x", 1),
        (OTHER_UUID, "y", 4),
    ]
    assert rows(holdings, "memory_entitled") == [2 * GIB, GIB, 4 * GIB]
    assert holdings.unresolved == {MEMORY: 1}


def test_the_newer_annotation_outweighs_the_older():
    """cmd/inspect/nodeinfo.go asks for the index only where there is no allocation."""
    assert only(node(allocated({"0": {"1": 3}}) | indexed("0"))).device.uuid == UUID
    assert only(node({ALLOCATION: ""} | indexed("0"))).device.uuid == OTHER_UUID


def test_each_gpu_may_have_its_own_number_of_units():
    more = {"gpushare.alibabacloud.com/device-resource": '{"1": 16384}'}
    assert only(node(allocated({"0": {"1": 3}}, **more))).memory_entitled == 3 * MIB


def test_the_third_form_is_read_like_the_second():
    """It has an annotation that confirms it, too."""
    annotations = {"gpushare.alibabacloud.com/gpumemory": '{"0":{"1":3}}'}
    assert node(annotations).unresolved == {MEMORY: 3}
    annotations["gpushare.alibabacloud.com/assigned"] = "true"
    assert only(node(annotations)).device.uuid == UUID


def test_percents_of_compute_are_shares_of_the_gpu():
    annotations = allocated(
        {"0": {"1": 3}}, **{"gpushare.alibabacloud.com/core-percentage": '{"0":{"1":30}}'}
    )
    ids = units("a", 3) + held("a", "core-1", "core-2", resource=CORES)
    holdings = resolve(NODE, ids, offers(16, UUID, OTHER_UUID), pods=pods(pod("a", annotations)))
    assert (only(holdings).compute_entitled, holdings.unresolved) == (0.3, {})
    annotations["gpushare.alibabacloud.com/core-percentage"] = '{"0":{"0":30}}'
    assert only(node(annotations)).compute_entitled is None


def test_a_gpu_that_is_not_here_is_unresolved():
    assert node(indexed("5")).unresolved == {MEMORY: 3}
    cut = mig_gpu([mig()], identity=GpuIdentity(uuid="GPU-cut", index=2, minor=2, model="A100"))
    assert node(indexed("2"), gpus=[*NODE, cut]).unresolved == {MEMORY: 3}


def test_an_allocation_of_more_than_the_kubelet_gave_is_objected_to(objections):
    holdings = node(allocated({"0": {"7": 2_000_000_000}}), objections=objections)
    assert (holdings.holdings, holdings.unresolved) == ((), {MEMORY: 3})
    assert objections.counts["gpushare_annotation"] == 1


@pytest.mark.parametrize("known", [pods(pod("a")), None], ids=["no annotation", "no pods"])
def test_the_only_gpu_of_a_node_needs_no_annotation(known):
    """The plugin does not ask for one there (allocate.go)."""
    holdings = resolve(gpu(), units("a", 3), offers(16, UUID), pods=known)
    assert (only(holdings).device.uuid, only(holdings).memory_entitled) == (UUID, 3 * GIB)
    assert holdings.blind == {}


def test_a_gpu_is_not_the_only_one_if_another_is_offered_or_present():
    assert resolve(gpu(), units("a", 1), offers(16, UUID, "GPU-lost")).unresolved == {MEMORY: 1}
    assert resolve(NODE, units("a", 1), offers(16, UUID)).unresolved == {MEMORY: 1}
    assert resolve(mig_gpu([mig()]), units("a", 1), offers(16, UUID)).unresolved == {MEMORY: 1}


def test_the_units_of_unlike_gpus_are_unknown():
    large = numbered(1, 0, memory=memory(0, 80 * GIB))
    identity = GpuIdentity(uuid=OTHER_UUID, index=1, minor=0, model="A100")
    holdings = node(indexed("0"), gpus=[NODE[0], type(large)(identity=identity, memory=large.memory)])
    assert [each.slices[0].offered for each in holdings.devices.values()] == [None, None]
    assert only(holdings).memory_entitled == 3 * GIB


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "1", "null", "[" * 20_000, '{"0":' * 20_000, f'{{"0":{{"1":{"9" * 5000}}}}}'),
        " " * 70_000 + "{}",
    ],
    ids=["cut", "a list", "a number", "null", "deep", "deeper", "long number", "long"],
)
def test_an_allocation_that_is_not_an_object_costs_only_its_pod(text: str, objections):
    annotations = allocated({}) | {ALLOCATION: text}
    known = pods(pod("a", annotations), pod("b", indexed("1")))
    holdings = resolve(NODE, units("a", 2) + units("b", 1, OTHER_UUID), pods=known, objections=objections)
    assert rows(holdings, "holder.pod") == ["b"]
    assert (holdings.unresolved, objections.counts) == ({MEMORY: 2}, {"gpushare_annotation": 1})


@pytest.mark.parametrize(
    "entry",
    [
        *("1", "[]", '{"1": "3"}', '{"1": 1.5}', '{"1": NaN}', '{"1": true}', '{"1": -1}', '{"x": 1}'),
        '{"1": 1e99}',
    ],
)
def test_a_bad_entry_of_an_allocation_costs_only_its_container(entry: str):
    parsed = gpushare.parse_units(f'{{"0": {entry}, "1": {{"0": 4}}}}')
    assert parsed.shares == {1: {0: 4}}
    assert len(parsed.faults) == 1


@settings(max_examples=40)  # each resolves the node six times
@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    ).map(json.dumps)
)
def test_any_annotation_leaves_units_held_or_unresolved(text: str):
    keys = [
        ALLOCATION,
        "ALIYUN_COM_GPU_MEM_IDX",
        "ALIYUN_COM_GPU_MEM_DEV",
        "gpushare.alibabacloud.com/core-percentage",
        "gpushare.alibabacloud.com/device-resource",
    ]
    good = indexed("0") | allocated({"0": {"1": 3}})
    for key in keys:
        holdings = node(good | {key: text})
        assert sum(each.slices for each in holdings.holdings) + sum(holdings.unresolved.values()) > 0
    holdings = node(dict.fromkeys(keys, text))
    assert (holdings.holdings, holdings.unresolved) == ((), {MEMORY: 3})


@pytest.mark.parametrize("device_id", [f"{UUID}-_-3", "some-other-spelling"])
def test_unplaced_units_leave_the_holders_of_every_gpu_unknown(device_id: str):
    holdings = resolve([gpu(), numbered(1, 1)], held("a", device_id, resource="aliyun.com/gpu-mem"))
    assert holdings.unresolved == {"aliyun.com/gpu-mem": 1}
    assert {key.uuid for key in holdings.unplaced} == {UUID, OTHER_UUID}


OPEN, ACK = indexed("0"), allocated({"0": {"0": 3}})


@pytest.mark.parametrize(
    ("annotations", "mode", "isolation"),
    [
        (ACK, "mps", "soft"),
        (OPEN, "mps", "soft"),
        (ACK, "share", "none"),
        (ACK, "topology", "none"),
        (ACK, "", "none"),
        (OPEN, "", "none"),
        (ACK, "cgpu", ""),
        (ACK, "core_mem", ""),
        (ACK, "something", ""),
        (ACK, None, ""),
        (OPEN, None, "none"),
    ],
)
def test_the_mode_of_the_node_decides_on_the_isolation(annotations, mode, isolation):
    """Without the node's object the mode of a node of ACK is unknown; the plugin by itself has none."""
    labels = {"ack.node.gpu.schedule": mode} if mode else {}
    labelled = None if mode is None else NodeObject(labels=labels)
    found = resolve(NODE, units("a", 3), pods=pods(pod("a", annotations)), node=labelled)
    assert only(found).isolation == isolation


def test_mps_on_the_device_limits_memory():
    node = [replace(each, compute_mode="exclusive_process") for each in NODE]
    assert only(resolve(node, units("a", 3), pods=pods(pod("a", ACK)))).isolation == "soft"


def test_a_container_without_an_instance_in_the_module_is_not_limited_by_it():
    labelled = NodeObject(labels={"ack.node.gpu.schedule": "cgpu"})
    files = {"cgpu": SystemFiles(names={"version": "1.5"})}
    found = resolve(NODE, units("a", 3), pods=pods(pod("a", ACK)), node=labelled, files=files)
    assert only(found).isolation == "none"
