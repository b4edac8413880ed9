"""The pods that wait: their order, why each waits in a word, their numbers as series, and what is unknown."""

from dataclasses import replace
from typing import Any

import pytest

from exporter.fleet.gpu_facts import read_facts
from exporter.fleet.queries import Answers
from exporter.fleet.waiting import REASONS, answer_all, answer_one, count, narrowed, reason_of
from exporter.fleet.waiting_words import sentences
from exporter.waiting.gpu_facts import GpuFacts
from exporter.waiting.objects import (
    ClaimRequest,
    DeviceClass,
    DeviceName,
    Objects,
    OfferedDraDevice,
    PodKey,
    ResourceClaim,
    ResourceSlice,
    WaitingPod,
)
from tests.fleet.waiting_cluster import (
    BIG,
    NOW,
    SMALL,
    WHOLE,
    facts,
    holder,
    objects,
    view,
    waiting_pods,
    waits,
)

SCATTERED = (holder("a", "gpu-2"), holder("b", "gpu-3"))


def reason(pod: WaitingPod, known: Objects | None = None) -> str:
    """Return why a pod waits in the cluster."""
    known = replace(objects() if known is None else known, waiting=(pod,))
    (answer,) = answer_all(view(known), facts(), NOW).answers or ()
    return reason_of(answer)


def test_pods_that_ask_for_devices_are_listed_the_longest_first_and_others_counted():
    waiting = waiting_pods()

    assert [each.pod.key.name for each in waiting.answers or ()][:3] == ["batch-0", "train-7", "train-8"]
    assert waiting.others == 1


def test_some_namespaces_are_narrowed_after_their_pods_were_answered():
    other = waits("elsewhere", 100, key=PodKey("other", "x"), uid="x")
    everything = answer_all(view(objects(waiting=(waits("mine", 5), other))), facts(), NOW)

    (mine,) = narrowed(everything, ("ml",)).answers or ()

    assert (mine.pod.key.name, mine.ahead) == ("mine", 1)
    assert narrowed(everything, ()) is everything


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (waits("a", 1, gates=("g",)), "gated"),
        (waits("a", 1, scheduler="volcano"), "scheduler"),
        (waits("a", 1, claims=("missing",)), "claim"),
        (waits("a", 1, selector={"zone": "b"}), "fits"),
        (waits("a", 1, selector={"zone": "b"}, unjudged=("volumes",)), "not_judged"),
        (waits("a", 1, selector={"zone": "z"}), "not_allowed"),
        (waits("a", 1, WHOLE), "not_offered"),
        (waits("a", 1), "held"),
        (waits("a", 1, SMALL, 4), "scattered"),
        (waits("a", 1, SMALL, requests={SMALL: 1, "cpu": 30_000}), "rest"),
    ],
)
def test_the_first_reason_that_holds_is_why_a_pod_waits(pod: WaitingPod, expected: str):
    assert reason(pod) == expected


DRA = OfferedDraDevice(name=DeviceName("gpu.example.com", "gpu-2", "a"), attributes={}, capacity={})
OTHERS = ResourceClaim(namespace="ml", name="other", requests=(), allocated=(DRA.name,))


@pytest.mark.parametrize(
    ("expected", "devices", "claims", "more"),
    [
        ("held", (DRA,), (OTHERS,), {}),
        ("not_offered", (), (), {}),
        ("rest", (DRA,), (), {"requests": {"cpu": 99_000}}),
        ("held", (DRA,), (OTHERS,), {"requests": {"cpu": 99_000}}),
        ("held", (DRA,), (OTHERS,), {"requests": {"ex.com/gpu": 1}, "claims": ()}),
        ("not_offered", (), (), {"requests": {"ex.com/gpu": 1}, "claims": ()}),
        ("rest", (DRA,), (), {"requests": {"ex.com/gpu": 1, "cpu": 99_000}, "claims": ()}),
    ],
)
def test_why_a_pod_waits_for_devices_of_dra_drivers(
    expected: str,
    devices: tuple[OfferedDraDevice, ...],
    claims: tuple[ResourceClaim, ...],
    more: dict[str, Any],
):
    mine = ResourceClaim(
        namespace="ml", name="mine", requests=(ClaimRequest(name="gpu", device_class="gpu"),)
    )
    of_node = ResourceSlice(
        driver="gpu.example.com", pool="gpu-2", generation=1, slices_of_pool=1, node="gpu-2", devices=devices
    )
    known = objects(
        claims={(each.namespace, each.name): each for each in (mine, *claims)},
        slices=(of_node,),
        classes={"gpu": DeviceClass(name="gpu", extended_resource="ex.com/gpu")},
    )
    asking = waits("a", 1, **({"requests": {"pods": 1}, "claims": ("mine",)} | more))

    assert reason(asking, known) == expected


