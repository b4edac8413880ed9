"""Koordinator: who has which part of which GPU, by the annotations of its scheduler."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import (
    Allocation,
    ContainerRef,
    ContainerSpec,
    DeviceKey,
    DeviceUse,
    Meter,
    NodeObject,
    OfferedDevice,
    SliceCount,
)
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts, Objections
from exporter.sharing.koordinator import AllocatedGpu, GpuAmount, asking, parse_allocated, split
from tests.core.attribution.build import (
    GIB,
    MIG,
    UUID,
    attribute,
    gpu,
    held,
    mig,
    mig_gpu,
    process,
    whole,
    workloads,
)
from tests.core.attribution.build import row as row_of
from tests.core.sharing.build import (
    OTHER_UUID,
    allocations,
    by,
    container,
    numbered,
    only,
    pod,
    pods,
    resolve,
    rows,
    where,
)
from tests.core.sharing.cases import JSON_VALUES, Case, cached

KEY, OTHER = DeviceKey(UUID), DeviceKey(OTHER_UUID)
ANNOTATION = "scheduling.koordinator.sh/device-allocated"
# koordinator-sh/koordinator pkg/koordlet/runtimehooks/hooks/gpu/gpu_test.go
SHARED = (
    '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"16Gi",'
    '"koordinator.sh/gpu-memory-ratio":"50"}}]}'
)
HAMI_CORE = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{name}" for name in ("core", "memory", "memory-ratio"))
HALF = {CORE: "50", RATIO: "50"}


def given_gpus(*gpus) -> str:
    """Return an annotation: pairs of a minor and its resources."""
    return json.dumps({"gpu": [{"minor": minor, "resources": resources} for minor, resources in gpus]})


def on(name, *gpus, text=None, **more):
    """Return a pod that was given these parts of GPUs."""
    return pod(name, {ANNOTATION: given_gpus(*gpus) if text is None else text}, **more)


def seen(*found, gpus=None, allocated=(), offered=(), objections=None, **facts):
    """Return the holdings of a node with one GPU of 16 GiB, which is minor 0, and these pods."""
    return resolve(gpus or gpu(), allocated, offered, objections, pods=pods(*found), **facts)


MINORS = ('"0"', "true", "-1", "0.0", "99999999999", "9" * 5000, '0,"id":7', '0,"resources":["x"]')
CORES = ("-50", "NaN", "5_0", 0.5, None, True, [50])
MALFORMED = (
    "incorrect-device-allocation",  # apis/extension/device_share_test.go
    *("[]", "null", SHARED[:-1], SHARED + " " * 70000, "[" * 20000, '{"gpu":' * 5000),
    *('{"gpu":{}}', '{"gpu":["x"]}', '{"gpu":[null]}', '{"gpu":[{}]}'),
    *(f'{{"gpu":[{{"minor":{minor}}}]}}' for minor in MINORS),
    *(given_gpus((0, {CORE: value})) for value in CORES),
    *(given_gpus((0, {MEMORY: value})) for value in ("1e99", "9" * 5000, 1 << 70)),
    given_gpus((0, {RATIO: float("nan")})),
)
CASE = Case(
    name="koordinator",
    isolation="none",
    reason="koordinator_annotation",
    annotate=lambda text: {ANNOTATION: text},
    here=given_gpus((0, HALF)),
    gone=given_gpus((5, HALF)),
    entitled=(8 * GIB, 0.5),
    slices=SliceCount("koordinator.sh/gpu", None, 1),
    amounts={"koordinator.sh/gpu": 1},
    by_kubelet=False,
    malformed=MALFORMED,
    keeps_ids=False,
    blind=False,
)


def test_the_label_selects_the_library_of_hami():
    holdings = seen(on("a", (0, HALF), labels=HAMI_CORE), on("b", (0, HALF)))
    assert by(holdings, "holder.pod", "isolation") == {"a": "soft", "b": "none"}
    assert set(rows(holdings, "sharing")) == {"koordinator"}


@pytest.mark.parametrize(
    ("amounts", "isolation"),
    [
        ({CORE: "100", RATIO: "100"}, "none"),
        ({CORE: "50", RATIO: "100"}, "none"),
        ({CORE: "100", RATIO: "99"}, "soft"),
    ],
)
def test_pods_with_all_the_memory_do_not_have_the_library(amounts, isolation):
    """pkg/koordlet/runtimehooks/hooks/gpu/gpu.go puts it into pods with less than 100 percent."""
    holding = only(seen(on("a", (0, amounts), labels=HAMI_CORE)))
    assert (holding.sharing, holding.isolation, holding.compute_entitled) == (
        "koordinator",
        isolation,
        int(amounts[CORE]) / 100,
    )


def test_a_minor_is_not_an_index():
    gpus = [numbered(0, 1), gpu(identity=numbered(1, 0, UUID).identity)]
    assert where(seen(on("a", (0, HALF)), on("b", (1, HALF)), gpus=gpus)) == {"a": [KEY], "b": [OTHER]}


def test_a_uuid_outweighs_the_minor():
    by_uuid = json.dumps({"gpu": [{"minor": 7, "id": UUID}]})
    by_bus = '{"gpu":[{"minor":0,"id":"0000:08.00.0"}]}'  # apis/extension/device_share_test.go
    assert where(seen(on("a", text=by_uuid), on("b", text=by_bus))) == {"a": [KEY], "b": [KEY]}


def test_several_gpus_are_held_each():
    """pkg/koordlet/runtimehooks/hooks/gpu/gpu_test.go: two minors; of no more is known than that."""
    two = on("a", text='{"gpu": [{"minor": 0},{"minor": 1}]}')
    holdings = seen(two, gpus=[gpu(), numbered(1, 1)])
    assert where(holdings) == {"a": [KEY, OTHER]}
    assert set(rows(holdings, "memory_entitled", "compute_entitled")) == {(None, None)}


def test_a_pod_with_other_devices_has_no_gpu():
    holdings = seen(on("a", text='{"fpga": [{"minor": 0},{"minor": 1}]}'), pod("b"))
    assert (holdings.holdings, holdings.unresolved) == ((), {})


def test_a_whole_gpu_is_its_pods_alone():
    all_of_it = {CORE: "100", MEMORY: "16Gi", RATIO: "100"}
    assert seen(on("a", (0, all_of_it))).devices[KEY].exclusive
    assert not seen(on("a", (0, all_of_it)), on("b", (0, HALF))).devices[KEY].exclusive
    assert not seen(on("a", (0, HALF))).devices[KEY].exclusive


def test_a_ratio_is_one_of_the_gpus_memory():
    assert only(seen(on("a", (0, {RATIO: "25"})))).memory_entitled == 4 * GIB
    assert only(seen(on("a", (0, {RATIO: "25"})), gpus=gpu(memory=None))).memory_entitled is None


def test_missing_cores_are_unknown():
    assert only(seen(on("a", (0, {MEMORY: "4Gi"})))).compute_entitled is None
    assert only(seen(on("a", (0, {MEMORY: "4Gi", CORE: "0"})))).compute_entitled is None


def test_a_gpu_that_is_not_here_is_unresolved():
    assert seen(on("a", (5, HALF))).unresolved == {"koordinator.sh/gpu": 1}
    assert seen(on("a", (0, HALF)), gpus=mig_gpu([mig()])).unresolved == {"koordinator.sh/gpu": 1}


def test_the_minor_of_an_npu_is_not_that_of_a_gpu():
    """Koordinator numbers the devices of every vendor; a label of the node names the vendor."""
    node = NodeObject(labels={"node.koordinator.sh/gpu-vendor": "huawei"})
    assert seen(on("a", (0, HALF)), node=node).holdings == ()
    ours = NodeObject(labels={"node.koordinator.sh/gpu-vendor": "nvidia"})
    assert where(seen(on("a", (0, HALF)), node=ours)) == {"a": [KEY]}


def test_ids_of_the_kubelet_for_an_annotated_pod_do_not_count_again():
    """Koordinator's proxy of pod-resources lists its GPUs in the first container."""
    annotated = [on("a", (0, HALF), containers=("main", "log")), pod("b")]
    gpus, allocated = [gpu(), numbered(1, 1)], [*held("a", UUID), *held("b", OTHER_UUID)]
    holdings = seen(*annotated, gpus=gpus, allocated=allocated, offered=[*whole(), *whole(OTHER_UUID)])
    assert by(holdings, "holder.pod", "sharing") == {"a": "koordinator", "b": "exclusive"}
    assert len(holdings.holdings) == 2


