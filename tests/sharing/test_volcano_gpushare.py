"""Volcano's GPU sharing: memory in units of the plugin, and whole cards, by the annotation of the pod.

Upstream: volcano-sh/devices pkg/plugin/nvidia, volcano-sh/volcano pkg/scheduler/api/devices/nvidia/gpushare.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, OfferedDevice, SliceCount
from tests.attribution.build import GIB, UUID, gpu, memory
from tests.sharing.build import OTHER_UUID, container, numbered, only, pod, pods, resolve
from tests.sharing.cards import MIB, counted, has, one_card, shares, two_cards

MEMORY, NUMBER = "volcano.sh/gpu-memory", "volcano.sh/gpu-number"


def assigned(cards="0", word="true") -> dict[str, str]:
    """Annotate a pod as the scheduler and the plugin do."""
    return {"volcano.sh/gpu-index": cards, "volcano.sh/gpu-assigned": word, "volcano.sh/predicate-time": "1"}


def by_factor(factor, cards=(0, 1), mebibytes=16 * 1024) -> list[OfferedDevice]:
    """Offer what the plugin offers when it is told this factor (utils.go GetDevices)."""
    return [
        OfferedDevice(MEMORY, f"{card}-{number}") for card in cards for number in range(mebibytes // factor)
    ]


@pytest.mark.parametrize("factor", [1, 2, 10, 64, 100])
def test_the_unit_is_worked_out_from_what_the_first_card_offers(factor):
    """So many ids of a card of that size can come of one factor only."""
    holdings = resolve(
        two_cards(), has("a", {MEMORY: 3}), by_factor(factor), pods=pods(pod("a", assigned("1")))
    )
    assert shares(holdings, "a") == {OTHER_UUID: (3 * factor * MIB, None)}
    assert {(each.sharing, each.isolation) for each in holdings.holdings} == {("volcano-gpushare", "none")}


@pytest.mark.parametrize("factor", [256, 1000, 1024, 5000, 16 * 1024])
def test_a_unit_that_cannot_be_told_is_not_made_up(factor):
    """With so few ids several factors would give as many: the memory is unknown, the holder is not."""
    holding = only(
        resolve(two_cards(), has("a", {MEMORY: 3}), by_factor(factor), pods=pods(pod("a", assigned("1"))))
    )
    assert (holding.device.uuid, holding.slices, holding.memory_entitled) == (OTHER_UUID, 3, None)


@pytest.mark.parametrize("gpus", [two_cards(), [numbered(0, 0, memory=None)]])
def test_without_an_offer_or_a_size_the_unit_is_unknown(gpus):
    """An old kubelet tells no offer; a GPU that does not answer tells no size."""
    offered = None if len(gpus) > 1 else by_factor(1, (0,))
    holding = only(resolve(gpus, has("a", {MEMORY: 3}), offered, pods=pods(pod("a", assigned("0")))))
    assert (holding.slices, holding.memory_entitled) == (3, None)


def test_the_size_of_the_first_card_counts_for_all():
    """The plugin takes the first card's memory for every card's: a larger one offers no more."""
    gpus = [numbered(0, 0, UUID), numbered(1, 1, OTHER_UUID, memory=memory(0, 32 * GIB))]
    holdings = resolve(gpus, has("a", {MEMORY: 30}), by_factor(10), pods=pods(pod("a", assigned("1"))))
    assert shares(holdings, "a") == {OTHER_UUID: (300 * MIB, None)}
    slices = {key.uuid: sharing.slices for key, sharing in holdings.devices.items()}
    assert slices[OTHER_UUID] == (SliceCount(MEMORY, 1638, 30),)


def test_all_containers_of_a_pod_share_its_card():
    """The annotation is the pod's: each of its containers has its own part of that card."""
    allocated = has("a", {MEMORY: 10}, "first") + has("a", {MEMORY: 20}, "second")
    two = pods(pod("a", assigned("1"), containers=("first", "second", "third")))
    holdings = resolve(two_cards(), allocated, by_factor(1), pods=two)
    assert shares(holdings, "a", "first") == {OTHER_UUID: (10 * MIB, None)}
    assert shares(holdings, "a", "second") == {OTHER_UUID: (20 * MIB, None)}
    assert shares(holdings, "a", "third") == {}


