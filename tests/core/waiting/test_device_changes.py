"""Claims and devices after a change of a node: what pods that leave give back, and what matters there."""

import pytest

from exporter.waiting.device_changes import DeviceChanges
from exporter.waiting.objects import Objects, PodKey, ResourceClaim
from tests.core.waiting.records import DRIVER, claim, cluster, device, node, piece, pod, request

ASKING = pod(claims=("mine",))
KEY = ("ml", "c")
A = device("a")


def after(objects: Objects, *gone: str) -> Objects:
    """Return the objects that matter on the node after pods have left it, by namespace/name."""
    left = frozenset(PodKey(*name.split("/")) for name in gone)
    return DeviceChanges(objects).after(ASKING, "n1", left, frozenset(), ())


def taken(users: set[str] | None, owner: str = "", *, ending: bool = False) -> Objects:
    """Return a cluster with a claim that has the only device."""
    named = None if users is None else frozenset(users)
    claims = claim(request(), name="c", allocated=(A.name,), users=named, owner=owner, ending=ending)
    return cluster(node(), claims=claims | claim(request(), name="mine"), slices=(piece(A),))


def state(objects: Objects) -> str:
    """Return what has become of the claim."""
    found = (objects.claims or {}).get(KEY)
    if found is None:
        return "deleted"
    return ("being deleted, " if found.ending else "") + ("free" if found.allocated is None else "taken")


@pytest.mark.parametrize(
    ("expected", "claims", "gone"),
    [
        ("free", taken({"a"}), ["ml/a"]),
        ("free", taken({"a", "b"}), ["ml/a", "ml/b", "ml/c"]),
        ("taken", taken({"a", "b"}), ["ml/a"]),
        ("taken", taken({"a", "b"}), ["ml/a", "web/b"]),
        ("taken", taken({"a"}), ["web/a"]),
        ("taken", taken(set()), ["ml/a"]),
        ("taken", taken(None), ["ml/a"]),
        ("deleted", taken({"a"}, "a"), ["ml/a"]),
        # It was generated for a pod that does not use it yet.
        ("deleted", taken(set(), "a"), ["ml/a"]),
        ("being deleted, taken", taken({"a", "b"}, "a"), ["ml/a"]),
        ("free", taken({"a"}, "b"), ["ml/a"]),
        ("deleted", taken({"a"}, ending=True), ["ml/a"]),
        ("being deleted, taken", taken(None, "a"), ["ml/a"]),
    ],
)
def test_a_claim_once_pods_are_gone(expected: str, claims: Objects, gone: list[str]) -> None:
    assert state(after(claims, *gone)) == expected
    assert "taken" in state(after(claims))


def test_claims_by_pod_are_those_with_devices_that_it_uses() -> None:
    def names(objects: Objects, pod: str) -> list[str]:
        found: list[ResourceClaim] = [*DeviceChanges(objects).held(PodKey("ml", pod))]
        return [each.name for each in found]

    assert names(taken({"a"}, "b"), "a") == ["c"]
    assert names(taken({"a"}, "b"), "b") == []
    assert names(taken(None, "b"), "b") == []
    free = cluster(node(), claims=claim(request(), name="c", users=frozenset({"a"})))
    assert names(free, "a") == []


def test_only_what_matters_on_the_node_is_kept() -> None:
    """That is its own pools, those for several nodes, claims that have their devices, and the pod's own."""
    far = piece(device("far"), node="n2", pool="n2")
    shared = piece(node="", pool="shared")
    newer = piece(generation=2, node="n2")
    elsewhere = claim(request(), name="far", allocated=(A.name._replace(pool="n2"),))
    objects = taken({"a"})
    objects = cluster(
        node(), node("n2"), claims=(objects.claims or {}) | elsewhere, slices=(far, shared, piece(A), newer)
    )

    found = after(objects)

    # A newer generation of a pool counts, wherever it is.
    assert {(each.node, each.pool) for each in found.slices or ()} == {
        ("", "shared"),
        ("n1", "n1"),
        ("n2", "n1"),
    }
    assert set(found.claims or ()) == {KEY, ("ml", "mine")}


def test_what_is_not_known_stays_unknown() -> None:
    unknown = cluster(node(), claims=None, slices=None)

    assert (after(unknown, "ml/a").claims, after(unknown, "ml/a").slices) == (None, None)


def test_sizes_are_those_of_devices_that_surely_meet_all_selectors() -> None:
    big = f"device.attributes['{DRIVER}'].size == 'big'"
    slices = (piece(device("a", size="big"), device("b", size="small"), device("c")),)
    changes = DeviceChanges(cluster(node(), slices=slices))

    assert {place: len(sizes) for place, sizes in changes.sizes((big,)).items()} == {"n1": 1}
    assert changes.sizes(("device.driver.matches('gpu')",)) == {}