ALL_OF_IT = {CORE: "100", MEMORY: "16Gi", RATIO: "100"}
TWO = [gpu(), numbered(1, 1)]
BOTH = [*whole(), *whole(OTHER_UUID)]


def ids_of(name, *devices, container="main") -> list[Allocation]:
    """Return what the kubelet gave a container."""
    return [Allocation(ContainerRef("ml", name, container), "nvidia.com/gpu", each) for each in devices]


def held_by(holdings) -> set[tuple[str, DeviceKey, str]]:
    """Return who holds what, and by whom it is shared."""
    return set(rows(holdings, "holder.container", "device", "sharing"))


THIRD = "GPU-00000000-0000-0000-0000-0000000000aa"
TWO_ASK = {"x": {"nvidia.com/gpu": 1}, "y": {"nvidia.com/gpu": 1}}
# Annotated GPUs by minor, what else the pod has, ids of the kubelet by container; who holds what, problems.
PLUGIN = {
    "another GPU": ([1], {}, {"main": [UUID]}, {("main", UUID, "exclusive")}, 1),
    "another GPU, with the library": (
        [1],
        {"labels": HAMI_CORE},
        {"main": [UUID]},
        {("main", UUID, "exclusive")},
        1,
    ),
    "as planned, by minor": ([0], {}, {"main": [UUID]}, {("main", UUID, "koordinator")}, 0),
    "as planned, by UUID": (
        json.dumps({"gpu": [{"minor": 7, "id": UUID}]}),
        {},
        {"main": [UUID]},
        {("main", UUID, "koordinator")},
        0,
    ),
    "one of two is another": (
        [0, 1],
        {},
        {"main": [UUID, THIRD]},
        {("main", UUID, "exclusive"), ("main", THIRD, "exclusive")},
        1,
    ),
    "one of two is unknown here": (
        [0, 5],
        {},
        {"main": [UUID, OTHER_UUID]},
        {("main", UUID, "exclusive"), ("main", OTHER_UUID, "exclusive")},
        1,
    ),
    # Koordinator's proxy of pod-resources lists the annotated GPUs in the first container.
    "one of two containers has another": (
        [0, 1],
        {"containers": ("log", "x", "y"), "limits": TWO_ASK},
        {"log": [UUID, OTHER_UUID], "x": [UUID], "y": [THIRD]},
        {("x", UUID, "exclusive"), ("y", THIRD, "exclusive")},
        1,
    ),
    "two containers as planned": (
        [0, 1],
        {"containers": ("x", "y"), "limits": TWO_ASK},
        {"x": [UUID], "y": [OTHER_UUID]},
        {("", UUID, "koordinator"), ("", OTHER_UUID, "koordinator")},
        0,
    ),
    "two containers, limits unknown": (
        [1],
        {"containers": ("x", "y"), "limits": {}},
        {"x": [OTHER_UUID], "y": [UUID]},
        {("x", OTHER_UUID, "exclusive"), ("y", UUID, "exclusive")},
        1,
    ),
    # No plugin knows Koordinator's resources; a container that has a GPU of one has it too.
    "a part next to a whole GPU": (
        given_gpus((0, HALF)),
        {"containers": ("x", "y"), "limits": {"x": {CORE: 50, RATIO: 50}, "y": {"nvidia.com/gpu": 1}}},
        {"x": [UUID], "y": [OTHER_UUID]},
        {("", UUID, "koordinator"), ("y", OTHER_UUID, "exclusive")},
        1,
    ),
    # Koordinator's proxy lists ids as they are annotated.
    **{
        f"an unknown id {device}": (
            [0],
            {"limits": {}},
            {"main": [device]},
            {("main", UUID, "koordinator")},
            0,
        )
        for device in ("GPU-of-another-node", "0000:08:00.0", "x")
    },
}


