"""nvshare: holders by id, all of one GPU, and a plugin that holds it for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, ContainerRef, OfferedDevice, SliceCount
from tests.attribution.build import UUID, gpu, held, whole
from tests.sharing.build import OTHER_UUID, container, numbered, only, resolve

RESOURCE, WHOLE = "nvshare.com/gpu", "nvidia.com/gpu"
NODE = [gpu(), numbered(1, 1)]
PLUGIN = held("nvshare-device-plugin-x", UUID, container="nvshare-device-plugin")


def offers(count=10):
    """Return what both plugins offer: devices.go counts from 1."""
    shared = [OfferedDevice(RESOURCE, f"{UUID}__{n}") for n in range(1, count + 1)]
    return [*shared, *whole(UUID), *whole(OTHER_UUID)]


def test_a_holder_has_a_turn_and_no_limit():
    """It sees all of the memory, as every other one does."""
    found = resolve(NODE, PLUGIN + held("a", f"{UUID}__1", f"{UUID}__7", resource=RESOURCE), offers())
    holding = only(found)
    assert (holding.holder, holding.device.uuid, holding.slices) == (container("a"), UUID, 2)
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)
    assert (holding.sharing, holding.isolation, found.unresolved) == ("nvshare", "none", {})


def test_what_the_plugin_holds_is_on_offer_to_nobody():
    """The GPU is nvshare's; the other one is given out whole as ever."""
    found = resolve(NODE, PLUGIN + held("b", OTHER_UUID), offers())
    shared, other = sorted(found.devices.items(), key=lambda each: each[1].sharing, reverse=True)
    assert (shared[0].uuid, shared[1].sharing, shared[1].exclusive) == (UUID, "nvshare", False)
    assert shared[1].slices == (SliceCount(WHOLE, None, 0), SliceCount(RESOURCE, 10, 0))
    assert (other[0].uuid, other[1].sharing, other[1].slices) == (
        OTHER_UUID,
        "exclusive",
        (SliceCount(WHOLE, 1, 1, 0, 0),),
    )
    assert only(found).holder.pod == "b"


def test_the_plugin_is_known_where_the_kubelet_does_not_tell_what_is_offered():
    """By the ids of those that it gave the GPU to."""
    ids = PLUGIN + held("a", f"{UUID}__1", resource=RESOURCE)
    assert only(resolve(NODE, ids, None)).holder.pod == "a"


@pytest.mark.parametrize(
    ("name", "uuid"), [("trainer", UUID), ("nvshare-device-plugin", OTHER_UUID)], ids=["name", "GPU"]
)
def test_others_hold_what_they_hold(name: str, uuid: str):
    """Another container does, and so does one of that name with a GPU that is not given to others."""
    found = resolve(NODE, held("b", uuid, container=name), offers())
    assert (only(found).holder.container, only(found).device.uuid) == (name, uuid)


def test_a_gpu_that_is_not_here_is_unresolved():
    """Its id is nvshare's all the same."""
    found = resolve(NODE, held("a", "GPU-gone__1", resource=RESOURCE))
    assert (found.holdings, found.unresolved) == ((), {RESOURCE: 1})


@given(
    st.lists(
        st.builds("{}{}".format, st.sampled_from([UUID, "GPU-gone", ""]), st.text("_0123 :-", max_size=6))
    )
)
def test_any_id_is_held_unresolved_or_somebody_elses(ids):
    """Nothing raises, nothing counts twice."""
    allocated = [Allocation(ContainerRef("ml", "a", "main"), RESOURCE, each) for each in ids]
    found = resolve(NODE, allocated, offers())
    assert sum(each.slices for each in found.holdings) + sum(found.unresolved.values()) <= len(set(ids))
