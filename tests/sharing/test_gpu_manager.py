"""Tencent's gpu-manager: whose percents and blocks of which card.

Upstream: tkestack/gpu-manager, tkestack/gpu-admission.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ContainerFile, DeviceUse, SliceCount, SystemFiles
from tests.attribution.build import GIB, MIG, UUID, mig, mig_gpu
from tests.sharing.build import OTHER_UUID, container, numbered, only, pod, pods, resolve
from tests.sharing.cards import MIB, counted, has, offers, one_card, shares, two_cards

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
IDX, ASSIGNED = "tencent.com/predicate-gpu-idx-", "tencent.com/gpu-assigned"


def assigned(cards="0", place=0, **more) -> dict[str, str]:
    """Annotate a pod as gpu-manager does before its container starts."""
    return {f"{IDX}{place}": cards, ASSIGNED: "true", "tencent.com/predicate-time": "1"} | more


def test_a_share_is_percents_and_blocks_of_the_card_with_that_minor():
    """30 percents and 4 blocks of 256 MiB on /dev/nvidia0, which is the driver's second GPU."""
    holdings = resolve(two_cards(), has("a", {CORE: 30, MEMORY: 4}), pods=pods(pod("a", assigned("0"))))
    assert shares(holdings, "a") == {OTHER_UUID: (1024 * MIB, 0.3)}
    assert {(each.sharing, each.isolation) for each in holdings.holdings} == {("gpu-manager", "soft")}
    assert not holdings.unresolved


def test_the_soft_limit_is_no_entitlement():
    """How far a container may go while others leave room is not what it is entitled to."""
    annotations = assigned("1", **{"tencent.com/vcuda-core-limit": "80"})
    holdings = resolve(two_cards(), has("a", {CORE: 25, MEMORY: 8}), pods=pods(pod("a", annotations)))
    assert shares(holdings, "a") == {UUID: (2048 * MIB, 0.25)}


def test_whole_cards_are_had_with_all_their_memory():
    """200 percents are two cards, whatever memory is asked for beside them: it is not limited there."""
    allocated = has("a", {CORE: 200, MEMORY: 4})
    holdings = resolve(two_cards(), allocated, pods=pods(pod("a", assigned("0,1"))))
    assert shares(holdings, "a") == {UUID: (16 * GIB, 1.0), OTHER_UUID: (16 * GIB, 1.0)}
    assert all(sharing.exclusive for sharing in holdings.devices.values())
    assert [each.slices for each in holdings.holdings] == [100, 100]


def test_a_whole_card_whose_memory_is_not_known_states_none():
    """A GPU that does not answer keeps its holder, and its memory is not made up."""
    dead = numbered(0, 0, memory=None)
    holding = only(resolve([dead], has("a", {CORE: 100}), pods=pods(pod("a", assigned("0")))))
    assert (holding.memory_entitled, holding.compute_entitled) == (None, 1.0)


def test_containers_are_counted_without_those_for_the_start():
    """tkestack/gpu-manager allocator.go numbers spec.containers: the second is 1, whatever starts first."""
    annotations = assigned("0", place=0) | assigned("1", place=1)
    both = pod("a", annotations, containers=("first", "second"), init=("prepare",))
    allocated = has("a", {CORE: 10, MEMORY: 1}, "first") + has("a", {CORE: 20, MEMORY: 2}, "second")
    holdings = resolve(two_cards(), allocated, pods=pods(both))
    assert shares(holdings, "a", "first") == {OTHER_UUID: (256 * MIB, 0.1)}
    assert shares(holdings, "a", "second") == {UUID: (512 * MIB, 0.2)}


@pytest.mark.parametrize("word", ["false", "True", "", None])
def test_a_wish_is_no_holding(word):
    """The scheduler writes predicate-gpu-idx-0 "0" and gpu-assigned "false" (gpu-manager server_test.go)."""
    annotations = {f"{IDX}0": "0"} | ({ASSIGNED: word} if word is not None else {})
    found, problems = counted(two_cards(), has("a", {CORE: 30, MEMORY: 4}), pods=pods(pod("a", annotations)))
    assert not found.holdings
    assert found.unresolved == {CORE: 30, MEMORY: 4}
    assert not problems