@pytest.mark.parametrize("case", PLUGIN.values(), ids=PLUGIN)
def test_ids_of_a_plugin_outweigh_the_annotation_if_they_contradict_it(case, objections):
    """Without koordlet's hook NVIDIA's plugin chooses the GPUs of a pod that the scheduler has annotated."""
    planned, more, ids, held_gpus, problems = case
    text = planned if isinstance(planned, str) else given_gpus(*((minor, ALL_OF_IT) for minor in planned))
    annotated = on("a", text=text, **({"limits": {"main": {"nvidia.com/gpu": 2}}} | more))
    allocated = [each for name, devices in ids.items() for each in ids_of("a", *devices, container=name)]
    gpus, offered = [*TWO, numbered(2, 2, THIRD)], [*BOTH, *whole(THIRD)]
    holdings = seen(annotated, gpus=gpus, allocated=allocated, offered=offered, objections=objections)
    assert set(rows(holdings, "holder.container", "device.uuid", "sharing")) == held_gpus
    assert (holdings.unresolved, objections.counts.total()) == ({}, problems)


def test_a_replica_of_another_gpu_is_another_gpu():
    annotated = on("a", (1, ALL_OF_IT), limits={"main": {"nvidia.com/gpu": 1}})
    replicas = [OfferedDevice("nvidia.com/gpu", f"{UUID}::{place}") for place in range(4)]
    holdings = seen(annotated, gpus=TWO, allocated=ids_of("a", f"{UUID}::2"), offered=replicas)
    assert (only(holdings).device, only(holdings).compute_entitled) == (KEY, 0.25)