def test_a_cluster_without_nodes_offers_nothing():
    assert reason(waits("a", 1), objects(nodes={}, placed=())) == "not_offered"


def test_without_nodes_nothing_is_judged_and_the_pods_are_listed():
    unknown = replace(view(), objects=None)
    waiting = answer_all(unknown, facts(), NOW)

    reasons = {reason_of(each) for each in waiting.answers or ()}
    assert reasons == {"unknown", "gated", "scheduler"}
    assert list(sentences(waiting.answers[1])) == [
        "Nodes or pods are not known, so that nothing can be judged"
    ]
    assert count(waiting).by_reason[("other", "unknown")] == 5


def test_without_pods_there_is_no_answer_and_no_series():
    waiting = answer_all(replace(view(), objects=None, waiting=None), facts(), NOW)

    assert waiting.answers is None
    assert count(waiting).by_reason == {}


def test_numbers_by_resource_and_reason_and_of_pods_that_an_idle_holder_keeps_waiting():
    numbers = count(waiting_pods())

    assert numbers.by_reason[BIG, "held"] == 2
    assert numbers.by_reason["other", "not_offered"] == 1
    assert numbers.by_idle == {BIG: 2, SMALL: 0}
    assert {name for _, name in numbers.by_reason} <= set(REASONS)


def test_while_idle_holders_are_unknown_no_number_says_that_none_keeps_a_pod_waiting():
    assert count(answer_all(view(), facts(idle=None), NOW)).by_idle == {}


def test_resources_that_users_make_up_do_not_make_series():
    made_up = tuple(waits(f"p{number}", 1, f"evil.example.com/{number}") for number in range(200))
    numbers = count(answer_all(view(objects(waiting=made_up)), facts(), NOW))

    assert dict(numbers.by_reason) == {("other", "not_offered"): 200}


def test_a_pod_that_does_not_wait_has_no_answer():
    assert answer_one(view(), facts(), NOW, PodKey("ml", "notebook-7")).answers == ()


def test_the_ages_of_facts_grow_until_they_are_shown():
    waiting = waiting_pods()

    assert waiting.ages() == {"pods": 3.0, "nodes": 4.0, "GPUs": 12.0}
    assert waiting.ages(NOW + 60) == {"pods": 63.0, "nodes": 64.0, "GPUs": 72.0}


def test_all_that_could_not_be_seen_is_listed_with_why():
    known = facts(silent={"gpu-9": "gone"}, problems=("idle pods: refused",))
    waiting = answer_all(replace(view(), failures=("denied",), unseen=("3 pods",)), known, NOW)

    assert waiting.unseen == ("denied", "3 pods", "idle pods: refused", "GPUs of gpu-9, which do not answer")


def test_facts_without_any_answer_claim_nothing():
    names = ("idle pods", "unhealthy slices", "shared GPUs", "free memory slices of MIG")
    nothing = read_facts(Answers({}, dict.fromkeys(names, "refused")), Answers({}, {}), [], NOW)

    ways = [way.kind for each in answer_all(view(), nothing, NOW).answers or () for way in each.ways]

    assert ways == []
    assert GpuFacts(at=0.0).idle is None
