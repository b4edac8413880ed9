"""nvshare: holders by id, all of one GPU, and a plugin that holds it for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, ContainerRef, OfferedDevice, SliceCount
from tests.core.attribution.build import UUID, gpu, held, whole
from tests.core.sharing.build import OTHER_UUID, container, numbered, only, resolve

RESOURCE, WHOLE = "nvshare.com/gpu", "nvidia.com/gpu"
NODE = [gpu(), numbered(1, 1)]
PLUGIN = held("nvshare-device-plugin-x", UUID, container="nvshare-device-plugin")


def offers(count=10):
    """Return what both plugins offer: devices.go counts from 1."""
    shared = [OfferedDevice(RESOURCE, f"{UUID}__{n}") for n in range(1, count + 1)]
    return [*shared, *whole(UUID), *whole(OTHER_UUID)]


def test_a_holder_has_a_turn_and_no_limit():
    holdings = resolve(NODE, PLUGIN + held("a", f"{UUID}__1", f"{UUID}__7", resource=RESOURCE), offers())
    holding = only(holdings)
    assert (holding.holder, holding.device.uuid, holding.slices) == (container("a"), UUID, 2)
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)
    assert (holding.sharing, holding.isolation, holdings.unresolved) == ("nvshare", "none", {})


def test_the_gpu_of_the_plugin_is_not_offered():
    holdings = resolve(NODE, PLUGIN + held("b", OTHER_UUID), offers())
    shared, other = sorted(holdings.devices.items(), key=lambda each: each[1].sharing, reverse=True)
    assert (shared[0].uuid, shared[1].sharing, shared[1].exclusive) == (UUID, "nvshare", False)
    assert shared[1].slices == (SliceCount(WHOLE, None, 0), SliceCount(RESOURCE, 10, 0))
    assert (other[0].uuid, other[1].sharing, other[1].slices) == (
        OTHER_UUID,
        "exclusive",
        (SliceCount(WHOLE, 1, 1, 0, 0),),
    )
    assert only(holdings).holder.pod == "b"


def test_the_plugin_is_known_without_an_offer():
    ids = PLUGIN + held("a", f"{UUID}__1", resource=RESOURCE)
    assert only(resolve(NODE, ids, None)).holder.pod == "a"


@pytest.mark.parametrize(
    ("name", "uuid"), [("trainer", UUID), ("nvshare-device-plugin", OTHER_UUID)], ids=["name", "GPU"]
)
def test_other_containers_hold_their_gpus(name: str, uuid: str):
    holdings = resolve(NODE, held("b", uuid, container=name), offers())
    assert (only(holdings).holder.container, only(holdings).device.uuid) == (name, uuid)


def test_a_gpu_that_is_not_here_is_unresolved():
    holdings = resolve(NODE, held("a", "GPU-gone__1", resource=RESOURCE))
    assert (holdings.holdings, holdings.unresolved) == ((), {RESOURCE: 1})


@given(
    st.lists(
        st.builds("{}{}".format, st.sampled_from([UUID, "GPU-gone", ""]), st.text("_0123 :-", max_size=6))
    )
)
def test_any_id_counts_at_most_once(ids):
    allocated = [Allocation(ContainerRef("ml", "a", "main"), RESOURCE, device_id) for device_id in ids]
    holdings = resolve(NODE, allocated, offers())
    assert sum(holding.slices for holding in holdings.holdings) + sum(holdings.unresolved.values()) <= len(
        set(ids)
    )