def test_a_mig_device_of_another_gpu_is_another_gpu():
    """With the strategy single its resource is that of whole GPUs."""
    gpus = [mig_gpu([mig()]), numbered(1, 1)]
    annotated = on("a", (1, ALL_OF_IT), limits={"main": {"nvidia.com/gpu": 1}})
    holdings = seen(annotated, gpus=gpus, allocated=ids_of("a", MIG), offered=whole(MIG))
    assert held_by(holdings) == {("main", DeviceKey(UUID, MIG), "mig")}
    same, objections = on("a", (0, ALL_OF_IT)), Objections()
    holdings = seen(same, gpus=gpus, allocated=ids_of("a", MIG), offered=whole(MIG), objections=objections)
    assert held_by(holdings) == {("main", DeviceKey(UUID, MIG), "mig")}
    assert not objections.counts


def test_a_lost_gpu_without_its_minor_may_be_the_annotated_one():
    """Nothing contradicts the annotation."""
    lost, objections = numbered(1, None), Objections()
    holdings = seen(
        on("a", (0, ALL_OF_IT), (1, ALL_OF_IT)),
        gpus=[gpu(), lost],
        allocated=ids_of("a", UUID, OTHER_UUID),
        offered=BOTH,
        objections=objections,
    )
    assert (held_by(holdings), holdings.unresolved) == (
        {("main", KEY, "koordinator")},
        {"koordinator.sh/gpu": 1},
    )
    assert not objections.counts


