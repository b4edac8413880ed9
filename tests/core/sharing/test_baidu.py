"""Baidu's cGPU: who holds the only GPU, and what of it, as the vendor documents its resources."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, ContainerRef
from tests.core.attribution.build import GIB, UUID, gpu, held, mig, mig_gpu
from tests.core.sharing.build import numbered, only, pod, pods, resolve

CARDS = "baidu.com/t4_16g_cgpu"


def parts(cards="1", memory=("m1", "m2")):
    """Return a card with percents of compute and GiB of memory."""
    return [
        *held("a", cards, resource=CARDS),
        *held("a", "c1", resource=f"{CARDS}_core"),
        *held("a", *memory, resource=f"{CARDS}_memory"),
    ]


def test_the_only_gpu_is_the_one_that_is_held():
    holdings = resolve(gpu(), parts())
    holding = only(holdings)
    assert (holding.device.uuid, holding.resource, holding.slices) == (UUID, CARDS, 1)
    assert (holding.memory_entitled, holding.compute_entitled) == (2 * GIB, 0.01)
    assert (holding.sharing, holding.isolation, holdings.unresolved) == ("baidu-cgpu", "", {})
    assert not holdings.devices[holding.device].exclusive


@pytest.mark.parametrize(
    ("limits", "memory", "compute"),
    [
        pytest.param({}, gpu().memory.total, 1.0, id="a card alone is exclusive"),
        pytest.param({"_memory": 10}, 10 * GIB, None, id="memory alone: compute is not limited"),
        pytest.param({"_memory": 10, "_core": 50}, 10 * GIB, 0.5, id="both"),
        pytest.param({"_memory_percent": 25}, gpu().memory.total // 4, None, id="percents of memory"),
        pytest.param({"_core": 30}, None, 0.3, id="compute alone"),
        pytest.param(None, None, None, id="limits unknown"),
    ],
)
def test_limits_entitle_if_the_kubelet_has_no_ids(limits, memory, compute):
    """The units are those of Baidu's documentation of CCE: percents of a card and GiB."""
    asked = None if limits is None else {"main": {f"{CARDS}{name}": count for name, count in limits.items()}}
    known = pods() if asked is None else pods(pod("a", limits=asked))
    holdings = resolve(gpu(), held("a", "1", resource=CARDS), pods=known)
    holding = only(holdings)
    assert (holding.memory_entitled, holding.compute_entitled) == (memory, compute)
    assert holdings.devices[holding.device].exclusive == (limits == {})


def test_memory_alone_is_held_too():
    holdings = resolve(gpu(), held("a", "m1", resource=f"{CARDS}_memory_percent"))
    assert only(holdings).resource == f"{CARDS}_memory_percent"


@pytest.mark.parametrize(
    "node", [[gpu(), numbered(1, 1)], [mig_gpu([mig()])], []], ids=["two", "cut", "none"]
)
def test_of_several_gpus_none_is_guessed(node):
    holdings = resolve(node, parts(UUID))
    assert (holdings.holdings, holdings.unresolved) == (
        (),
        {CARDS: 1, f"{CARDS}_core": 1, f"{CARDS}_memory": 2},
    )
    whole = {each.identity.uuid for each in node if not each.mig_enabled}
    assert {key.uuid for key in holdings.unplaced} == whole


@given(st.lists(st.tuples(st.sampled_from([CARDS, f"{CARDS}_core", "baidu.com/rdma"]), st.text(max_size=9))))
def test_any_ids_are_held_or_unresolved(ids):
    allocated = [Allocation(ContainerRef("ml", "a", "main"), *device_id) for device_id in ids]
    for node in ([gpu()], [gpu(), numbered(1, 1)]):
        holdings = resolve(node, allocated)
        assert not set(holdings.unresolved) - {CARDS, f"{CARDS}_core"}
        assert sum(holding.slices for holding in holdings.holdings) <= len(set(ids))
