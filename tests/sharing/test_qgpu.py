"""Tencent's qGPU: percents and gibibytes, spread evenly; the card only where it is told or can be no other.

Of the vendor: tencentcloud.com/document/product/457/59103 and cloud.tencent.com/document/product/457/127667.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import SliceCount
from tests.attribution.build import GIB, UUID
from tests.sharing.build import OTHER_UUID, container, pod, pods, resolve
from tests.sharing.cards import counted, has, offers, one_card, shares, two_cards

PREFIX = "tke.cloud.tencent.com/"
CORE, MEMORY, GREEDY = (f"{PREFIX}{name}" for name in ("qgpu-core", "qgpu-memory", "qgpu-core-greedy"))


def listed(cards, name="main", assumed="true") -> dict[str, str]:
    """Annotate a pod as Elastic GPU's scheduler does."""
    return {f"elasticgpu.io/container-{name}": cards, "elasticgpu.io/assumed": assumed}


def test_a_share_is_of_the_only_card():
    """50 percents and 5 GiB (the vendor's example) on a node with one GPU need no annotation."""
    holdings = resolve(one_card(), has("a", {CORE: 50, MEMORY: 5}), pods=pods(pod("a")))
    assert shares(holdings, "a") == {UUID: (5 * GIB, 0.5)}
    assert {(each.sharing, each.isolation) for each in holdings.holdings} == {("qgpu", "hard")}


@pytest.mark.parametrize(
    ("core", "memory", "each"),
    [(160, 60, (30 * GIB, 0.8)), (121, 31, (15 * GIB, 0.6)), (200, 8, (16 * GIB, 1.0))],
)
def test_more_than_a_card_is_spread_evenly_and_rounded_down(core, memory, each):
    """The vendor's examples: 160 and 60 are twice 80 and 30, 121 and 31 are twice 60 and 15.

    Multiples of a hundred are whole cards, with all their memory.
    """
    both = pods(pod("a", listed("0,1")))
    holdings = resolve(two_cards(), has("a", {CORE: core, MEMORY: memory}), pods=both)
    assert shares(holdings, "a") == {UUID: each, OTHER_UUID: each}


def test_memory_alone_states_no_computing_power():
    """An online pod asks for memory only: its share of computing power is not known, and not zero."""
    holdings = resolve(one_card(), has("a", {MEMORY: 3}), pods=pods(pod("a")))
    assert shares(holdings, "a") == {UUID: (3 * GIB, None)}


@pytest.mark.parametrize("memory", [4, 0])
def test_what_others_leave_is_no_entitlement(memory):
    """An offline pod holds the card, and nothing of its computing power is its own."""
    amounts = {GREEDY: 60} | ({MEMORY: memory} if memory else {})
    holdings = resolve(one_card(), has("a", amounts), pods=pods(pod("a")))
    assert shares(holdings, "a") == {UUID: (memory * GIB or None, None)}


def test_a_card_among_several_is_not_guessed():
    """Two GPUs and no annotation: the ids are unresolved."""
    found, problems = counted(two_cards(), has("a", {CORE: 50, MEMORY: 5}), pods=pods(pod("a")))
    assert not found.holdings
    assert found.unresolved == {CORE: 50, MEMORY: 5}
    assert not problems


def test_several_containers_have_cards_of_their_own():
    """The annotation names the container, and the number is the driver's, not the device file's."""
    annotations = listed("0", "first") | listed("1", "second")
    allocated = has("a", {CORE: 20, MEMORY: 2}, "first") + has("a", {CORE: 30, MEMORY: 3}, "second")
    two = pods(pod("a", annotations, containers=("first", "second")))
    holdings = resolve(two_cards(), allocated, pods=two)
    assert shares(holdings, "a", "first") == {UUID: (2 * GIB, 0.2)}
    assert shares(holdings, "a", "second") == {OTHER_UUID: (3 * GIB, 0.3)}


def test_a_card_that_is_not_here_is_unresolved():
    """An annotation that names no GPU of this node gives the ids to none."""
    found = resolve(two_cards(), has("a", {CORE: 50, MEMORY: 5}), pods=pods(pod("a", listed("5"))))
    assert found.unresolved == {CORE: 50, MEMORY: 5}
    assert found.unresolved_holders == {container("a")}


@pytest.mark.parametrize("cards", ["0", "nope", "0,0"])
def test_a_list_that_cannot_be_is_counted(cards):
    """160 percents are of two cards at least; what is no list is none."""
    found, problems = counted(
        two_cards(), has("a", {CORE: 160, MEMORY: 6}), pods=pods(pod("a", listed(cards)))
    )
    assert not found.holdings
    assert problems == {"qgpu_annotation": 1}


def test_a_card_that_is_only_wished_for_is_not_held():
    """What is not assumed yet is the scheduler's business."""
    found = resolve(two_cards(), has("a", {CORE: 5}), pods=pods(pod("a", listed("0", assumed="false"))))
    assert found.unresolved == {CORE: 5}


def test_each_card_offers_a_hundred_percents():
    """How ids are spelled is not known, and that there is a hundred for each card is."""
    offered = offers({CORE: 200, MEMORY: 28})
    found = resolve(two_cards(), has("a", {CORE: 50, MEMORY: 5}), offered, pods=pods(pod("a", listed("1"))))
    by_uuid = {key.uuid: sharing for key, sharing in found.devices.items()}
    assert by_uuid[UUID].slices == (SliceCount(CORE, 100, 0),)
    assert by_uuid[OTHER_UUID].slices == (SliceCount(CORE, 100, 50), SliceCount(MEMORY, None, 5))


def test_over_commit_shows():
    """Best effort lets shares add up to more than a card."""
    allocated = has("a", {CORE: 80, MEMORY: 10}) + has("b", {CORE: 60, MEMORY: 10})
    holdings = resolve(one_card(), allocated, pods=pods(pod("a"), pod("b")))
    assert sum(each.compute_entitled for each in holdings.holdings) == pytest.approx(1.4)


def test_without_pods_it_is_blind_on_several_cards_only():
    """With one card there is nothing to be told."""
    assert set(resolve(two_cards(), has("a", {CORE: 50})).blind) == {"qgpu"}
    alone = resolve(one_card(), has("a", {CORE: 50}))
    assert (alone.blind, shares(alone, "a")) == ({}, {UUID: (None, 0.5)})


@given(st.text(max_size=40), st.integers(0, 300), st.integers(0, 20))
def test_any_annotation_is_a_list_or_an_objection(text, core, memory):
    """Whatever stands there: no more is entitled than was asked for, and nothing raises."""
    found, problems = counted(
        two_cards(), has("a", {CORE: core, MEMORY: memory}), pods=pods(pod("a", listed(text)))
    )
    assert set(problems) <= {"qgpu_annotation"}
    assert sum(each.compute_entitled or 0 for each in found.holdings) <= core / 100
    assert sum(each.slices for each in found.holdings) <= core + memory
