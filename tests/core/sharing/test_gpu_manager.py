"""Tencent's gpu-manager: whose percents and blocks of which card.

Upstream: tkestack/gpu-manager, tkestack/gpu-admission.
"""

from dataclasses import replace

import pytest

from exporter.model import ContainerFile, DeviceUse, SliceCount, SystemFiles
from tests.core.attribution.build import MIG, UUID, mig, mig_gpu
from tests.core.sharing.build import OTHER_UUID, numbered, only, pod, pods, resolve
from tests.core.sharing.cards import MIB, has, offers, one_card, shares, two_cards
from tests.core.sharing.cases import Case

CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
IDX, ASSIGNED = "tencent.com/predicate-gpu-idx-", "tencent.com/gpu-assigned"


def assigned(cards="0", place=0, **more) -> dict[str, str]:
    """Return the annotations that gpu-manager writes before a container starts."""
    return {f"{IDX}{place}": cards, ASSIGNED: "true", "tencent.com/predicate-time": "1"} | more


CASE = Case(
    name="gpu-manager",
    isolation="soft",
    reason="gpu_manager_annotation",
    annotate=assigned,
    here="0",
    gone="7",
    entitled=(1024 * MIB, 0.3),
    amounts={CORE: 30, MEMORY: 4},
    malformed=(
        *("", ",", "0,", "-1", "0x0", "1_0", " 0", "٣", "0,0", "12345", "0;1"),
        *("9" * 5000, "0," * 3000 + "0"),
    ),
    # The scheduler writes predicate-gpu-idx-0 "0" and gpu-assigned "false" (gpu-manager server_test.go).
    unconfirmed=({f"{IDX}0": "0"}, *({f"{IDX}0": "0", ASSIGNED: word} for word in ("false", "True", ""))),
    whole=({CORE: 200, MEMORY: 4}, "0,1"),
    # A share is of one card, and n hundred percents are n cards.
    impossible=tuple(
        ({CORE: core, MEMORY: 1}, text) for core, text in ((50, "0,1"), (200, "0"), (100, "0,1"))
    ),
)


def test_the_soft_limit_is_no_entitlement():
    """How far a container may go while others leave room is not what it is entitled to."""
    annotations = assigned("1", **{"tencent.com/vcuda-core-limit": "80"})
    holdings = resolve(two_cards(), has("a", {CORE: 25, MEMORY: 8}), pods=pods(pod("a", annotations)))
    assert shares(holdings, "a") == {UUID: (2048 * MIB, 0.25)}


def test_a_whole_card_of_unknown_memory_entitles_to_unknown_memory():
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


def test_a_card_with_mig_devices_is_not_a_whole_card():
    """gpu-manager does not know MIG."""
    cut = mig_gpu([mig(uuid=MIG)])
    holdings = resolve(cut, has("a", {CORE: 30, MEMORY: 4}), pods=pods(pod("a", assigned("0"))))
    assert not holdings.holdings
    assert holdings.unresolved == {CORE: 30, MEMORY: 4}


def test_each_card_offers_a_hundred_percents():
    """The ids mean no card, and there is a hundred for each: an idle card is gpu-manager's too."""
    offered = offers({CORE: 200}, CORE + "-{}") + offers({MEMORY: 128}, MEMORY + "-268435456-{}")
    holdings = resolve(
        two_cards(), has("a", {CORE: 30, MEMORY: 4}), offered, pods=pods(pod("a", assigned("0")))
    )
    by_uuid = {key.uuid: sharing for key, sharing in holdings.devices.items()}
    assert by_uuid[UUID].sharing == "gpu-manager"
    assert by_uuid[UUID].slices == (SliceCount(CORE, 100, 0),)
    # The number of blocks of each card is unknown.
    assert by_uuid[OTHER_UUID].slices == (SliceCount(CORE, 100, 30), SliceCount(MEMORY, None, 4))


def test_percents_that_do_not_make_hundreds_are_offered_on_no_card():
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
    """Return a pod as directories of logs name it: without its object."""
    return replace(pod(name), details=None)


@pytest.mark.parametrize("named", ["0", "00000000:0F:00.0", "0000:0f:00.0"])
def test_without_annotations_the_file_names_the_card(named):
    gpus = two_cards()
    gpus[1] = replace(gpus[1], identity=replace(gpus[1].identity, pci_bus_id="00000000:0F:00.0"))
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(DeviceUse(device=named),))
    holdings = resolve(gpus, has("a", {CORE: 30, MEMORY: 4}), pods=pods(nameless()), files=files(file))
    assert shares(holdings, "a") == {OTHER_UUID: (1024 * MIB, 0.3)}
    assert holdings.blind == {}


def test_the_file_replaces_a_missing_annotation():
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(DeviceUse(device="1"),))
    holdings = resolve(
        two_cards(),
        has("a", {CORE: 30, MEMORY: 4}),
        pods=pods(pod("a", {ASSIGNED: "true"})),
        files=files(file),
    )
    assert shares(holdings, "a") == {UUID: (1024 * MIB, 0.3)}


def test_a_file_without_a_card_leaves_the_only_one():
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(DeviceUse(device=""),))
    allocated = has("a", {CORE: 30, MEMORY: 4})
    facts = {"pods": pods(nameless()), "files": files(file)}
    alone = resolve(one_card(), allocated, **facts)
    assert shares(alone, "a") == {UUID: (1024 * MIB, 0.3)}
    assert alone.blind == {}
    beside = resolve(two_cards(), allocated, **facts)
    assert beside.unresolved == {CORE: 30, MEMORY: 4}
    assert set(beside.blind) == {"gpu-manager"}
