"""TensorFusion: workers have the GPUs in their annotations, and the ids of the kubelet only name the pod."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, ContainerRef, DeviceKey, Holding, OfferedDevice
from exporter.sharing.base.view import Objections
from exporter.sharing.tensor_fusion import TensorFusion, by_container, percent, split_ids
from tests.core.attribution.build import GIB, MIG, UUID, gpu, mig, mig_gpu
from tests.core.sharing.build import (
    OTHER_UUID,
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

GPUS = [gpu(), numbered(1, 1)]
RESOURCE = "tensor-fusion.ai/index_3"
KEY, OTHER = DeviceKey(UUID), DeviceKey(OTHER_UUID)
# The name of a GPU's object is its UUID in lower case.
LOWER, OTHER_LOWER = UUID.lower(), OTHER_UUID.lower()


def with_domain(**annotations) -> dict[str, str]:
    """Return annotations below TensorFusion's domain."""
    return {f"tensor-fusion.ai/{name.replace('_', '-')}": text for name, text in annotations.items()}


def ids(name, *containers, resource=RESOURCE, count=2) -> list[Allocation]:
    """Return the kubelet's ids of these containers of a pod."""
    refs = [ContainerRef("ml", name, each) for each in containers or ("main",)]
    places = enumerate(ref for ref in refs for _ in range(count))
    return [Allocation(ref, resource, f"3-{place + 1}") for place, ref in places]


def held(annotations, *containers, gpus=None, objections=None, **more):
    """Return the holdings of a node with one worker."""
    names = containers or ("main",)
    worker = pod("a", annotations, containers=names)
    offered = [OfferedDevice(RESOURCE, f"3-{place}") for place in range(1, 37)]
    return resolve(gpus or GPUS, ids("a", *names), offered, objections, pods=pods(worker), **more)


def entitled(holdings) -> list[tuple[int | None, float | None]]:
    """Return memory and compute of every holding."""
    return rows(holdings, "memory_entitled", "compute_entitled")


def test_a_worker_has_the_gpu_of_its_annotation():
    asked = with_domain(
        gpu_ids=LOWER, isolation="soft", vram_request="4Gi", vram_limit="6Gi", compute_percent_request="25"
    )
    holdings = held(asked)
    assert only(holdings) == Holding(
        holder=container("a"),
        device=KEY,
        resource="tensor-fusion.ai/index",
        slices=1,
        memory_entitled=4 * GIB,
        compute_entitled=0.25,
        sharing="tensor-fusion",
        isolation="soft",
    )
    assert [count[:3] for count in holdings.devices[KEY].slices] == [("tensor-fusion.ai/index", None, 1)]
    assert holdings.devices[OTHER].slices == ()
    assert not holdings.unresolved


@pytest.mark.parametrize("resource", ["tensor-fusion.ai/index", "tensor-fusion.ai/index_f"])
def test_the_resource_has_a_digit_since_the_second_release(resource: str):
    """Both are in isTFDevicePluginResource of pod_resources_proxy.go."""
    worker = pod("a", with_domain(gpu_ids=LOWER))
    assert where(resolve(GPUS, ids("a", resource=resource), (), pods=pods(worker))) == {"a": [KEY]}


@pytest.mark.parametrize("resource", ["tensor-fusion.ai/index_10", "tensor-fusion.ai/index_g", "x/index_1"])
def test_other_resources_are_not_its_own(resource: str):
    """An annotation alone is a plan."""
    worker = pod("a", with_domain(gpu_ids=LOWER))
    assert not resolve(GPUS, ids("a", resource=resource), (), pods=pods(worker)).holdings


