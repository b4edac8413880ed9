"""The benchmark of a fleet at its smallest measures, with the results that are known beforehand."""

from typing import Any

import pytest

from benchmarks.document import texts
from benchmarks.fleet import FARTHEST, TEXTS, markdown, measure, reading
from benchmarks.fleet.looks import asked, copied, measured
from tests.tools import tool

GROUPS = 15
"""Groups of rules, of recording rules and alerts."""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Measure as little as can be."""
    tool("prometheus")
    return measure("", quick=True)


@pytest.mark.slow
def test_a_fleet_has_the_series_of_its_nodes(found: dict[str, Any]) -> None:
    """Every node is scraped, and counted with the same series, so that they grow by the power of 1."""
    *_, largest = found["growth"]
    assert [fleet["series"] / fleet["nodes"] for fleet in found["growth"]] == [largest["series"] / 3] * 2
    assert found["many"]["series"] / 5 == largest["series"] / 3
    assert found["exponents"]["series"] == pytest.approx(1)
    assert found["extrapolated"]["series"] == pytest.approx(largest["series"] / 3 * FARTHEST)
    assert largest["scraping"] > 0
    assert largest["live"] > 0
    assert largest["live_with_rules"] > 0


@pytest.mark.slow
def test_all_groups_of_rules_are_evaluated(found: dict[str, Any]) -> None:
    """Each group took some time, and made of three nodes more than of one."""
    one, three = found["growth"]
    assert len(three["groups"]) == GROUPS
    assert all(group["seconds"] > 0 for group in three["groups"].values())
    assert {group["interval"] for group in three["groups"].values()} == {60, 240, 300, 900, 3600, 14400}
    assert 0 < one["made"] < three["made"]


@pytest.mark.slow
def test_the_tables_are_complete(found: dict[str, Any]) -> None:
    """Each fleet and each group of rules has its row, and no number is missing."""
    written = markdown(found, texts(TEXTS))
    rows = [line for line in written.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 * 2 + (2 + 3) + GROUPS
    assert "nan" not in written
    assert "{" not in written


@pytest.mark.slow
def test_a_look_at_copies_of_a_node_finds_all_of_them() -> None:
    """It raises an error where a node is missing, or a figure of one; what it costs is something."""
    tool("promtool")
    look = measured(copied(asked().values()), 3)
    assert look.nodes == 3
    assert look.cpu > 0
    assert look.hub > 20 << 20


@pytest.mark.slow
def test_reading_a_cluster_finds_all_objects() -> None:
    """It raises an error if some are missing; each step has its row, and what it costs is something."""
    costs = reading.measured(3, 2, 1)

    assert [cost.step for cost in costs] == [
        "before",
        "first list",
        "list after an expired version",
        "6 changes",
        "verdicts on all pods that wait",
        "the same, if they all differ",
    ]
    assert all(cost.cpu > 0 for cost in costs[1:])
    assert all(cost.resident > 20 << 20 for cost in costs)
    assert reading.text(costs).count("\n") == len(costs) + 1


@pytest.mark.slow
def test_objects_of_the_simulated_server_are_of_usual_length() -> None:
    pod, node = reading.lengths()

    assert 4000 < pod < 20_000
    assert 8000 < node < 40_000
