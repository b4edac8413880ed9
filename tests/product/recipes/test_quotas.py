"""Quotas of Kueue and of namespaces, next to what is held and used."""

import re

import pytest

from tests.product.recipes.scene import CLUSTERS
from tests.product.recipes.test_page import PAGE
from tests.together.end_to_end.programs import Prometheus

pytestmark = pytest.mark.slow

_SECTION = PAGE.partition("\n## Quotas: Kueue and ResourceQuota\n")[2].partition("\n## ")[0]
_PARTS = re.split(r"^# (.*)\n", _SECTION.partition("```promql\n")[2].partition("```")[0], flags=re.MULTILINE)
QUERIES = dict(zip(_PARTS[1::2], _PARTS[2::2], strict=True))


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Quota of queues that is used up, by resource", 2 / 4),
        ("Requests that wait in a queue", 1),
        ("Compute held by queue", 1 + 1 / 4),
        ("Compute used by queue", 0.9 + 0.1),
        ("Quota of namespaces that is used up", 3 / 4),
    ],
)
def test_each_cluster_has_its_own(title: str, expected: float, server: Prometheus) -> None:
    """One queue and one quota are in each cluster; only its pods count for the queue."""
    result = server.api("query", query=QUERIES[title])["result"]

    assert {each["metric"]["cluster"]: float(each["value"][1]) for each in result} == {
        cluster: pytest.approx(expected, rel=0.1) for cluster in CLUSTERS
    }
    assert len(result) == len(CLUSTERS)
