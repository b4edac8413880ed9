"""Elastic GPU: percents and mebibytes of the cards that an annotation lists.

Upstream: elastic-ai/elastic-gpu-agent pkg/plugins, elastic-ai/elastic-gpu-scheduler pkg/scheduler.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, OfferedDevice, SliceCount
from tests.attribution.build import GIB, UUID
from tests.sharing.build import OTHER_UUID, container, only, pod, pods, resolve
from tests.sharing.cards import MIB, counted, has, one_card, shares, two_cards

CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"


def listed(assumed="true", **cards) -> dict[str, str]:
    """Annotate a pod as the scheduler does (pod.go GetUpdatedPodAnnotationSpec): cards by container."""
    named = {f"elasticgpu.io/container-{name}": text for name, text in cards.items()}
    return named | {"elasticgpu.io/assumed": assumed}


@pytest.mark.parametrize("group", ["elasticgpu.io", "elasticgpu.com"])
def test_both_spellings_of_the_group_are_known(group):
    """The agent's resources and those of the types' repository differ by their group only."""
    allocated = has("a", {f"{group}/gpu-core": 30, f"{group}/gpu-memory": 256})
    holdings = resolve(two_cards(), allocated, pods=pods(pod("a", listed(main="1"))))
    assert shares(holdings, "a") == {OTHER_UUID: (256 * MIB, 0.3)}
    assert {(each.sharing, each.isolation) for each in holdings.holdings} == {("elastic-gpu", "none")}


def test_the_annotation_counts_and_not_the_number_in_the_ids():
    """The kubelet picks ids of any card; the agent gives the one that the scheduler wrote down."""
    allocated = [Allocation(container("a"), CORE, f"0-{number:02d}") for number in range(30)]
    holding = only(resolve(two_cards(), allocated, pods=pods(pod("a", listed(main="1")))))
    assert (holding.device.uuid, holding.slices, holding.compute_entitled) == (OTHER_UUID, 30, 0.3)


def test_memory_alone_states_no_computing_power():
    """gpu-memory "256" of the agent's README: no share of computing power is stated."""
    holding = only(resolve(two_cards(), has("a", {MEMORY: 256}), pods=pods(pod("a", listed(main="0")))))
    assert (holding.memory_entitled, holding.compute_entitled) == (256 * MIB, None)


def test_computing_power_alone_states_no_memory():
    """A part of a card without memory is entitled to none that is known."""
    holding = only(resolve(two_cards(), has("a", {CORE: 20}), pods=pods(pod("a", listed(main="0")))))
    assert (holding.memory_entitled, holding.compute_entitled) == (None, 0.2)


def test_whole_cards_are_had_with_all_their_memory():
    """gpu-core "200" of the agent's README: two cards; allocate.go leaves memory out of account there."""
    holdings = resolve(two_cards(), has("a", {CORE: 200, MEMORY: 5}), pods=pods(pod("a", listed(main="1,0"))))
    assert shares(holdings, "a") == {UUID: (16 * GIB, 1.0), OTHER_UUID: (16 * GIB, 1.0)}
    assert all(sharing.exclusive for sharing in holdings.devices.values())


def test_what_is_beyond_a_hundred_is_one_whole_card():
    """allocate.go divides by a hundred and forgets the rest: 150 percents are one card."""
    holdings = resolve(two_cards(), has("a", {CORE: 150}), pods=pods(pod("a", listed(main="1"))))
    assert shares(holdings, "a") == {OTHER_UUID: (16 * GIB, 1.0)}


def test_several_containers_have_cards_of_their_own():
    """Each container has an annotation by its name; one without ids has nothing."""
    allocated = has("a", {CORE: 20, MEMORY: 10}, "first") + has("a", {MEMORY: 30}, "second")
    three = pod("a", listed(first="0", second="1", third="1"), containers=("first", "second", "third"))
    holdings = resolve(two_cards(), allocated, pods=pods(three))
    assert shares(holdings, "a", "first") == {UUID: (10 * MIB, 0.2)}
    assert shares(holdings, "a", "second") == {OTHER_UUID: (30 * MIB, None)}
    assert shares(holdings, "a", "third") == {}


@pytest.mark.parametrize(
    "annotations",
    [{}, listed("false", main="0"), listed(other="0"), {"elasticgpu.io/container-main": "0"}],
)
def test_what_is_not_assumed_is_not_held(annotations):
    """Without the scheduler's word for this container its ids are unresolved, and nothing is malformed."""
    found, problems = counted(two_cards(), has("a", {CORE: 20}), pods=pods(pod("a", annotations)))
    assert (found.holdings, found.unresolved, problems) == ((), {CORE: 20}, {})


@pytest.mark.parametrize("text", ["", "-1", "0,", "0,1", "0 ", "GPU-0", "99999"])
def test_a_malformed_annotation_costs_its_container_only(text):
    """It is counted once; a part of a card cannot be of two."""
    both = pods(pod("bad", listed(main=text)), pod("good", listed(main="1")))
    found, problems = counted(two_cards(), has("bad", {CORE: 20}) + has("good", {CORE: 10}), pods=both)
    assert shares(found, "good") == {OTHER_UUID: (None, 0.1)}
    assert found.unresolved == {CORE: 20}
    assert problems == {"elastic_gpu_annotation": 1}


def test_a_card_that_is_not_here_is_unresolved():
    """The number is beyond the GPUs of this node."""
    found = resolve(two_cards(), has("a", {CORE: 20}), pods=pods(pod("a", listed(main="9"))))
    assert (found.holdings, found.unresolved) == ((), {CORE: 20})


def test_offered_ids_are_counted_on_the_card_of_their_number():
    """gpushare.go spells ids "%d-%02d": beyond 99 the second number is longer."""
    ids = [f"{card}-{number:02d}" for card in (0, 1) for number in range(120)] + ["7-00", "0-1", "x"]
    offered = [OfferedDevice(MEMORY, each) for each in ids]
    found = resolve(two_cards(), has("a", {MEMORY: 50}), offered, pods=pods(pod("a", listed(main="1"))))
    slices = {key.uuid: sharing.slices for key, sharing in found.devices.items()}
    assert slices == {UUID: (SliceCount(MEMORY, 120, 0),), OTHER_UUID: (SliceCount(MEMORY, 120, 50),)}


def test_over_commit_shows():
    """Two containers with more memory than the card has are shown with it."""
    allocated = has("a", {MEMORY: 10_000}) + has("b", {MEMORY: 9000})
    holdings = resolve(
        two_cards(), allocated, pods=pods(pod("a", listed(main="0")), pod("b", listed(main="0")))
    )
    assert sum(each.memory_entitled for each in holdings.holdings) == 19_000 * MIB


def test_without_pods_it_is_blind_on_several_cards_only():
    """With one card there is nothing to be told."""
    assert set(resolve(two_cards(), has("a", {CORE: 50})).blind) == {"elastic-gpu"}
    assert shares(resolve(one_card(), has("a", {CORE: 50})), "a") == {UUID: (None, 0.5)}


@given(st.text(max_size=40), st.integers(1, 250))
def test_any_annotation_is_a_list_or_an_objection(text, core):
    """Whatever stands there, the ids are held or unresolved, and nothing raises."""
    found, problems = counted(two_cards(), has("a", {CORE: core}), pods=pods(pod("a", listed(main=text))))
    assert set(problems) <= {"elastic_gpu_annotation"}
    assert sum(each.slices for each in found.holdings) <= core
