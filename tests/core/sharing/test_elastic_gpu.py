"""Elastic GPU: percents and mebibytes of the cards that an annotation lists.

Upstream: elastic-ai/elastic-gpu-agent pkg/plugins, elastic-ai/elastic-gpu-scheduler pkg/scheduler.
"""

import pytest

from exporter.model import Allocation, OfferedDevice, SliceCount
from tests.core.attribution.build import GIB, UUID
from tests.core.sharing.build import OTHER_UUID, container, only, pod, pods, resolve, rows
from tests.core.sharing.cards import MIB, has, shares, two_cards
from tests.core.sharing.cases import Case

CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
# The agent's resources and those of the types' repository differ by their group.
OTHER_GROUP = ("elasticgpu.com/gpu-core", "elasticgpu.com/gpu-memory")


def listed(main=None, assumed="true", **cards) -> dict[str, str]:
    """Return the annotations of the scheduler (pod.go GetUpdatedPodAnnotationSpec): cards by container."""
    cards |= {} if main is None else {"main": main}
    named = {f"elasticgpu.io/container-{name}": text for name, text in cards.items()}
    return named | {"elasticgpu.io/assumed": assumed}


CASE = Case(
    name="elastic-gpu",
    isolation="none",
    reason="elastic_gpu_annotation",
    annotate=listed,
    here="1",
    gone="9",
    entitled=(5 * MIB, 0.2),
    amounts={CORE: 20, MEMORY: 5},
    malformed=("", "-1", "0,", "0,1", "0 ", "GPU-0", "99999"),
    unconfirmed=({}, listed("0", "false"), listed(other="0"), {"elasticgpu.io/container-main": "0"}),
    only_card=True,
    # gpu-core "200" of the agent's README: two cards; allocate.go leaves memory out of account there.
    whole=({CORE: 200, MEMORY: 5}, "1,0"),
)


@pytest.mark.parametrize(
    ("amounts", "entitled"),
    [
        pytest.param(
            {f"elasticgpu.com/gpu-{name}": 30 for name in ("core", "memory")}, (30 * MIB, 0.3), id="com"
        ),
        pytest.param({MEMORY: 256}, (256 * MIB, None), id="memory alone states no compute"),
        pytest.param({CORE: 20}, (None, 0.2), id="compute alone states no memory"),
        pytest.param({CORE: 150}, (16 * GIB, 1.0), id="allocate.go divides by 100 and drops the rest"),
    ],
)
def test_amounts(amounts, entitled):
    holdings = resolve(two_cards(), has("a", amounts), pods=pods(pod("a", listed("1"))))
    assert shares(holdings, "a") == {OTHER_UUID: entitled}
    assert set(rows(holdings, "sharing")) == {"elastic-gpu"}


def test_the_annotation_counts_and_not_the_number_in_the_ids():
    """The kubelet picks ids of any card; the agent gives the one that the scheduler wrote down."""
    allocated = [Allocation(container("a"), CORE, f"0-{number:02d}") for number in range(30)]
    holding = only(resolve(two_cards(), allocated, pods=pods(pod("a", listed("1")))))
    assert (holding.device.uuid, holding.slices, holding.compute_entitled) == (OTHER_UUID, 30, 0.3)


def test_several_containers_have_cards_of_their_own():
    allocated = has("a", {CORE: 20, MEMORY: 10}, "first") + has("a", {MEMORY: 30}, "second")
    three = pod("a", listed(first="0", second="1", third="1"), containers=("first", "second", "third"))
    holdings = resolve(two_cards(), allocated, pods=pods(three))
    assert shares(holdings, "a", "first") == {UUID: (10 * MIB, 0.2)}
    assert shares(holdings, "a", "second") == {OTHER_UUID: (30 * MIB, None)}
    assert shares(holdings, "a", "third") == {}


def test_offered_ids_are_counted_on_the_card_of_their_number():
    """gpushare.go spells ids "%d-%02d": beyond 99 the second number is longer."""
    ids = [f"{card}-{number:02d}" for card in (0, 1) for number in range(120)] + ["7-00", "0-1", "x"]
    offered = [OfferedDevice(MEMORY, device_id) for device_id in ids]
    holdings = resolve(two_cards(), has("a", {MEMORY: 50}), offered, pods=pods(pod("a", listed("1"))))
    slices = {key.uuid: device.slices for key, device in holdings.devices.items()}
    assert slices == {UUID: (SliceCount(MEMORY, 120, 0),), OTHER_UUID: (SliceCount(MEMORY, 120, 50),)}