def test_whole_cards_are_those_of_the_annotation():
    """server.go Allocate gives the cards of the annotation, whatever UUIDs the kubelet picked."""
    allocated = [Allocation(container("a"), NUMBER, UUID)]
    offered = [OfferedDevice(NUMBER, UUID), OfferedDevice(NUMBER, OTHER_UUID)]
    found = resolve(two_cards(), allocated, offered, pods=pods(pod("a", assigned("1"))))
    assert shares(found, "a") == {OTHER_UUID: (16 * GIB, 1.0)}
    by_uuid = {key.uuid: sharing for key, sharing in found.devices.items()}
    assert (by_uuid[OTHER_UUID].exclusive, by_uuid[OTHER_UUID].slices) == (True, (SliceCount(NUMBER, 1, 1),))
    assert by_uuid[UUID].slices == (SliceCount(NUMBER, 1, 0),)


def test_several_whole_cards():
    """share.go writes "0,1" for two."""
    found = resolve(two_cards(), has("a", {NUMBER: 2}), pods=pods(pod("a", assigned("0,1"))))
    assert shares(found, "a") == {UUID: (16 * GIB, 1.0), OTHER_UUID: (16 * GIB, 1.0)}


def test_a_uuid_without_the_annotation_tells_no_card():
    """The kubelet's UUID is not what the plugin gives: it is unresolved, also where that GPU is here."""
    found = resolve(two_cards(), [Allocation(container("a"), NUMBER, UUID)], pods=pods(pod("a")))
    assert (found.holdings, found.unresolved) == ((), {NUMBER: 1})


@pytest.mark.parametrize("annotations", [{}, assigned(word="false"), {"volcano.sh/gpu-index": "0"}])
def test_a_wish_is_no_holding(annotations):
    """The scheduler writes the card before the plugin gives it: until then the ids are unresolved."""
    found, problems = counted(two_cards(), has("a", {MEMORY: 3}), pods=pods(pod("a", annotations)))
    assert (found.holdings, found.unresolved, problems) == ((), {MEMORY: 3}, {})


@pytest.mark.parametrize("text", ["", "0,", "-1", "0,0", "0,1", "x", "0x1", "1e1"])
def test_a_malformed_annotation_costs_its_pod_only(text):
    """It is counted once; a part of memory is of one card."""
    both = pods(pod("bad", assigned(text)), pod("good", assigned("1")))
    found, problems = counted(two_cards(), has("bad", {MEMORY: 3}) + has("good", {MEMORY: 4}), pods=both)
    assert list(shares(found, "good")) == [OTHER_UUID]
    assert found.unresolved == {MEMORY: 3}
    assert problems == {"volcano_gpushare_annotation": 1}


def test_a_card_that_is_not_here_is_unresolved():
    """The number is beyond the GPUs of this node."""
    found = resolve(two_cards(), has("a", {MEMORY: 3}), pods=pods(pod("a", assigned("4"))))
    assert (found.holdings, found.unresolved) == ((), {MEMORY: 3})


def test_over_commit_shows():
    """A pod may set the index itself: more than the card has is shown."""
    allocated = has("a", {MEMORY: 10_000}) + has("b", {MEMORY: 9000})
    two = pods(pod("a", assigned("0")), pod("b", assigned("0")))
    holdings = resolve(two_cards(), allocated, by_factor(1), pods=two)
    assert sum(each.memory_entitled for each in holdings.holdings) == 19_000 * MIB


def test_without_pods_it_is_blind_on_several_cards_only():
    """With one card there is nothing to be told."""
    assert set(resolve(two_cards(), has("a", {MEMORY: 3})).blind) == {"volcano-gpushare"}
    alone = resolve(one_card(), has("a", {MEMORY: 3}), by_factor(1, (0,)))
    assert (alone.blind, shares(alone, "a")) == ({}, {UUID: (3 * MIB, None)})


@given(st.integers(1, 200), st.integers(1, 20_000))
def test_a_unit_is_right_or_unknown(total, factor):
    """Whatever the plugin was told and however large the card is: the memory stated is never another."""
    gpus = [gpu(memory=memory(0, total * MIB))]
    found = resolve(
        gpus, has("a", {MEMORY: 2}), by_factor(factor, (0,), total), pods=pods(pod("a", assigned("0")))
    )
    assert only(found).memory_entitled in {None, 2 * factor * MIB}


@given(st.text(max_size=40), st.integers(1, 3))
def test_any_annotation_is_a_list_or_an_objection(text, number):
    """Whatever stands there, the ids are held or unresolved, and nothing raises."""
    found, problems = counted(two_cards(), has("a", {NUMBER: number}), pods=pods(pod("a", assigned(text))))
    assert set(problems) <= {"volcano_gpushare_annotation"}
    assert sum(each.slices for each in found.holdings) <= number
