"""How many NVML calls the polls of each node cost, against ``call_budgets.toml``.

Counted are the calls from the start to the first golden page, which reads everything at least once, and the
calls that the node's GPUs turn out not to support. ``pytest tests/core/golden --update`` writes the file.
"""

import fcntl
import math
import tomllib

import pytest

from tests.core.golden.story import HERE, NODES, story

PATH = HERE / "call_budgets.toml"
HEADER = "# NVML calls until the first golden page, and unsupported calls: see test_budgets.py.\n"
# A budget that is higher would hide the next increase.
UNUSED_SHARE = 0.02


@pytest.mark.parametrize("name", NODES)
def test_polls_stay_within_the_budget_of_calls(name: str, request: pytest.FixtureRequest) -> None:
    page = story(name).scenes[0].page
    by_group = {labels["group"]: int(count) for labels, count in page.series("gpuslice_nvml_calls_total")}
    unsupported = sum(count for _, count in page.series("gpuslice_nvml_unsupported"))
    measured = {"calls": sum(by_group.values()), "unsupported": int(unsupported)}
    if request.config.getoption("--update"):
        _write(name, measured)
    budget = tomllib.loads(PATH.read_text()).get(name, {})
    assert _within(budget, measured), (
        f"{name}: measured {measured}, the budget is {budget}; the calls by group are {by_group}. "
        "If this is meant: pytest tests/core/golden --update"
    )


def test_every_budget_is_of_a_node() -> None:
    assert tomllib.loads(PATH.read_text()).keys() == set(NODES)


def test_a_budget_is_exceeded_by_one_call_and_may_not_be_far_too_high() -> None:
    budget = {"calls": 100, "unsupported": 0}
    assert [calls for calls in range(90, 110) if _within(budget, budget | {"calls": calls})] == [98, 99, 100]
    assert not _within(budget, budget | {"unsupported": 1})
    assert not _within({}, budget)


def _within(budget: dict[str, int], measured: dict[str, int]) -> bool:
    return budget.keys() == measured.keys() and all(
        math.floor(budget[kind] * (1 - UNUSED_SHARE)) <= count <= budget[kind]
        for kind, count in measured.items()
    )


def _write(name: str, measured: dict[str, int]) -> None:
    with PATH.open("r+") as file:
        # Several processes of pytest-xdist may write.
        fcntl.flock(file, fcntl.LOCK_EX)
        budgets = tomllib.loads(file.read()) | {name: measured}
        lines = [
            f"{node} = {{ calls = {budgets[node]['calls']}, unsupported = {budgets[node]['unsupported']} }}\n"
            for node in NODES
            if node in budgets
        ]
        file.seek(0)
        file.truncate()
        file.write(HEADER + "".join(lines))