@pytest.mark.parametrize(
    ("annotations", "amounts"),
    [
        ({"vram_request": "1Gi", "vram_limit": "2Gi"}, (GIB, None)),
        ({"vram_limit": "2Gi"}, (2 * GIB, None)),
        # internal/utils/compose.go writes 0 for what is not set
        ({"vram_request": "0", "vram_limit": "2Gi"}, (2 * GIB, None)),
        ({"vram_request": "0", "vram_limit": "0"}, (None, None)),
        ({"vram_request": "1610612736"}, (3 * GIB // 2, None)),
        ({"compute_percent_request": "10", "compute_percent_limit": "50"}, (None, 0.1)),
        ({"compute_percent_limit": "100"}, (None, 1.0)),
        ({"compute_percent_limit": "12500m"}, (None, 0.125)),
        ({"tflops_request": "60", "tflops_limit": "60"}, (None, None)),
        ({"tflops_limit": "60", "effective_hard_sm_percent": "40"}, (None, 0.4)),
        ({"tflops_request": "60", "tflops_limit": "60", "effective_hard_sm_percent": "40"}, (None, 0.4)),
        # the percentage is that of the limit, which is not the request
        ({"tflops_request": "30", "tflops_limit": "60", "effective_hard_sm_percent": "40"}, (None, None)),
    ],
)
def test_a_request_counts_before_a_limit(annotations, amounts, objections):
    """It is what the scheduler keeps for the worker; TFLOPS are no share of a GPU that the node knows."""
    assert entitled(held(with_domain(gpu_ids=LOWER, **annotations), objections=objections)) == [amounts]
    assert not objections.counts


def test_amounts_are_of_each_gpu():
    """gpuallocator.go takes the request from every GPU."""
    holdings = held(with_domain(gpu_ids=f"{LOWER}, {OTHER_LOWER},{LOWER},", vram_request="2Gi"))
    assert where(holdings) == {"a": [KEY, OTHER]}
    assert entitled(holdings) == [(2 * GIB, None)] * 2


@pytest.mark.parametrize(
    ("mode", "isolation"), [("", "soft"), ("soft", "soft"), ("hard", "soft"), ("shared", "none")]
)
def test_the_isolation_is_that_of_the_workers(mode: str, isolation: str):
    """A limiter is a library, also if TensorFusion calls it hard; the default mode is soft."""
    holdings = held(with_domain(gpu_ids=LOWER, isolation=mode))
    assert (only(holdings).isolation, holdings.devices[KEY].isolation) == (isolation, isolation)
    assert holdings.devices[KEY].exclusive == (mode == "shared")


def test_shared_is_a_whole_gpu():
    """SharedWholeGPUFilter: only GPUs without any other worker are given so."""
    assert entitled(held(with_domain(gpu_ids=LOWER, isolation="shared", gpu_count="1"))) == [(16 * GIB, 1.0)]


@pytest.mark.parametrize("form", ["{mig}:{gpu}", "{mig}/7/0:{gpu}"])
def test_a_partition_is_a_mig_device(form: str):
    """buildPartitionUUIDsAnnotation: the MIG device, and the GPU that it is of."""
    asked = with_domain(
        gpu_ids=LOWER, partition_uuids=form.format(mig=MIG, gpu=LOWER), isolation="partitioned"
    )
    holding = only(held(asked, gpus=[mig_gpu([mig()])]))
    assert (holding.device, holding.isolation) == (DeviceKey(UUID, MIG), "hard")
    assert holding.memory_entitled == mig().memory.total


@pytest.mark.parametrize("partitions", [None, f"MIG-00000000-0000-0000-0000-0000000000aa:{LOWER}"])
def test_an_unknown_partition_may_be_any_of_its_gpu(partitions: str | None):
    """The plugin may leave its UUID with the runtime: holders of the GPU's MIG devices are unknown then."""
    more = {} if partitions is None else {"partition_uuids": partitions}
    holdings = held(with_domain(gpu_ids=LOWER, isolation="partitioned", **more), gpus=[mig_gpu([mig()])])
    assert (holdings.holdings, holdings.unresolved) == ((), {"tensor-fusion.ai/index": 1})
    assert holdings.unplaced == {DeviceKey(UUID, MIG)}


def test_containers_with_gpus_of_their_own():
    """constants.go: {"containerName1": ["gpu-id1", "gpu-id2"], "containerName2": ["gpu-id3"]}."""
    by_name = json.dumps({"x": [LOWER], "y": [OTHER_LOWER]})
    holdings = held(
        with_domain(gpu_ids=f"{LOWER},{OTHER_LOWER}", container_gpus=by_name, vram_limit="1Gi"), "x", "y"
    )
    by_holder = by(holdings, "holder.container", "device", "memory_entitled")
    assert by_holder == {"x": (KEY, GIB), "y": (OTHER, GIB)}


def test_containers_that_share_gpus_hold_them_as_a_pod():
    holding = only(held(with_domain(gpu_ids=LOWER, vram_limit="1Gi"), "x", "y"))
    assert (holding.holder, holding.memory_entitled) == (container("a", ""), GIB)


def test_a_sidecar_computes_for_the_other_containers():
    """Both have ids; the process on the GPU is the worker's."""
    assert only(held(with_domain(gpu_ids=LOWER), "app", "tensorfusion-worker")).holder == container(
        "a", "tensorfusion-worker"
    )


def test_without_annotations_the_holder_may_have_any_gpu():
    for holdings in (held({}), resolve(GPUS, ids("a"), ())):
        assert (holdings.holdings, holdings.unresolved) == ((), {RESOURCE: 2})
        assert holdings.unplaced == {KEY, OTHER}
    assert resolve(GPUS, ids("a"), ()).blind == {"tensor-fusion": TensorFusion.blind_without_pods}


@pytest.mark.parametrize(
    ("annotations", "amounts"),
    [
        ({"vram_request": "lots", "vram_limit": "2Gi", "compute_percent_limit": "20"}, (None, 0.2)),
        ({"vram_request": "-1Gi"}, (None, None)),
        ({"vram_limit": "1Gi", "compute_percent_request": "120"}, (GIB, None)),
        ({"vram_limit": "1Gi", "compute_percent_request": "20%"}, (GIB, None)),
        ({"vram_limit": "1Gi", "compute_percent_request": "", "compute_percent_limit": "20"}, (GIB, None)),
        ({"vram_limit": "1Gi", "tflops_limit": "60", "effective_hard_sm_percent": "NaN"}, (GIB, None)),
        ({"vram_limit": "1Gi", "isolation": "firm"}, (GIB, None)),
        ({"vram_limit": "1Gi", "container_gpus": "[]"}, (GIB, None)),
        ({"vram_limit": "1Gi", "container_gpus": '{"main": [1]}'}, (GIB, None)),
    ],
)
def test_malformed_annotations_are_named_and_unknown(
    annotations, amounts, caplog: pytest.LogCaptureFixture, objections
):
    holdings = held(with_domain(gpu_ids=LOWER, **annotations), objections=objections)
    assert (where(holdings), entitled(holdings)) == ({"a": [KEY]}, [amounts])
    assert objections.counts == {"tensor_fusion_annotation": 1}
    assert "ml/a: tensor-fusion.ai/" in caplog.text


@pytest.mark.parametrize("name", ["gpu-elsewhere", "7", "nvidia0", "GPU-"])
def test_a_gpu_that_is_not_here_is_unresolved(name: str, caplog: pytest.LogCaptureFixture):
    holdings = held(with_domain(gpu_ids=f"{name},{OTHER_LOWER}"), objections=Objections())
    assert where(holdings) == {"a": [OTHER]}
    assert holdings.unresolved == {"tensor-fusion.ai/index": 1}
    assert f"ml/a: tensor-fusion.ai/gpu-ids: '{name}' is not a GPU of this node" in caplog.text


def test_clients_hold_nothing():
    client = pod("a", with_domain(selected_workload="w", vram_limit="1Gi", gpu_ids=LOWER))
    assert not resolve(GPUS, [], (), pods=pods(client)).holdings


def test_unlike_modes_on_one_gpu_leave_its_isolation_unknown():
    """TensorFusion does not mix them; a page that guesses would be wrong for one of the two."""
    workers = [
        pod(name, with_domain(gpu_ids=LOWER, isolation=mode))
        for name, mode in (("a", "soft"), ("b", "shared"))
    ]
    holdings = resolve(GPUS, [*ids("a"), *ids("b")], (), pods=pods(*workers))
    assert set(rows(holdings, "isolation")) == {""}


@given(text=st.text(max_size=60))
def test_no_text_stops_the_parsers(text: str):
    assert all(split_ids(text))
    share = percent(text)
    assert share is None or 0 < share <= 1
    with pytest.raises(ValueError, match=r"JSON|lists"):
        by_container(f"[{text}")
