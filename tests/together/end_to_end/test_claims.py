"""Claims of a node without a device plugin in a real Prometheus, in ``inspect`` and in a recipe."""

import json
from collections.abc import Iterator

import pytest

from tests.core.commands.program import output_of
from tests.product.alerts.committed import quick_rules
from tests.product.recipes.test_page import queries
from tests.together.end_to_end.programs import Prometheus, demo, prometheus, scraped_snapshots, until

NODE = "dra-h200-1"
CLAIM = "pretrain-0-gpus-k7x2m"
# Polls are rare, so that the node shows what Prometheus has scraped.
ONCE = ("--poll-interval", "1h", "--stale-after", "2h")
KNOWN = f'node:gpuslice_total_gpus:count{{node="{NODE}"}}'


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["core", "standard"])
def scraped(request, tmp_path_factory) -> Iterator[tuple[str, Prometheus, list[dict]]]:
    """Scrape a node with this set of series; yield the set, Prometheus, and the containers of the node."""
    folder = tmp_path_factory.mktemp("claims")
    with (
        demo("dra-only", *ONCE, "--metric-set", request.param) as url,
        prometheus(
            folder, {"dra": f"{url}/metrics"}, scrape={"honor_labels": True}, rules=[quick_rules(folder)]
        ) as server,
    ):
        until(lambda: server.query(KNOWN), "the records are there")
        (snapshot,) = until(lambda: scraped_snapshots(server, [url]), "the snapshot is scraped")
        server.settle()
        yield request.param, server, snapshot["containers"]


def _holders(server: Prometheus) -> list[dict]:
    text = output_of("inspect", "--details", "--output", "json", "--prometheus-url", server.url)
    (node,) = json.loads(text)["nodes"]
    return [holder for gpu in node["devices"] for holder in gpu["holders"]]


def test_inspect_shows_claims_if_prometheus_has_them(scraped) -> None:
    """They are the claims of the node, each with its request; the core set has none."""
    metric_set, server, rows = scraped
    known = {(row["pod"], row["gpu"]): row["claim"] for row in rows}
    shown = output_of("inspect", "--details", "--prometheus-url", server.url)

    assert (CLAIM in shown, "CLAIM" in shown) == ((metric_set == "standard"),) * 2
    assert not [line for line in shown.splitlines() if line != line.rstrip()]
    for gpu, holder in enumerate(_holders(server)):
        expected = None if metric_set == "core" else known[holder["pod"], str(gpu)]
        claims = holder["claims"] and [
            {
                {"namespace": "claim_namespace", "name": "claim"}.get(key, key): text
                for key, text in claim.items()
            }
            for claim in holder["claims"]
        ]
        assert claims == expected


def test_inspect_shows_the_health_that_the_kubelet_reports(scraped) -> None:
    _, server, rows = scraped

    assert [holder["health"] for holder in _holders(server)] == [row["health"] for row in rows]
    assert "HEALTH" in output_of("inspect", "--details", "--prometheus-url", server.url)


def test_the_use_of_a_claim_is_that_of_its_devices(scraped) -> None:
    """The recipe counts no other devices of the containers."""
    metric_set, server, rows = scraped
    compute, memory = (query for query in queries() if "gpuslice_container_claim_info" in query)
    for query, field in ((compute, "compute_used_ratio"), (memory, "memory_used_bytes")):
        used = {
            each["metric"]["claim"]: float(each["value"][1])
            for each in server.api("query", query=query)["result"]
        }
        expected: dict[str, float] = {}
        for row in rows if metric_set == "standard" else ():
            for claim in row["claim"]:
                expected[claim["claim"]] = expected.get(claim["claim"], 0) + row[field]
        assert used == pytest.approx(expected)