def test_without_ids_nothing_is_held():
    """An annotation outlives the container that it is about: the kubelet's ids say who is here."""
    found, problems = counted(two_cards(), [], pods=pods(pod("a", assigned("0"))))
    assert not found.holdings
    assert not problems


@pytest.mark.parametrize(
    "text",
    ["", ",", "0,", "-1", "0x0", "1_0", " 0", "٣", "0,0", "12345", "0;1", "9" * 5000, "0," * 3000 + "0"],
)
def test_a_malformed_annotation_costs_its_container_only(text):
    """It is counted once, its ids are unresolved, and the pod beside it is as ever."""
    both = pods(pod("bad", assigned(text)), pod("good", assigned("1")))
    allocated = has("bad", {CORE: 30, MEMORY: 4}) + has("good", {CORE: 10, MEMORY: 1})
    found, problems = counted(two_cards(), allocated, pods=both)
    assert shares(found, "good") == {UUID: (256 * MIB, 0.1)}
    assert found.unresolved == {CORE: 30, MEMORY: 4}
    assert problems == {"gpu_manager_annotation": 1}


@pytest.mark.parametrize(("cards", "percents"), [("0,1", 50), ("0", 200), ("0,1", 100)])
def test_a_list_that_cannot_be_of_that_many_percents_is_malformed(cards, percents):
    """A share is of one card, and n hundred percents are n cards: nothing else is given out."""
    found, problems = counted(
        two_cards(), has("a", {CORE: percents, MEMORY: 1}), pods=pods(pod("a", assigned(cards)))
    )
    assert not found.holdings
    assert problems == {"gpu_manager_annotation": 1}


def test_a_card_that_is_not_here_is_unresolved():
    """The holder and its ids are counted, and held of no other card."""
    found, problems = counted(
        two_cards(), has("a", {CORE: 30, MEMORY: 4}), pods=pods(pod("a", assigned("7")))
    )
    assert not found.holdings
    assert found.unresolved == {CORE: 30, MEMORY: 4}
    assert found.unresolved_holders == {container("a")}
    assert not problems


def test_a_card_that_is_cut_is_not_taken_for_a_whole_one():
    """gpu-manager does not know MIG: a minor of a cut GPU means no device."""
    cut = mig_gpu([mig(uuid=MIG)])
    found = resolve(cut, has("a", {CORE: 30, MEMORY: 4}), pods=pods(pod("a", assigned("0"))))
    assert not found.holdings
    assert found.unresolved == {CORE: 30, MEMORY: 4}


def test_over_commit_shows():
    """Two containers that have more of a card than there is are shown with what they were given."""
    allocated = has("a", {CORE: 80, MEMORY: 60}) + has("b", {CORE: 70, MEMORY: 50})
    holdings = resolve(two_cards(), allocated, pods=pods(pod("a", assigned("1")), pod("b", assigned("1"))))
    assert sum(each.compute_entitled for each in holdings.holdings) == pytest.approx(1.5)
    assert sum(each.memory_entitled for each in holdings.holdings) == 110 * 256 * MIB


def test_each_card_offers_a_hundred_percents():
    """The ids mean no card, and there is a hundred for each: an idle card is gpu-manager's too."""
    offered = offers({CORE: 200}, CORE + "-{}") + offers({MEMORY: 128}, MEMORY + "-268435456-{}")
    holdings = resolve(
        two_cards(), has("a", {CORE: 30, MEMORY: 4}), offered, pods=pods(pod("a", assigned("0")))
    )
    by_uuid = {key.uuid: sharing for key, sharing in holdings.devices.items()}
    assert by_uuid[UUID].sharing == "gpu-manager"
    assert by_uuid[UUID].slices == (SliceCount(CORE, 100, 0),)
    # How many of the blocks are on which card is not told.
    assert by_uuid[OTHER_UUID].slices == (SliceCount(CORE, 100, 30), SliceCount(MEMORY, None, 4))


