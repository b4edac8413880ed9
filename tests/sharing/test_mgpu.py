"""Volcengine's mGPU: percents and mebibytes, spread evenly over the cards that an annotation lists.

The examples are those of the design text and the code of the mGPU plugin for Volcano.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import SliceCount
from tests.attribution.build import GIB, UUID
from tests.sharing.build import OTHER_UUID, container, pod, pods, resolve
from tests.sharing.cards import MIB, counted, has, offers, one_card, shares, two_cards

PREFIX = "vke.volcengine.com/"
CORE, MEMORY = f"{PREFIX}mgpu-core", f"{PREFIX}mgpu-memory"


def listed(assumed="true", **cards) -> dict[str, str]:
    """Annotate a pod as the scheduler does: cards by container."""
    named = {f"{PREFIX}gpu-index-container-{name}": text for name, text in cards.items()}
    return named | {f"{PREFIX}assumed": assumed}


def test_a_share_is_percents_and_mebibytes_of_its_card():
    """mgpu-core 30 and mgpu-memory 4096, with gpu-index-container-c1 "1"."""
    allocated = has("a", {CORE: 30, MEMORY: 4096}, "c1")
    holdings = resolve(two_cards(), allocated, pods=pods(pod("a", listed(c1="1"), containers=("c1",))))
    assert shares(holdings, "a", "c1") == {OTHER_UUID: (4 * GIB, 0.3)}
    assert {(each.sharing, each.isolation) for each in holdings.holdings} == {("mgpu", "hard")}


def test_a_container_can_be_named_by_its_number():
    """The other form of the design text: gpu-index-container-1 is the second container."""
    annotations = listed(**{"0": "0", "1": "1"})
    allocated = has("a", {CORE: 10, MEMORY: 256}, "first") + has("a", {CORE: 20, MEMORY: 512}, "second")
    two = pods(pod("a", annotations, containers=("first", "second"), init=("prepare",)))
    holdings = resolve(two_cards(), allocated, pods=two)
    assert shares(holdings, "a", "first") == {UUID: (256 * MIB, 0.1)}
    assert shares(holdings, "a", "second") == {OTHER_UUID: (512 * MIB, 0.2)}


def test_a_container_on_several_cards_has_an_even_part_of_each():
    """container-multiple-gpu "2": 100 percents and 8192 MiB are half a card and 4096 MiB on either."""
    annotations = listed(main="1,0") | {f"{PREFIX}container-multiple-gpu": "2"}
    holdings = resolve(two_cards(), has("a", {CORE: 100, MEMORY: 8192}), pods=pods(pod("a", annotations)))
    assert shares(holdings, "a") == {UUID: (4 * GIB, 0.5), OTHER_UUID: (4 * GIB, 0.5)}
    assert not any(sharing.exclusive for sharing in holdings.devices.values())


def test_parts_are_rounded_down():
    """The plugin divides whole numbers: 31 percents over two cards are 15 on each."""
    holdings = resolve(
        two_cards(), has("a", {CORE: 31, MEMORY: 301}), pods=pods(pod("a", listed(main="0,1")))
    )
    assert shares(holdings, "a") == {UUID: (150 * MIB, 0.15), OTHER_UUID: (150 * MIB, 0.15)}


def test_full_cards_are_had_with_all_their_memory():
    """A multiple of a hundred without memory is as many whole cards."""
    holdings = resolve(two_cards(), has("a", {CORE: 200}), pods=pods(pod("a", listed(main="0,1"))))
    assert shares(holdings, "a") == {UUID: (16 * GIB, 1.0), OTHER_UUID: (16 * GIB, 1.0)}
    assert all(sharing.exclusive for sharing in holdings.devices.values())


def test_cards_can_be_named_by_their_uuids():
    """The scheduler's mode "id" writes ids in place of numbers."""
    holdings = resolve(two_cards(), has("a", {CORE: 30, MEMORY: 300}), pods=pods(pod("a", listed(main=UUID))))
    assert shares(holdings, "a") == {UUID: (300 * MIB, 0.3)}


