"""Joins with kube-state-metrics."""

import re

import pytest

from tests.product.recipes.scene import CLUSTERS
from tests.product.recipes.test_page import PAGE
from tests.together.end_to_end.programs import Prometheus

pytestmark = pytest.mark.slow

_SECTION = PAGE.partition("\n## Owners, node labels, claims\n")[2].partition("\n## ")[0]
HELD, USED, ZONES, CLAIMS = (
    query
    for query in re.split(
        r"^#.*\n", _SECTION.partition("```promql\n")[2].partition("```")[0], flags=re.MULTILINE
    )[1:]
)


def _values(server: Prometheus, query: str, *names: str) -> dict[tuple[str, ...], float]:
    """Return values by cluster and the labels of these names."""
    return {
        tuple(each["metric"].get(name, "") for name in ("cluster", *names)): float(each["value"][1])
        for each in server.api("query", query=query)["result"]
    }


def test_owners_hold_what_their_pods_hold(server: Prometheus) -> None:
    """A Deployment has all its pods, on each cluster apart; a pod without an owner is in no sum."""
    held = _values(server, HELD, "owner_kind", "owner_name")

    expected = {
        ("Deployment", "infer"): 1 + 1 / 4,
        ("Deployment", "embed"): 1 / 4 + 1 / 7,
        ("Deployment", "wide"): 1 / 4,
        ("StatefulSet", "idle-whole"): 1,
        ("StatefulSet", "idle-shared"): 1 / 4,
        ("StatefulSet", "unknown"): 1 / 7,
    }
    assert held == {
        (cluster, *owner): pytest.approx(value, rel=0.01)
        for cluster in CLUSTERS
        for owner, value in expected.items()
    }


def test_an_owner_with_unknown_use_has_no_use(server: Prometheus) -> None:
    """It is absent, not 0; that of others is known."""
    used = _values(server, USED, "owner_name")

    assert {name for _, name in used} == {"infer", "embed", "wide", "idle-whole", "idle-shared"}
    assert all(used[cluster, "idle-whole"] == 0 for cluster in CLUSTERS)
    assert all(used[cluster, "infer"] == pytest.approx(1, abs=0.1) for cluster in CLUSTERS)


def test_gpus_of_a_zone(server: Prometheus) -> None:
    """Nodes of equal names in two clusters are counted in their own."""
    zones = _values(server, ZONES, "label_topology_kubernetes_io_zone")

    assert {key: value for key, value in zones.items() if key[1] == "a"} == {(c, "a"): 5 for c in CLUSTERS}


def test_a_claim_has_the_use_of_its_pod(server: Prometheus) -> None:
    """The pod with a claim is idle, and known."""
    assert _values(server, CLAIMS, "resourceclaim_name") == {
        (c, "idle-whole-0-gpu-x7k2p"): 0 for c in CLUSTERS
    }