def test_percents_that_do_not_make_hundreds_are_offered_on_no_card():
    """Where not every GPU is gpu-manager's, how many percents a card has is not known, and not zero."""
    holdings = resolve(
        two_cards(), has("a", {CORE: 30, MEMORY: 4}), offers({CORE: 100}), pods=pods(pod("a", assigned("0")))
    )
    by_uuid = {key.uuid: sharing for key, sharing in holdings.devices.items()}
    assert by_uuid[OTHER_UUID].slices == (SliceCount(CORE, None, 30), SliceCount(MEMORY, None, 4))
    assert by_uuid[UUID].slices == ()


def files(*containers) -> dict[str, SystemFiles]:
    """Return gpu-manager's files as they are read."""
    return {"gpu-manager": SystemFiles(containers=containers)}


def nameless(name="a"):
    """Return a pod as directories of logs tell it."""
    return replace(pod(name), details=None)


@pytest.mark.parametrize("named", ["0", "00000000:0F:00.0", "0000:0f:00.0"])
def test_without_annotations_the_file_tells_the_card(named):
    """gpu-manager's own record stands in, by the minor or the address of the card."""
    gpus = two_cards()
    gpus[1] = replace(gpus[1], identity=replace(gpus[1].identity, pci_bus_id="00000000:0F:00.0"))
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(DeviceUse(device=named),))
    holdings = resolve(gpus, has("a", {CORE: 30, MEMORY: 4}), pods=pods(nameless()), files=files(file))
    assert shares(holdings, "a") == {OTHER_UUID: (1024 * MIB, 0.3)}
    assert holdings.blind == {}


def test_an_annotation_that_is_missing_is_made_up_for_by_the_file():
    """A pod of before a release that annotates is known by the record alone."""
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(DeviceUse(device="1"),))
    holdings = resolve(
        two_cards(),
        has("a", {CORE: 30, MEMORY: 4}),
        pods=pods(pod("a", {ASSIGNED: "true"})),
        files=files(file),
    )
    assert shares(holdings, "a") == {UUID: (1024 * MIB, 0.3)}


def test_a_file_without_a_card_leaves_the_only_one():
    """What is held on a node with one GPU is held of that; with two it is unresolved, and that is said."""
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(DeviceUse(device=""),))
    allocated = has("a", {CORE: 30, MEMORY: 4})
    facts = {"pods": pods(nameless()), "files": files(file)}
    alone = resolve(one_card(), allocated, **facts)
    assert shares(alone, "a") == {UUID: (1024 * MIB, 0.3)}
    assert alone.blind == {}
    beside = resolve(two_cards(), allocated, **facts)
    assert beside.unresolved == {CORE: 30, MEMORY: 4}
    assert set(beside.blind) == {"gpu-manager"}


def test_without_any_source_of_pods_it_is_blind():
    """No names, no files: the ids are unresolved, and it is said what for."""
    found = resolve(two_cards(), has("a", {CORE: 30, MEMORY: 4}))
    assert found.unresolved == {CORE: 30, MEMORY: 4}
    assert set(found.blind) == {"gpu-manager"}


@given(st.text(max_size=60), st.integers(1, 250), st.integers(0, 9))
def test_any_annotation_is_a_list_or_an_objection(text, percents, blocks):
    """Whatever stands there: what is not told is unresolved, nothing is held twice, and nothing raises."""
    amounts = {CORE: percents} | ({MEMORY: blocks} if blocks else {})
    found, problems = counted(two_cards(), has("a", amounts), pods=pods(pod("a", assigned(text))))
    assert bool(found.holdings) != bool(found.unresolved) or {"0", "1"} & set(text.split(","))
    assert set(problems) <= {"gpu_manager_annotation"}
    assert sum(each.compute_entitled for each in found.holdings) <= max(1, percents / 100)