@pytest.mark.parametrize(
    "annotations",
    [{}, listed("false", main="0"), listed(other="0"), {f"{PREFIX}gpu-index-container-main": "0"}],
)
def test_what_is_not_assumed_is_not_held(annotations):
    """Without the scheduler's word for this container its ids are unresolved."""
    found, problems = counted(
        two_cards(), has("a", {CORE: 30, MEMORY: 300}), pods=pods(pod("a", annotations))
    )
    assert (found.holdings, found.unresolved, problems) == ((), {CORE: 30, MEMORY: 300}, {})


@pytest.mark.parametrize("text", ["", "0,", "-1", "0,0", "x", "GPU-1", f"{UUID}::1", f"MIG-{UUID}"])
def test_a_malformed_annotation_costs_its_container_only(text):
    """It is counted once, and the pod beside it is as ever."""
    both = pods(pod("bad", listed(main=text)), pod("good", listed(main="1")))
    allocated = has("bad", {CORE: 30, MEMORY: 300}) + has("good", {CORE: 10, MEMORY: 100})
    found, problems = counted(two_cards(), allocated, pods=both)
    assert shares(found, "good") == {OTHER_UUID: (100 * MIB, 0.1)}
    assert found.unresolved == {CORE: 30, MEMORY: 300}
    assert problems == {"mgpu_annotation": 1}


def test_fewer_cards_than_the_percents_need_are_malformed():
    """200 percents cannot be of one card."""
    found, problems = counted(two_cards(), has("a", {CORE: 200}), pods=pods(pod("a", listed(main="0"))))
    assert not found.holdings
    assert problems == {"mgpu_annotation": 1}


def test_of_two_cards_one_may_be_missing():
    """What is of the card that is here is shown, and the rest is unresolved."""
    found = resolve(two_cards(), has("a", {CORE: 40, MEMORY: 400}), pods=pods(pod("a", listed(main="1,7"))))
    assert shares(found, "a") == {OTHER_UUID: (200 * MIB, 0.2)}
    assert found.unresolved == {CORE: 20, MEMORY: 200}
    assert found.unresolved_holders == {container("a")}


def test_each_card_offers_a_hundred_percents():
    """mgpu-core "200" are two cards; how the mebibytes are divided is not told."""
    offered = offers({CORE: 200, MEMORY: 30_218})
    found = resolve(
        two_cards(), has("a", {CORE: 30, MEMORY: 300}), offered, pods=pods(pod("a", listed(main="0")))
    )
    slices = {key.uuid: sharing.slices for key, sharing in found.devices.items()}
    assert slices[UUID] == (SliceCount(CORE, 100, 30), SliceCount(MEMORY, None, 300))
    assert slices[OTHER_UUID] == (SliceCount(CORE, 100, 0),)


def test_over_commit_shows():
    """Shares that add up to more than a card are shown as they are."""
    allocated = has("a", {CORE: 80, MEMORY: 9000}) + has("b", {CORE: 60, MEMORY: 9000})
    two = pods(pod("a", listed(main="0")), pod("b", listed(main="0")))
    holdings = resolve(two_cards(), allocated, pods=two)
    assert sum(each.compute_entitled for each in holdings.holdings) == pytest.approx(1.4)
    assert sum(each.memory_entitled for each in holdings.holdings) == 18_000 * MIB


def test_without_pods_it_is_blind_on_several_cards_only():
    """With one card there is nothing to be told."""
    assert set(resolve(two_cards(), has("a", {CORE: 50, MEMORY: 300})).blind) == {"mgpu"}
    assert shares(resolve(one_card(), has("a", {CORE: 50, MEMORY: 300})), "a") == {UUID: (300 * MIB, 0.5)}


@given(st.text(max_size=40), st.integers(0, 250), st.integers(0, 30))
def test_any_annotation_is_a_list_or_an_objection(text, core, memory):
    """Whatever stands there: no more is held than there are ids, and nothing raises."""
    annotated = pods(pod("a", listed(main=text)))
    found, problems = counted(two_cards(), has("a", {CORE: core, MEMORY: memory}), pods=annotated)
    assert set(problems) <= {"mgpu_annotation"}
    assert sum(each.slices for each in found.holdings) <= core + memory
