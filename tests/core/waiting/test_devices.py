"""Claims are served exactly if requests can be matched with free devices; with doubts only "no" is left."""

from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.waiting.device_search import assigned
from exporter.waiting.objects import (
    ClaimRequest,
    DeviceClass,
    DeviceName,
    NodeTerm,
    OfferedDraDevice,
    Requirement,
    Taint,
    Toleration,
)
from tests.core.waiting.records import (
    DRIVER,
    claim,
    cluster,
    device,
    judged,
    node,
    piece,
    pod,
    request,
    verdict,
)

OF = f"device.attributes['{DRIVER}']"
CLASSES = {
    "gpu": DeviceClass(
        name="gpu", selectors=(f"device.driver == '{DRIVER}'",), extended_resource="ex.com/gpu"
    ),
    "mig": DeviceClass(name="mig", selectors=(f"'profile' in {OF} && {OF}.profile == '3g'",)),
}
CLAIMING = pod(claims=("c1",))
A, B = device("a"), device("b", profile="3g")


def elsewhere(pool: str) -> OfferedDraDevice:
    """Return a device of another pool."""
    return OfferedDraDevice(name=DeviceName(DRIVER, pool, "a"), attributes={}, capacity={})


def answer(*requests: ClaimRequest, devices: tuple[OfferedDraDevice, ...] = (A, B), **more: Any) -> str:
    """Return the answer for a pod with one claim on a node with devices."""
    fields: dict[str, Any] = {"claims": claim(*requests), "classes": CLASSES, "slices": (piece(*devices),)}
    return verdict(CLAIMING, cluster(node(), **(fields | more))).answer


@pytest.mark.parametrize(
    ("expected", "requests"),
    [
        ("fits", [request()]),
        ("fits", [request(count=2)]),
        ("no", [request(count=3)]),
        ("fits", [request(device_class="mig")]),
        ("no", [request(device_class="mig", count=2)]),
        # The first request may take any device, but must leave b to the second.
        ("fits", [request("any"), request("mig", device_class="mig")]),
        ("no", [request("any", count=2), request("mig", device_class="mig")]),
        ("no", [request(selectors=(f"'profile' in {OF}", "false"))]),
        ("fits", [request(count=None)]),
        ("no", [request(count=None, selectors=("false",))]),
        ("no", [request("all", count=None), request("one")]),
        ("no", [request("all", count=None), request("again", count=None)]),
        ("fits", [request("all", device_class="mig", count=None), request("one")]),
        ("not judged", [request(selectors=("device.driver.matches('gpu')",))]),
        ("not judged", [request(selectors=(f"{OF}.profile == '3g'",))]),
        ("no", [request(count=3, selectors=("device.driver.matches('gpu')",))]),
        ("not judged", [request(unread=("capacity",))]),
        ("no", [request(unread=("capacity",)), request("two", count=3)]),
        ("no", [request(count=33)]),
    ],
)
def test_requests_of_a_claim(expected: str, requests: list[ClaimRequest]) -> None:
    assert answer(*requests) == expected


def test_devices_that_claims_have_are_in_use() -> None:
    other = claim(request(), name="c2", allocated=(A.name,))

    assert answer(request(), claims=claim(request()) | other) == "fits"
    assert answer(request(count=2), claims=claim(request(count=2)) | other) == "no"
    assert answer(request(count=None), claims=claim(request(count=None)) | other) == "no"


@pytest.mark.parametrize("count", [1, 3])
def test_a_device_that_claims_share_may_serve_another(count: int) -> None:
    """Each claim has a part of its capacity, which is not judged."""
    shared = replace(A, shared=True, unread=("allowMultipleAllocations",))
    of_another = claim(request(), name="c2", allocated=(A.name,))

    def found(**more: Any) -> str:
        return answer(claims=claim(request(count=count)) | of_another, devices=(replace(shared, **more),))

    assert found() == "not judged"
    assert found(taints=(Taint("sick", "", "NoSchedule"),)) == "no"
    assert found(shared=False) == "no"


def test_an_allocated_claim_is_bound_to_its_nodes() -> None:
    for expected, name in (("fits", "n1"), ("no", "n2")):
        terms = (NodeTerm(fields=(Requirement("metadata.name", "In", (name,)),)),)
        claims = claim(request(), allocated=(A.name,), node=name, nodes=terms)

        assert answer(claims=claims) == expected
    assert answer(claims=claim(request(), allocated=(A.name,))) == "fits"


