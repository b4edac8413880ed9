"""Intel's plugin: who holds which card, which is all that is known of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, ContainerRef, OfferedDevice, SliceCount
from tests.core.attribution.build import UUID, gpu, held, whole
from tests.core.sharing.build import container, only, resolve, rows

I915 = "gpu.intel.com/i915"


def offers(cards=2, count=4, resource=I915):
    """Return what the plugin offers: cmd/gpu_plugin/gpu_plugin.go counts from 0."""
    return [OfferedDevice(resource, f"card{card}-{n}") for card in range(cards) for n in range(count)]


@pytest.mark.parametrize("resource", [I915, "gpu.intel.com/xe", "gpu.intel.com/dxg"])
def test_a_holder_has_a_card_without_a_limit(resource: str):
    """card0-4 of cmd/gpu_plugin/allocationpolicy_test.go is the fifth part of card0."""
    holdings = resolve([], held("a", "card0-4", resource=resource), offers(1, 5, resource))
    holding = only(holdings)
    assert (holding.device.uuid, holding.slices, holding.resource) == ("card0", 1, resource)
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)
    assert (holding.sharing, holding.isolation) == ("intel", "none")
    (card,) = holdings.unread
    assert (card.uuid, card.index, card.vendor) == ("card0", 0, "intel")
    assert holdings.devices[holding.device].slices == (SliceCount(resource, 5, 1),)


def test_a_container_may_have_parts_of_several_cards():
    holdings = resolve([], held("a", "card2-3", "card1-1", "card1-0", resource=I915), offers(3))
    assert rows(holdings, "device.uuid", "slices") == [("card1", 2), ("card2", 1)]


def test_a_card_that_is_not_shared_has_one_holder():
    holdings = resolve([], held("a", "card1-0", resource=I915), offers(2, 1))
    holding = only(holdings)
    assert (holding.sharing, holding.isolation, holding.compute_entitled) == ("exclusive", "hard", 1.0)
    assert holdings.devices[holding.device].exclusive
    unknown = only(resolve([], held("a", "card1-0", resource=I915), None))
    assert (unknown.sharing, unknown.compute_entitled) == ("intel", None)


@pytest.mark.parametrize("name", ["monitoring", "i915_monitoring", "xe_monitoring"])
def test_monitors_hold_nothing(name: str):
    holdings = resolve([gpu()], held("a", "all", resource=f"gpu.intel.com/{name}"), offers())
    assert (holdings.holdings, holdings.unresolved, holdings.unread) == ((), {}, ())


def test_cards_and_gpus_of_another_vendor_on_one_node():
    ids = held("a", "card0-0", resource=I915) + held("b", UUID)
    holdings = resolve([gpu()], ids, [*offers(), *whole()])
    assert {key.uuid: each.sharing for key, each in holdings.devices.items()} == {
        "card0": "intel",
        UUID: "exclusive",
    }


@pytest.mark.parametrize(
    "device_id", ["card", "card0", "cardx-1", "card01-0", "0000:03:00.0", "all", "card1-", "٣"]
)
def test_an_id_that_names_no_card_is_unresolved(device_id: str, objections):
    holdings = resolve([], held("a", device_id, "card1-1", resource=I915), offers(), objections=objections)
    assert (only(holdings).device.uuid, holdings.unresolved) == ("card1", {I915: 1})
    assert holdings.unresolved_holders == {container("a")}
    assert objections.counts == {"intel_id": 1}


def test_other_resources_of_intel_are_passed_over():
    holdings = resolve([gpu()], held("a", "card0-0", resource="fpga.intel.com/region"))
    assert (holdings.holdings, holdings.unresolved) == ((), {})


@given(st.lists(st.text(max_size=12) | st.from_regex(r"card[0-9]{1,8}-[0-9]{1,8}", fullmatch=True)))
def test_any_id_is_held_or_unresolved(ids):
    allocated = [Allocation(ContainerRef("ml", "a", "main"), I915, device_id) for device_id in ids]
    holdings = resolve([], allocated, offers())
    assert sum(holding.slices for holding in holdings.holdings) + holdings.unresolved.get(I915, 0) == len(
        set(ids)
    )
