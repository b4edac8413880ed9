"""Volcengine's mGPU: percents and mebibytes, spread evenly over the cards that an annotation lists.

The examples are those of the design text and the code of the mGPU plugin for Volcano.
"""

import pytest

from exporter.model import NodeObject, SliceCount
from tests.core.attribution.build import GIB, UUID
from tests.core.sharing.build import OTHER_UUID, container, only, pod, pods, resolve, rows
from tests.core.sharing.cards import MIB, has, offers, shares, two_cards
from tests.core.sharing.cases import Case

PREFIX = "vke.volcengine.com/"
CORE, MEMORY = f"{PREFIX}mgpu-core", f"{PREFIX}mgpu-memory"


def listed(main=None, assumed="true", **cards) -> dict[str, str]:
    """Return the annotations of the scheduler: cards by container."""
    cards |= {} if main is None else {"main": main}
    named = {f"{PREFIX}gpu-index-container-{name}": text for name, text in cards.items()}
    return named | {f"{PREFIX}assumed": assumed}


CASE = Case(
    name="mgpu",
    isolation="",
    reason="mgpu_annotation",
    annotate=listed,
    here="1",
    gone="7",
    entitled=(300 * MIB, 0.3),
    amounts={CORE: 30, MEMORY: 300},
    malformed=("", "0,", "-1", "0,0", "x", "GPU-1", f"{UUID}::1", f"MIG-{UUID}"),
    unconfirmed=({}, listed("0", "false"), listed(other="0"), {f"{PREFIX}gpu-index-container-main": "0"}),
    only_card=True,
    whole=({CORE: 200}, "0,1"),
    impossible=(({CORE: 200}, "0"),),
)


def given(amounts, annotations, **facts):
    """Return the holdings of a node whose pod a has these amounts."""
    return resolve(two_cards(), has("a", amounts), pods=pods(pod("a", annotations)), **facts)


def test_a_container_can_be_named_by_its_number():
    annotations = listed(**{"0": "0", "1": "1"})
    allocated = has("a", {CORE: 10, MEMORY: 256}, "first") + has("a", {CORE: 20, MEMORY: 512}, "second")
    two = pods(pod("a", annotations, containers=("first", "second"), init=("prepare",)))
    holdings = resolve(two_cards(), allocated, pods=two)
    assert shares(holdings, "a", "first") == {UUID: (256 * MIB, 0.1)}
    assert shares(holdings, "a", "second") == {OTHER_UUID: (512 * MIB, 0.2)}


def test_a_container_on_several_cards_has_an_even_part_of_each():
    several = listed("1,0") | {f"{PREFIX}container-multiple-gpu": "2"}
    holdings = given({CORE: 100, MEMORY: 8192}, several)
    assert shares(holdings, "a") == {UUID: (4 * GIB, 0.5), OTHER_UUID: (4 * GIB, 0.5)}
    assert not any(device.exclusive for device in holdings.devices.values())
    # The plugin divides whole numbers.
    holdings = given({CORE: 31, MEMORY: 301}, listed("0,1"))
    assert shares(holdings, "a") == {UUID: (150 * MIB, 0.15), OTHER_UUID: (150 * MIB, 0.15)}


def test_cards_can_be_named_by_their_uuids():
    """The scheduler's mode "id" writes ids in place of numbers."""
    assert shares(given({CORE: 30, MEMORY: 300}, listed(UUID)), "a") == {UUID: (300 * MIB, 0.3)}


def test_of_two_cards_one_may_be_missing():
    found = given({CORE: 40, MEMORY: 400}, listed("1,7"))
    assert shares(found, "a") == {OTHER_UUID: (200 * MIB, 0.2)}
    assert found.unresolved == {CORE: 20, MEMORY: 200}
    assert found.unresolved_holders == {container("a")}


def test_each_card_offers_a_hundred_percents():
    """How the mebibytes are divided between cards is unknown."""
    found = given({CORE: 30, MEMORY: 300}, listed("0"), offered=offers({CORE: 200, MEMORY: 400}))
    slices = {key.uuid: device.slices for key, device in found.devices.items()}
    assert slices[UUID] == (SliceCount(CORE, 100, 30), SliceCount(MEMORY, None, 300))
    assert slices[OTHER_UUID] == (SliceCount(CORE, 100, 0),)


POLICY = f"{PREFIX}mgpu-compute-policy"
POLICIES = {"a": "fixed-share", "b": "native-burst-share"}


@pytest.mark.parametrize(
    ("of_pod", "of_node", "isolation"),
    [
        ("fixed-share", None, "hard"),
        ("guaranteed-burst-share", None, "hard"),
        ("native-burst-share", None, "soft"),
        (None, "native-burst-share", "soft"),
        ("fixed-share", "native-burst-share", "hard"),
        ("something", None, ""),
        (None, None, ""),
    ],
)
def test_the_policy_decides_on_the_isolation(of_pod, of_node, isolation):
    annotations = listed("0") | ({POLICY: of_pod} if of_pod else {})
    node = NodeObject(labels={POLICY: of_node}) if of_node else None
    holdings = given({CORE: 30, MEMORY: 300}, annotations, node=node)
    assert set(rows(holdings, "isolation")) == {isolation}


def test_the_weakest_policy_on_a_card_counts():
    both = pods(*(pod(name, listed("0") | {POLICY: text}) for name, text in POLICIES.items()))
    allocated = [each for name in POLICIES for each in has(name, {CORE: 30, MEMORY: 300})]
    assert set(rows(resolve(two_cards(), allocated, pods=both), "isolation")) == {"soft"}


def test_a_whole_card_is_isolated_under_every_policy():
    assert only(given({CORE: 100}, listed("0"))).isolation == "hard"