def test_a_doubtful_device_leaves_only_no() -> None:
    doubtful = device("c", unread=("bindingConditions",))

    assert answer(request(), devices=(A, doubtful)) == "not judged"
    assert answer(request(count=2), devices=(A, doubtful)) == "not judged"
    assert answer(request(count=3), devices=(A, doubtful)) == "no"
    assert answer(request(), device_taint_rules=True) == "not judged"


@pytest.mark.parametrize(
    ("expected", "taint", "tolerations"),
    [
        ("no", Taint("sick", "", "NoSchedule"), ()),
        ("no", Taint("sick", "", "NoExecute"), ()),
        ("fits", Taint("sick", "", "None"), ()),
        ("fits", Taint("sick", "a", "NoExecute"), (Toleration("sick", "Exists", "", ""),)),
        ("no", Taint("sick", "a", "NoExecute"), (Toleration("sick", "Equal", "b", ""),)),
    ],
)
def test_a_taint_bars_a_device_from_requests_that_do_not_tolerate_it(
    expected: str, taint: Taint, tolerations: tuple[Toleration, ...]
) -> None:
    sick = device("a", taints=(taint,))

    assert answer(request(tolerations=tolerations), devices=(sick,)) == expected
    # Another device, or another request, is not affected.
    assert answer(request(tolerations=tolerations), devices=(sick, B)) == "fits"
    assert answer(request(count=None, tolerations=tolerations), devices=(sick, B)) == expected
    both = (request("any", tolerations=(Toleration("", "Exists", "", ""),)), request("mine"))
    assert answer(*both, devices=(sick, B)) == "fits"


@pytest.mark.parametrize(
    ("expected", "slices"),
    [
        ("no", (piece(A, node="n2"),)),
        ("fits", (piece(A, node=""),)),
        ("fits", (piece(A, node="", nodes=(NodeTerm((Requirement("zone", "Exists", ()),)),)),)),
        ("no", (piece(A, node="", nodes=(NodeTerm((Requirement("zone", "DoesNotExist", ()),)),)),)),
        ("not judged", (piece(A, node="", unread=("perDeviceNodeSelection",)),)),
        # A pool of which slices are missing is being updated.
        ("no", (piece(A, slices_of_pool=2),)),
        ("fits", (piece(A, slices_of_pool=2), piece(B, slices_of_pool=2, node="n2"))),
        # Only the newest generation counts.
        ("no", (piece(A), piece(generation=2))),
        ("no", (piece(A, slices_of_pool=2), piece(B, generation=2, node="n2"))),
        # The devices of a pool that is not valid are not used.
        ("no", (piece(A, A),)),
        ("not judged", (piece(A, A), piece(elsewhere("p2"), pool="p2"))),
        ("no", (piece(device("a", counters={"gpu/memory": 1})),)),
    ],
)
def test_pools_of_devices(expected: str, slices: tuple[Any, ...]) -> None:
    objects = cluster(node(labels={"zone": "a"}), claims=claim(request()), classes=CLASSES, slices=slices)

    assert verdict(CLAIMING, objects).answer == expected


def test_what_is_missing_is_out_on_all_nodes() -> None:
    absent = claim(request(device_class="absent"))
    nodes = (node("n1"), node("n2"))

    verdicts = judged(CLAIMING, cluster(*nodes, claims=absent, classes=CLASSES))
    assert verdicts.count("no") == 2
    assert verdicts.message() == "0/2 nodes are available: request gpu: device class absent does not exist."
    for waiting, claims in (
        (CLAIMING, {}),
        (CLAIMING, claim(request(), ending=True)),
        (pod(claims=("",)), {}),
    ):
        verdicts = judged(waiting, cluster(*nodes, claims=claims, classes=CLASSES))
        assert verdicts.count("no") == 2
        # The scheduler does not try such a pod, and says nothing.
        assert verdicts.message() is None


@pytest.mark.parametrize("kind", ["claims", "slices", "classes"])
def test_objects_that_cannot_be_read_are_not_judged(kind: str) -> None:
    assert answer(request(), **{kind: None}) == "not judged"


@pytest.mark.parametrize(
    ("expected", "count", "offered"),
    [("fits", 2, 0), ("no", 3, 0), ("fits", 3, 8), ("no", 3, 2)],
)
def test_an_extended_resource_is_served_by_devices_unless_the_node_counts_it(
    expected: str, count: int, offered: int
) -> None:
    resources = {"pods": 10} | ({"ex.com/gpu": offered} if offered else {})
    asking = pod(requests={"ex.com/gpu": count, "pods": 1})

    found = verdict(asking, cluster(node(allocatable=resources), classes=CLASSES, slices=(piece(A, B),)))

    assert found.answer == expected
    if expected == "no":
        assert found.filter == ("NodeResourcesFit" if offered else "DynamicResources")


