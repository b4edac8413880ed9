"""ScaleOps: pods share the GPUs of capacity pods; what is not published stays unknown."""

import pytest

from exporter.model import Allocation, ContainerRef, DeviceKey, Holding
from exporter.sharing.base.view import Objections
from exporter.sharing.scaleops import ScaleOps
from tests.core.attribution.build import GIB, UUID, gpu, held, whole
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
OFFERED = [*whole(), *whole(OTHER_UUID)]
KEY, OTHER = DeviceKey(UUID), DeviceKey(OTHER_UUID)
COMPUTE, MEMORY = "scaleops.sh/gpu-compute-fraction", "scaleops.sh/gpu-memory"
CAPACITY = ContainerRef("scaleops-system", "capacity-1", "main")


def capacity(device=UUID, name="capacity-1") -> list[Allocation]:
    """Return the kubelet's answer about a capacity pod."""
    return [Allocation(CAPACITY._replace(pod=name), "nvidia.com/gpu", device)]


def sharer(name, compute="0.25", memory=None, **more):
    """Return a pod with a fraction."""
    texts = {COMPUTE: compute, MEMORY: memory}
    return pod(name, {key: text for key, text in texts.items() if text is not None}, **more)


def shared(*found, allocated=None, gpus=None, **more):
    """Return the holdings of a node with one capacity pod and these pods."""
    ids = capacity() if allocated is None else allocated
    return resolve(gpus or GPUS, ids, OFFERED, pods=pods(*found), **more)


def test_a_pod_has_its_fraction_of_the_gpu_of_the_capacity_pod():
    holdings = shared(sharer("a", memory="4Gi"))
    assert only(holdings) == Holding(
        holder=container("a"),
        device=KEY,
        resource="nvidia.com/gpu",
        slices=1,
        memory_entitled=4 * GIB,
        compute_entitled=0.25,
        sharing="scaleops",
        isolation="",
    )
    assert [count[:3] for count in holdings.devices[KEY].slices] == [("nvidia.com/gpu", None, 1)]
    assert [count[:3] for count in holdings.devices[OTHER].slices] == [("nvidia.com/gpu", 1, 0)]
    assert not holdings.unresolved


@pytest.mark.parametrize(
    ("annotations", "amounts"),
    [
        (("0.25", "1024"), (None, 0.25)),  # the documentation's example: a number without a unit
        (("1", None), (None, 1.0)),
        ((None, "512Mi"), (GIB // 2, None)),
        ((None, "1024"), (None, None)),
    ],
)
def test_a_number_without_a_unit_is_no_amount_of_memory(annotations, amounts, objections):
    holding = only(shared(sharer("a", *annotations), objections=objections))
    assert (holding.memory_entitled, holding.compute_entitled) == amounts
    assert not objections.counts


@pytest.mark.parametrize("texts", [("25%", "4Gi"), ("0", "4Gi"), ("1.5", "4Gi"), ("NaN", "4Gi"), ("", "4Gi")])
def test_a_malformed_fraction_is_named_and_unknown(texts, caplog: pytest.LogCaptureFixture, objections):
    holdings = shared(sharer("a", *texts), sharer("b"), objections=objections)
    by_holder = by(holdings, "holder.pod", "memory_entitled", "compute_entitled")
    assert by_holder == {"a": (4 * GIB, None), "b": (None, 0.25)}
    assert objections.counts == {"scaleops_annotation": 1}
    assert f"ml/a: {COMPUTE}: " in caplog.text


@pytest.mark.parametrize("text", ["lots", "-1Gi", "0", "", "4 GiB"])
def test_malformed_memory_is_named_and_unknown(text: str, caplog: pytest.LogCaptureFixture):
    holding = only(shared(sharer("a", memory=text), objections=Objections()))
    assert (holding.memory_entitled, holding.compute_entitled) == (None, 0.25)
    assert f"ml/a: {MEMORY}: {text!r} is not an amount of memory" in caplog.text


def test_with_several_capacity_pods_the_gpu_is_unknown():
    """How a pod is bound to one of them is not published: the holders of both GPUs are unknown."""
    holdings = shared(sharer("a"), allocated=[*capacity(), *capacity(OTHER_UUID, "capacity-2")])
    assert (holdings.holdings, holdings.unresolved) == ((), {COMPUTE: 1})
    assert holdings.unplaced == {KEY, OTHER}
    assert [count.allocated for key in (KEY, OTHER) for count in holdings.devices[key].slices] == [None, None]
    assert holdings.unresolved_holders == {container("a")}


def test_without_a_capacity_pod_the_gpu_is_unknown_and_holders_stay():
    """One in a namespace of another name is a holder; an annotation of a tenant hides no holder."""
    holdings = shared(sharer("a"), allocated=held("other", UUID))
    assert where(holdings) == {"other": [KEY]}
    assert (holdings.unresolved, holdings.unplaced) == ({COMPUTE: 1}, frozenset())


def test_a_capacity_pod_without_pods_holds_nothing():
    holdings = shared(allocated=[*capacity(), *held("train", OTHER_UUID)])
    assert where(holdings) == {"train": [OTHER]}
    assert not holdings.unresolved


@pytest.mark.parametrize("more", [{"phase": "Pending"}, {"phase": "Succeeded"}])
def test_only_running_pods_have_a_fraction(more):
    """An annotation alone is a plan."""
    assert shared(sharer("a", **more)).holdings == ()


def test_a_pod_with_a_gpu_of_its_own_has_no_fraction():
    """ScaleOps removes the request of a pod that it gives a fraction."""
    holdings = shared(sharer("a"), allocated=[*capacity(), *held("a", OTHER_UUID)])
    assert where(holdings) == {"a": [OTHER]}
    assert only(holdings).sharing == "exclusive"


def test_several_containers_hold_as_a_pod():
    """The annotations do not name one; an init container is not meant."""
    assert only(shared(sharer("a", containers=("x", "y")))).holder == container("a", "")
    assert only(shared(sharer("a", init=("setup",)))).holder == container("a")


def test_replicas_in_the_namespace_of_scaleops_are_holdings():
    holdings = shared(allocated=capacity(f"{UUID}::1"))
    assert rows(holdings, "holder") == [CAPACITY]


def test_without_the_pods_objects_the_holders_are_unknown():
    holdings = resolve(GPUS, capacity(), OFFERED)
    assert (holdings.holdings, holdings.unresolved) == ((), {"nvidia.com/gpu": 1})
    assert holdings.unplaced == {KEY}
    assert [count.allocated for count in holdings.devices[KEY].slices] == [None]
    assert holdings.blind == {"scaleops": ScaleOps.blind_without_pods}
