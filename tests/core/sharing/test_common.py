"""What holds for all systems that place ids by an annotation, in each of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import DeviceKey
from tests.core.attribution.build import GIB, UUID
from tests.core.sharing import (
    test_elastic_gpu,
    test_gpu_manager,
    test_gpushare,
    test_hami,
    test_hami_vendors,
    test_koordinator,
    test_mgpu,
    test_qgpu,
    test_vgpu_manager,
    test_volcano_gpushare,
    test_volcano_vgpu,
)
from tests.core.sharing.build import OTHER_UUID, container, pod, pods, resolve, rows
from tests.core.sharing.cards import counted, has, one_card, shares, two_cards
from tests.core.sharing.cases import Case

MODULES = (test_elastic_gpu, test_gpu_manager, test_gpushare, test_hami, test_hami_vendors, test_koordinator)
MODULES += (test_mgpu, test_qgpu, test_vgpu_manager, test_volcano_gpushare, test_volcano_vgpu)
CASES: list[Case] = [module.CASE for module in MODULES]


def some(*needed: str):
    """Return a parameter of the cases that have all of these fields."""
    chosen = [case for case in CASES if all(getattr(case, name) for name in needed)]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)


def each(name: str):
    """Return parameters: a case, and one of the examples in its field."""
    return pytest.mark.parametrize(
        ("case", "example"),
        [
            pytest.param(case, example, id=f"{case.name}-{place}")
            for case in CASES
            for place, example in enumerate(getattr(case, name))
        ],
    )


def annotated(case: Case, **texts: str):
    """Return pods by uid, each with the annotations of its text."""
    return pods(*(pod(name, case.annotate(text)) for name, text in texts.items()))


@some()
def test_the_annotation_places_the_ids_and_entitles(case: Case):
    node = annotated(case, a=case.here)
    holdings, problems = counted(two_cards(), case.allocated("a"), offered=case.offered, pods=node)
    assert shares(holdings, "a") == {case.device: case.entitled}
    shown = set(rows(holdings, "sharing", "isolation"))
    assert shown == {(case.name, case.isolation)}
    assert (holdings.unresolved, holdings.blind, problems) == ({}, {}, {})
    device = holdings.devices[DeviceKey(case.device)]
    assert (device.sharing, device.isolation, device.exclusive) == (*shown.pop(), False)
    assert case.slices is None or device.slices == (case.slices,)


@some()
def test_pods_may_be_entitled_to_more_than_the_card(case: Case):
    names = [f"p{number}" for number in range(6)]
    allocated = [allocation for name in names for allocation in case.allocated(name)]
    node = annotated(case, **dict.fromkeys(names, case.here))
    holdings = resolve(two_cards(), allocated, case.offered, pods=node)
    assert all(shares(holdings, name) == {case.device: case.entitled} for name in names)
    memory, compute = case.entitled
    assert (memory or 0) * 6 > 16 * GIB or (compute or 0) * 6 > 1


@some("gone")
def test_a_card_of_another_node_is_unresolved(case: Case):
    node = annotated(case, a=case.gone)
    holdings, problems = counted(two_cards(), case.allocated("a"), offered=case.offered, pods=node)
    assert (holdings.holdings, holdings.unresolved, problems) == ((), case.amounts, {})
    assert holdings.unresolved_holders == {container("a")}


@each("malformed")
def test_a_malformed_annotation_costs_its_pod_only(case: Case, example: str, objections):
    """It is counted once while it lasts."""
    node = annotated(case, bad=example, good=case.here)
    allocated = case.allocated("bad") + case.allocated("good")
    for _ in range(2):
        holdings = resolve(two_cards(), allocated, case.offered, objections, pods=node)
    assert set(rows(holdings, "holder.pod")) == {"good"}
    assert shares(holdings, "good") == {case.device: case.entitled}
    assert holdings.unresolved == (case.amounts if case.keeps_ids else {})
    assert objections.counts == {case.reason: 1}


@each("unconfirmed")
def test_a_plan_is_no_holding(case: Case, example: dict[str, str]):
    """Until the plugin has given the card, its ids are unresolved, and nothing is malformed."""
    holdings, problems = counted(two_cards(), case.allocated("a"), pods=pods(pod("a", example)))
    assert (holdings.holdings, holdings.unresolved, problems) == ((), case.amounts, {})
    assert holdings.unresolved_holders == {container("a")}


@some("by_kubelet")
def test_an_annotation_without_ids_holds_nothing(case: Case):
    """An annotation outlives its container; only the kubelet's ids say that it is here."""
    holdings, problems = counted(two_cards(), [], pods=annotated(case, a=case.here))
    assert (holdings.holdings, holdings.unresolved, problems) == ((), {}, {})


@some("blind")
def test_without_the_pods_the_system_is_reported(case: Case):
    holdings = resolve(two_cards(), case.allocated("a"), case.offered)
    assert set(holdings.blind) == {case.name}


@some("only_card")
def test_the_only_card_needs_no_annotation(case: Case):
    offered = [device for device in case.offered if not device.device_id.startswith(("1-", OTHER_UUID))]
    holdings = resolve(one_card(), case.allocated("a"), offered)
    assert (shares(holdings, "a"), holdings.blind) == ({UUID: case.entitled}, {})


@some("whole")
def test_whole_cards_come_with_all_their_memory(case: Case):
    amounts, text = case.whole
    holdings = resolve(two_cards(), has("a", amounts), pods=annotated(case, a=text))
    assert shares(holdings, "a") == {UUID: (16 * GIB, 1.0), OTHER_UUID: (16 * GIB, 1.0)}
    assert all(device.exclusive for device in holdings.devices.values())


@each("impossible")
def test_ids_that_cannot_be_of_the_cards_are_malformed(case: Case, example: tuple[dict[str, int], str]):
    amounts, text = example
    holdings, problems = counted(two_cards(), has("a", amounts), pods=annotated(case, a=text))
    assert (holdings.holdings, holdings.unresolved, problems) == ((), amounts, {case.reason: 1})


@settings(max_examples=50)
@given(text=st.text(max_size=60) | st.text("main[]{}()_-.:;,0123456789GPUxtre \"'", max_size=60))
@some()
def test_any_text_is_read_or_objected_to(case: Case, text: str):
    """Nothing raises, no id counts twice, and the next pod keeps its part."""
    node = annotated(case, a=text, good=case.here)
    allocated = case.allocated("a") + case.allocated("good")
    holdings, problems = counted(two_cards(), allocated, offered=case.offered, pods=node)
    assert shares(holdings, "good") == {case.device: case.entitled}
    assert set(problems) <= {case.reason}
    of_a = [holding for holding in holdings.holdings if holding.holder.pod == "a"]
    held, unresolved = sum(holding.slices for holding in of_a), sum(holdings.unresolved.values())
    assert held + unresolved <= max(sum(case.amounts.values()), 1)
    assert held + unresolved > 0 or not case.by_kubelet
