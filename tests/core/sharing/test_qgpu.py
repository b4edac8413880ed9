"""Tencent's qGPU: percents and gibibytes, spread evenly; the card only if it is known or the only one.

Of the vendor: tencentcloud.com/document/product/457/59103 and cloud.tencent.com/document/product/457/127667.
"""

import pytest

from exporter.model import NodeObject, SliceCount
from tests.core.attribution.build import GIB, UUID
from tests.core.sharing.build import OTHER_UUID, only, pod, pods, resolve, rows
from tests.core.sharing.cards import has, offers, one_card, shares, two_cards
from tests.core.sharing.cases import Case

PREFIX = "tke.cloud.tencent.com/"
CORE, MEMORY, GREEDY = (f"{PREFIX}{name}" for name in ("qgpu-core", "qgpu-memory", "qgpu-core-greedy"))


def listed(cards, name="main", assumed="true") -> dict[str, str]:
    """Return the annotations of Elastic GPU's scheduler."""
    return {f"elasticgpu.io/container-{name}": cards, "elasticgpu.io/assumed": assumed}


CASE = Case(
    name="qgpu",
    isolation="",
    reason="qgpu_annotation",
    annotate=listed,
    here="1",
    gone="5",
    entitled=(5 * GIB, 0.5),  # the vendor's example
    amounts={CORE: 50, MEMORY: 5},
    malformed=("nope", "0,0"),
    unconfirmed=({}, listed("0", assumed="false")),
    only_card=True,
    whole=({CORE: 200, MEMORY: 8}, "0,1"),
    impossible=(({CORE: 160, MEMORY: 6}, "0"),),
)


@pytest.mark.parametrize(("core", "memory", "part"), [(160, 60, (30 * GIB, 0.8)), (121, 31, (15 * GIB, 0.6))])
def test_more_than_a_card_is_spread_evenly_and_rounded_down(core, memory, part):
    """The vendor's examples: 160 and 60 are twice 80 and 30, 121 and 31 are twice 60 and 15."""
    both = pods(pod("a", listed("0,1")))
    holdings = resolve(two_cards(), has("a", {CORE: core, MEMORY: memory}), pods=both)
    assert shares(holdings, "a") == {UUID: part, OTHER_UUID: part}


@pytest.mark.parametrize(
    ("amounts", "memory"),
    [({MEMORY: 3}, 3 * GIB), ({GREEDY: 60, MEMORY: 4}, 4 * GIB), ({GREEDY: 60}, None)],
    ids=["online: memory only", "offline: what others leave of the compute", "offline, without memory"],
)
def test_compute_that_is_not_promised_is_unknown_and_not_zero(amounts, memory):
    holdings = resolve(one_card(), has("a", amounts), pods=pods(pod("a")))
    assert shares(holdings, "a") == {UUID: (memory, None)}


def test_several_containers_have_cards_of_their_own():
    """The number is the driver's index, not that of the device file."""
    annotations = listed("0", "first") | listed("1", "second")
    allocated = has("a", {CORE: 20, MEMORY: 2}, "first") + has("a", {CORE: 30, MEMORY: 3}, "second")
    two = pods(pod("a", annotations, containers=("first", "second")))
    holdings = resolve(two_cards(), allocated, pods=two)
    assert shares(holdings, "a", "first") == {UUID: (2 * GIB, 0.2)}
    assert shares(holdings, "a", "second") == {OTHER_UUID: (3 * GIB, 0.3)}


def test_each_card_offers_a_hundred_percents():
    """How ids are spelled is not published; that there are a hundred for each card is."""
    offered = offers({CORE: 200, MEMORY: 28})
    holdings = resolve(
        two_cards(), has("a", {CORE: 50, MEMORY: 5}), offered, pods=pods(pod("a", listed("1")))
    )
    slices = {key.uuid: device.slices for key, device in holdings.devices.items()}
    assert slices[UUID] == (SliceCount(CORE, 100, 0),)
    assert slices[OTHER_UUID] == (SliceCount(CORE, 100, 50), SliceCount(MEMORY, None, 5))


@pytest.mark.parametrize(
    ("policy", "isolation"),
    [
        ("fixed-share", "hard"),
        ("fs", "hard"),
        ("burst-share", "hard"),
        ("bs", "hard"),
        ("best-effort", "soft"),
        ("be", "soft"),
        ("something", ""),
        (None, ""),
    ],
)
def test_the_policy_of_the_node_decides_on_the_isolation(policy, isolation):
    node = NodeObject(labels={f"{PREFIX}qgpu-schedule-policy": policy} if policy else {})
    holdings = resolve(one_card(), has("a", {CORE: 30, MEMORY: 3}), pods=pods(pod("a")), node=node)
    assert set(rows(holdings, "isolation")) == {isolation}
    assert only(resolve(one_card(), has("a", {CORE: 100}), pods=pods(pod("a")))).isolation == "hard"