def test_pods_that_are_over_have_nothing():
    """Their annotations stay."""
    assert seen(on("a", (0, HALF), phase="Succeeded"), on("b", (0, HALF), phase="Failed")).holdings == ()


def test_without_the_pods_objects_a_node_of_koordinator_is_blind():
    node = NodeObject(labels={"node.koordinator.sh/gpu-vendor": "nvidia"})
    assert list(resolve(gpu(), node=node).blind) == ["koordinator"]
    assert resolve(gpu()).blind == {}
    assert seen(on("a", (0, HALF)), node=node).blind == {}


def test_the_one_container_with_a_request_has_the_gpu():
    for limits in ({CORE: 50}, {"kubernetes.io/gpu-memory-ratio": 50}, {"nvidia.com/gpu": 1}):
        annotated = on("a", (0, HALF), containers=("proxy", "main"), limits={"main": limits})
        assert only(seen(annotated)).holder == container("a")


def test_an_init_container_has_the_gpu_only_without_other_requests():
    limits = {"setup": {CORE: 50}, "main": {CORE: 50}}
    both = on("a", (0, HALF), init=("setup",), limits=limits)
    alone = on("a", (0, HALF), init=("setup",), limits={"setup": {CORE: 50}})
    assert only(seen(both)).holder.container == "main"
    assert only(seen(alone)).holder.container == "setup"


def test_limits_divide_a_gpu_between_containers():
    limits = {"x": {CORE: 20, RATIO: 25}, "y": {CORE: 30, RATIO: 25}}
    annotated = on("a", (0, HALF), containers=("x", "y", "z"), limits=limits)
    entitled = by(seen(annotated), "holder.container", "memory_entitled", "compute_entitled")
    assert entitled == {"x": (4 * GIB, 0.2), "y": (4 * GIB, 0.3)}


def test_limits_may_be_bytes():
    limits = {"x": {CORE: 50, MEMORY: 4 * GIB}, "y": {MEMORY: 2 * GIB}}
    annotated = on("a", (0, {CORE: "50", MEMORY: "6Gi", RATIO: "38"}), containers=("x", "y"), limits=limits)
    entitled = by(seen(annotated), "holder.container", "memory_entitled", "compute_entitled")
    assert entitled == {"x": (4 * GIB, 0.5), "y": (2 * GIB, None)}


@pytest.mark.parametrize(
    "limits",
    [{"x": {CORE: 10, RATIO: 10}, "y": {CORE: 10, RATIO: 10}}, {"x": {CORE: 25}, "y": {CORE: 25}}, {}],
    ids=["too little", "no memory", "none"],
)
def test_limits_that_do_not_add_up_leave_the_gpu_to_the_pod(limits):
    annotated = on("a", (0, HALF), containers=("x", "y"), limits=limits)
    held_by_pod = only(seen(annotated))
    assert held_by_pod.holder == ContainerRef("ml", "a", "")
    assert (held_by_pod.memory_entitled, held_by_pod.compute_entitled) == (8 * GIB, 0.5)


def test_several_gpus_are_held_by_the_pod():
    limits = {"x": {CORE: 100, RATIO: 100}, "y": {CORE: 100, RATIO: 100}}
    all_of_it = {CORE: "100", RATIO: "100"}
    annotated = on("a", (0, all_of_it), (1, all_of_it), containers=("x", "y"), limits=limits)
    holdings = seen(annotated, gpus=[gpu(), numbered(1, 1)])
    assert set(rows(holdings, "holder.container", "device")) == {("", KEY), ("", OTHER)}


def test_the_library_meters_its_pods():
    files = cached(DeviceUse(device=UUID[:40], memory_used=GIB, compute_used=0.2))
    holding = only(seen(on("a", (0, HALF), labels=HAMI_CORE), files=files))
    assert holding.meter == Meter(source="hami", memory=GIB, compute=0.2)
    assert only(seen(on("a", (0, HALF)), files=files)).meter is None