def test_the_implicit_resource_of_a_class_is_its_name() -> None:
    asking = pod(requests={"deviceclass.resource.kubernetes.io/mig": 1, "pods": 1})
    objects = cluster(node(), classes=CLASSES, slices=(piece(A, B),))

    assert verdict(asking, objects).answer == "fits"
    assert verdict(asking, cluster(node(), classes=CLASSES)).filter == "DynamicResources"


def test_an_error_of_a_selector_on_one_node_stops_the_pod_on_all() -> None:
    failing = request(selectors=(f"{OF}.profile == '3g'",))
    other = OfferedDraDevice(name=DeviceName(DRIVER, "n2", "b"), attributes=B.attributes, capacity={})
    slices = (piece(A), piece(other, node="n2", pool="n2"))

    verdicts = judged(
        CLAIMING,
        cluster(node("n1"), node("n2"), node("n3"), claims=claim(failing), classes=CLASSES, slices=slices),
    )

    assert [each.answer for each in verdicts.by_node.values()] == ["not judged", "not judged", "no"]
    assert verdicts.message() is None


@pytest.mark.parametrize(
    "other", [request(count=9), request(count=None, selectors=("false",)), request(count=None)]
)
def test_an_error_is_looked_for_even_if_another_request_is_in_vain(other: ClaimRequest) -> None:
    """The scheduler may look at that request first, and then has an error instead of a message."""
    failing = request("failing", selectors=(f"{OF}.profile == '3g'",))
    objects = cluster(node(), claims=claim(other, failing), classes=CLASSES, slices=(piece(A, B),))

    assert verdict(CLAIMING, objects).answer == "no"
    assert judged(CLAIMING, objects).message() is None


@given(st.lists(st.lists(st.integers(0, 4), unique=True), max_size=5))
def test_slots_are_assigned_if_any_order_of_places_does(slots: list[list[int]]) -> None:
    possible = any(
        all(place in places for place, places in zip(order, slots, strict=True))
        for order in permutations(range(5), len(slots))
    )

    assert assigned(slots) is possible


SLICES = {"gpu/memory": 8}
G7, G4, G3, G1, H1 = (
    device(name, counters={"gpu/memory": size})
    for name, size in (("7g", 8), ("4g", 4), ("3g", 4), ("1g", 1), ("1g-other", 1))
)


@pytest.mark.parametrize(
    ("expected", "count", "used", "offered"),
    [
        ("fits", 2, (), (G7, G4, G3)),
        ("no", 3, (), (G7, G4, G3)),
        ("no", 2, (), (G7, G4)),
        ("fits", 4, (), (G7, G4, G1, H1, A)),
        ("no", 4, (), (G7, G4, G3, G1, H1)),
        ("no", 1, (G7,), (G7, G4, G1)),
        ("no", 1, (G4, G3), (G4, G3, G1)),
        ("fits", 1, (G4,), (G4, G3, G1)),
        # A device without counters is not affected.
        ("fits", 1, (G7,), (G7, G1, A)),
    ],
)
def test_devices_share_the_counters_of_their_pool(
    expected: str, count: int, used: tuple[OfferedDraDevice, ...], offered: tuple[OfferedDraDevice, ...]
) -> None:
    """MIG devices of one GPU share its memory slices."""
    claims = claim(request(count=count))
    for each in used:
        claims |= claim(request(), name=f"c-{each.name.device}", allocated=(each.name,))

    assert answer(claims=claims, slices=(piece(*offered, counters=SLICES),)) == expected


def test_all_devices_share_counters_too() -> None:
    for expected, offered in (("fits", (G4, G3)), ("no", (G4, G3, G1))):
        found = answer(request(count=None), slices=(piece(*offered, counters=SLICES),))
        assert found == expected


def test_a_search_without_end_is_given_up() -> None:
    many = [device(f"d{number}", counters={"gpu/memory": 2}) for number in range(40)]
    claims = claim(request(count=31))

    assert answer(claims=claims, slices=(piece(*many, counters={"gpu/memory": 61}),)) == "not judged"


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 12))
def test_devices_are_packed_if_any_choice_of_them_is(sizes: list[int], count: int, total: int) -> None:
    offered = [
        device(f"d{number}", counters={"gpu/memory": size} if size else {})
        for number, size in enumerate(sizes)
    ]
    possible = any(sum(chosen) <= total for chosen in combinations(sizes, count))

    found = answer(request(count=count), slices=(piece(*offered, counters={"gpu/memory": total}),))
    assert found == ("fits" if possible else "no")
