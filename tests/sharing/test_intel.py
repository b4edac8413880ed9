"""Intel's plugin: who holds which card, which is all that is known of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, ContainerRef, OfferedDevice, SliceCount
from exporter.sharing.base.view import Objections
from tests.attribution.build import UUID, gpu, held, whole
from tests.sharing.build import container, only, resolve

I915 = "gpu.intel.com/i915"


def offers(cards=2, count=4, resource=I915):
    """Return what the plugin offers: cmd/gpu_plugin/gpu_plugin.go counts from 0."""
    return [OfferedDevice(resource, f"card{card}-{n}") for card in range(cards) for n in range(count)]


@pytest.mark.parametrize("resource", [I915, "gpu.intel.com/xe", "gpu.intel.com/dxg"])
def test_a_holder_has_a_card_without_a_limit(resource: str):
    """card0-4 of cmd/gpu_plugin/allocationpolicy_test.go is the fifth part of card0."""
    found = resolve([], held("a", "card0-4", resource=resource), offers(1, 5, resource))
    holding = only(found)
    assert (holding.device.uuid, holding.slices, holding.resource) == ("card0", 1, resource)
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)
    assert (holding.sharing, holding.isolation) == ("intel", "none")
    (card,) = found.unread
    assert (card.uuid, card.index, card.vendor) == ("card0", 0, "intel")
    assert found.devices[holding.device].slices == (SliceCount(resource, 5, 1),)


def test_a_container_may_have_parts_of_several_cards():
    """card2-3 and card1-1 are of different ones; two ids of one card are two slices."""
    found = resolve([], held("a", "card2-3", "card1-1", "card1-0", resource=I915), offers(3))
    assert [(each.device.uuid, each.slices) for each in found.holdings] == [("card1", 2), ("card2", 1)]


def test_a_card_that_is_not_shared_has_one_holder():
    """It has all of the compute; its memory nobody here can read."""
    found = resolve([], held("a", "card1-0", resource=I915), offers(2, 1))
    holding = only(found)
    assert (holding.sharing, holding.isolation, holding.compute_entitled) == ("exclusive", "hard", 1.0)
    assert found.devices[holding.device].exclusive
    unknown = only(resolve([], held("a", "card1-0", resource=I915), None))
    assert (unknown.sharing, unknown.compute_entitled) == ("intel", None)


@pytest.mark.parametrize("name", ["monitoring", "i915_monitoring", "xe_monitoring"])
def test_who_monitors_holds_nothing(name: str):
    """The id all gives every card to look at."""
    found = resolve([gpu()], held("a", "all", resource=f"gpu.intel.com/{name}"), offers())
    assert (found.holdings, found.unresolved, found.unread) == ((), {}, ())


def test_cards_stand_beside_gpus_of_others():
    """Each has its own way of sharing."""
    ids = held("a", "card0-0", resource=I915) + held("b", UUID)
    found = resolve([gpu()], ids, [*offers(), *whole()])
    assert {key.uuid: each.sharing for key, each in found.devices.items()} == {
        "card0": "intel",
        UUID: "exclusive",
    }


@pytest.mark.parametrize(
    "device_id", ["card", "card0", "cardx-1", "card01-0", "0000:03:00.0", "all", "card1-", "٣"]
)
def test_an_id_that_names_no_card_is_unresolved(device_id: str):
    """It is objected to; the other ids of its container have their cards."""
    objections = Objections()
    found = resolve([], held("a", device_id, "card1-1", resource=I915), offers(), objections=objections)
    assert (only(found).device.uuid, found.unresolved) == ("card1", {I915: 1})
    assert found.unresolved_holders == {container("a")}
    assert objections.counts == {"intel_id": 1}


def test_other_resources_of_intel_are_passed_over():
    """Its FPGAs and accelerators are no GPUs."""
    found = resolve([gpu()], held("a", "card0-0", resource="fpga.intel.com/region"))
    assert (found.holdings, found.unresolved) == ((), {})


@given(st.lists(st.text(max_size=12) | st.from_regex(r"card[0-9]{1,8}-[0-9]{1,8}", fullmatch=True)))
def test_any_id_is_held_or_unresolved(ids):
    """Nothing raises, nothing is lost."""
    allocated = [Allocation(ContainerRef("ml", "a", "main"), I915, each) for each in ids]
    found = resolve([], allocated, offers())
    assert sum(each.slices for each in found.holdings) + found.unresolved.get(I915, 0) == len(set(ids))