@pytest.mark.parametrize(
    "files",
    [{}, cached(DeviceUse(device=OTHER_UUID, memory_used=1)), cached(DeviceUse(device=UUID), name="other")],
    ids=["none", "of another GPU", "of another container"],
)
def test_without_its_cache_there_is_no_meter(files):
    assert only(seen(on("a", (0, HALF), labels=HAMI_CORE), files=files)).meter is None


def test_entitlements_and_use_add_up():
    card = gpu([process(1, 2 * GIB), process(2, 3 * GIB)], {1: 20, 2: 30}, used=6 * GIB)
    annotated = pods(on("a", (0, HALF)), on("b", (0, HALF)))
    holdings = resolve_holdings([card], allocations(), NodeFacts(pods=annotated))
    joined = attribute([card], holdings, workloads({1: "a", 2: "b"}))
    assert (row_of(joined, "a").memory_used, row_of(joined, "b").memory_used) == (2 * GIB, 3 * GIB)
    assert joined.gpus[0].unattributed_memory == GIB
    assert sum(each.memory_entitled for each in joined.containers) == 16 * GIB


def test_annotations_are_read():
    """pkg/koordlet/runtimehooks/hooks/gpu/gpu_test.go, apis/extension/device_share.go: texts or numbers."""
    assert parse_allocated(SHARED) == (AllocatedGpu(1, "", GpuAmount(50, 16 * GIB, 50)),)
    numbers = given_gpus((0, {CORE: 100, RATIO: 100}))
    assert parse_allocated(numbers) == (AllocatedGpu(0, "", GpuAmount(100, None, 100)),)
    assert parse_allocated('{"gpu":null,"rdma":[{"minor":0}]}') == ()


def test_older_names_are_read():
    """apis/extension/deprecated.go."""
    text = given_gpus((0, {"kubernetes.io/gpu-core": "50", "kubernetes.io/gpu-memory": "8Gi"}))
    assert parse_allocated(text) == (AllocatedGpu(0, "", GpuAmount(50, 8 * GIB, None)),)


def test_resources_of_others_are_passed_over():
    assert parse_allocated(given_gpus((0, {"huawei.com/npu-core": "x"}))) == (
        AllocatedGpu(0, "", GpuAmount()),
    )


def test_all_resources_for_requests_are_known():
    """pkg/scheduler/plugins/deviceshare/utils.go."""
    ways = {"koordinator.sh/gpu": 50, "nvidia.com/gpu": 2, "cpu.example/gpu": 1}
    specs = [ContainerSpec(name=name, limits={name: amount}) for name, amount in ways.items()]
    assert [each.name for each in asking(specs)] == ["koordinator.sh/gpu", "nvidia.com/gpu"]
    assert split(GpuAmount(250, None, 250), asking(specs)) == [
        GpuAmount(50, None, 50),
        GpuAmount(200, None, 200),
    ]


def test_a_pod_with_a_malformed_annotation_keeps_its_ids():
    assert where(seen(on("a", text="x"), allocated=held("a", UUID), offered=whole())) == {"a": [KEY]}


entries = st.fixed_dictionaries(
    {},
    optional={
        "minor": JSON_VALUES,
        "id": JSON_VALUES,
        "resources": st.dictionaries(st.sampled_from([CORE, MEMORY]), JSON_VALUES),
    },
)
texts = st.text(max_size=60) | (
    JSON_VALUES | st.fixed_dictionaries({"gpu": st.lists(entries, max_size=3)})
).map(json.dumps)


@given(texts)
def test_any_text_is_read_or_refused(text):
    """Nothing else than ValueError comes of a hostile annotation, and no amount is below zero."""
    try:
        parsed = parse_allocated(text)
    except ValueError:
        return
    assert all(each.minor >= 0 for each in parsed)
    assert all(amount is None or amount > 0 for each in parsed for amount in each.amount)
