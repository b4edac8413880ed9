"""Volcano's GPU sharing: memory in units of the plugin, and whole cards, by the annotation of the pod.

Upstream: volcano-sh/devices pkg/plugin/nvidia, volcano-sh/volcano pkg/scheduler/api/devices/nvidia/gpushare.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, OfferedDevice, SliceCount
from tests.core.attribution.build import GIB, UUID, gpu, memory
from tests.core.sharing.build import OTHER_UUID, container, numbered, only, pod, pods, resolve
from tests.core.sharing.cards import MIB, has, shares, two_cards
from tests.core.sharing.cases import Case

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"


def assigned(cards="0", word="true") -> dict[str, str]:
    """Return the annotations of the scheduler and the plugin."""
    return {"volcano.sh/gpu-index": cards, "volcano.sh/gpu-assigned": word, "volcano.sh/predicate-time": "1"}


def by_factor(factor, cards=(0, 1), mebibytes=16 * 1024) -> list[OfferedDevice]:
    """Return what the plugin offers with this factor (utils.go GetDevices)."""
    return [
        OfferedDevice(MEMORY, f"{card}-{number}") for card in cards for number in range(mebibytes // factor)
    ]


CASE = Case(
    name="volcano-gpushare",
    isolation="none",
    reason="volcano_gpushare_annotation",
    annotate=assigned,
    here="1",
    gone="4",
    entitled=(3000 * MIB, None),
    amounts={MEMORY: 30},
    offered=tuple(by_factor(100)),
    malformed=("", "0,", "-1", "0,0", "0,1", "x", "0x1", "1e1"),
    unconfirmed=({}, assigned(word="false"), {"volcano.sh/gpu-index": "0"}),
    only_card=True,
    whole=({NUMBER: 2}, "0,1"),
)


def unit(gpus, offered, cards="1") -> int | None:
    """Return the memory of a container with one unit."""
    node = pods(pod("a", assigned(cards)))
    return only(resolve(gpus, has("a", {MEMORY: 1}), offered, pods=node)).memory_entitled


@pytest.mark.parametrize("factor", [1, 64])
def test_the_unit_follows_from_what_the_first_card_offers(factor):
    """So many ids of a card of that size can come of one factor only."""
    assert unit(two_cards(), by_factor(factor)) == factor * MIB


@pytest.mark.parametrize("factor", [256, 1024, 16 * 1024])
def test_an_ambiguous_unit_is_unknown(factor):
    """With so few ids several factors would give as many."""
    assert unit(two_cards(), by_factor(factor)) is None


def test_without_an_offer_or_a_size_the_unit_is_unknown():
    """An old kubelet reports no offer; a GPU that does not answer has no size."""
    assert unit(two_cards(), None) is None
    assert unit([numbered(0, 0, memory=None)], by_factor(100, (0,)), "0") is None


def test_the_size_of_the_first_card_counts_for_all():
    """The plugin takes the first card's memory for every card's: a larger one offers no more."""
    gpus = [numbered(0, 0, UUID), numbered(1, 1, OTHER_UUID, memory=memory(0, 32 * GIB))]
    holdings = resolve(gpus, has("a", {MEMORY: 30}), by_factor(10), pods=pods(pod("a", assigned("1"))))
    assert shares(holdings, "a") == {OTHER_UUID: (300 * MIB, None)}
    slices = {key.uuid: device.slices for key, device in holdings.devices.items()}
    assert slices[OTHER_UUID] == (SliceCount(MEMORY, 1638, 30),)


def test_all_containers_of_a_pod_share_its_card():
    allocated = has("a", {MEMORY: 10}, "first") + has("a", {MEMORY: 20}, "second")
    two = pods(pod("a", assigned("1"), containers=("first", "second", "third")))
    holdings = resolve(two_cards(), allocated, by_factor(64), pods=two)
    assert shares(holdings, "a", "first") == {OTHER_UUID: (640 * MIB, None)}
    assert shares(holdings, "a", "second") == {OTHER_UUID: (1280 * MIB, None)}
    assert shares(holdings, "a", "third") == {}


def test_whole_cards_are_those_of_the_annotation():
    """server.go Allocate gives the cards of the annotation, whatever UUIDs the kubelet picked."""
    allocated = [Allocation(container("a"), NUMBER, UUID)]
    offered = [OfferedDevice(NUMBER, UUID), OfferedDevice(NUMBER, OTHER_UUID)]
    holdings = resolve(two_cards(), allocated, offered, pods=pods(pod("a", assigned("1"))))
    assert shares(holdings, "a") == {OTHER_UUID: (16 * GIB, 1.0)}
    devices = {key.uuid: device for key, device in holdings.devices.items()}
    assert (devices[OTHER_UUID].exclusive, devices[OTHER_UUID].slices) == (True, (SliceCount(NUMBER, 1, 1),))
    assert devices[UUID].slices == (SliceCount(NUMBER, 1, 0),)
    # Without the annotation the UUID means no card, also if that GPU is here.
    holdings = resolve(two_cards(), allocated, pods=pods(pod("a")))
    assert (holdings.holdings, holdings.unresolved) == ((), {NUMBER: 1})


@given(st.integers(1, 200), st.integers(1, 20_000))
def test_a_unit_is_right_or_unknown(total, factor):
    gpus = [gpu(memory=memory(0, total * MIB))]
    assert unit(gpus, by_factor(factor, (0,), total), "0") in {None, factor * MIB}
