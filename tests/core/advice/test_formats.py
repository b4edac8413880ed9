"""Advice for programs: JSON and CSV agree, unknown is not zero, and both are served; its page of the docs."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from jsonschema import Draft202012Validator

from exporter.advice import advise
from exporter.advice.limits import UNITS
from exporter.advice.model import Advice, Reason
from exporter.demo.scenario import catalog
from exporter.formats.advice import advice_csv, advice_document
from exporter.web.node.openapi import operations
from tests.core.advice.simulated import STEP, Run, gib, mig, steps, whole, window
from tests.together.end_to_end.serving import serving

DOCS = (Path(__file__).parents[3] / "docs/advice.md").read_text()
WEEK = steps(7)


def small() -> Advice:
    """Return the advice on a workload that needs a small part of its GPU."""
    run = Run(memory=[gib(3), gib(6)] * (WEEK // 2), compute=[0.08] * WEEK, sm=[0.08] * WEEK)
    return advise(window(run))


def idle() -> Advice:
    """Return the advice to release a GPU."""
    return advise(window(Run(memory=[gib(6)] * WEEK, compute=[0.0] * WEEK, pod="idle")))


def partitioned() -> Advice:
    """Return the advice on a MIG device that is too large, with unknown slices beside it."""
    device = mig("3g.40gb", adjacent=None)
    run = Run(memory=[gib(3), gib(6)] * (WEEK // 2), compute=[0.08] * WEEK, sm=[0.08] * WEEK)
    return advise(window(replace(run, memory_entitled=device.memory, compute_entitled=3 / 7), device=device))


def young() -> Advice:
    """Return the reason not to advise on a container of an hour."""
    return advise(window(Run(memory=[gib(6)] * 12, compute=[0.08] * 12), device=whole(memory=None)))


def rows(advices: list[Advice]) -> list[dict[str, str]]:
    """Return the lines of the CSV."""
    return list(csv.DictReader(io.StringIO(advice_csv(advices), newline="")))


def test_csv_has_window_coverage_and_confidence_of_json() -> None:
    advices = [small(), young()]
    found, (first, second) = rows(advices), advice_document(advices, 0.0)["advice"]
    assert [row["verdict"] for row in found] == ["mig_profile", ""]
    assert found[0]["target"] == first["options"][0]["target"] == "1g.10gb"
    assert float(found[0]["gpus_freed"]) == first["options"][0]["gpus_freed"]
    for row, record in zip(found, (first, second), strict=True):
        assert row["confidence"] == (record["confidence"] or "")
        assert float(row["coverage"]) == record["coverage"]
        assert [float(row[f"window_{name}"]) for name in record["window"]] == list(record["window"].values())
        assert row["reason"] == (record["reason"] or "")
    assert (found[1]["reason"], found[1]["gpus_freed"], found[1]["would_fit"]) == ("young", "", "")
    assert found[0]["gpus"] == "GPU-0"
    assert found[0]["holders"] == "ml/p0/main"


def test_csv_lists_all_containers_of_a_gpu_that_several_share() -> None:
    """It has no namespace, workload and container of its own."""
    turns = [Run(pod=name, memory=[gib(3)] * WEEK, compute=[0.1] * WEEK) for name in ("a", "b")]
    advice = advise(replace(window(*turns), namespace="", workload="", container=""))
    (row,) = rows([advice])

    assert (row["namespace"], row["workload"], row["container"]) == ("", "", "")
    assert row["holders"] == "ml/a/main; ml/b/main"


def test_a_spreadsheet_does_not_run_a_name() -> None:
    advice = small()
    hostile = replace(advice, window=replace(advice.window, workload='=cmd|"x"!A1'))
    assert rows([hostile])[0]["workload"] == '\'=cmd|"x"!A1'


def test_savings_add_up_first_options_only() -> None:
    advices = [small(), idle(), partitioned(), young()]
    assert len(advices[0].options) > 1
    options = [advice.options[0] for advice in advices if advice.options]
    freed = sum(option.gpus_freed for option in options)
    fits = sum(option.gpus_freed for option in options if option.would_fit)
    unknown = sum(option.gpus_freed for option in options if option.would_fit is None)
    savings = advice_document(advices, 0.0)["savings"]
    priced = advice_document(advices, 0.0, price=2.5)["savings"]
    assert 0 < unknown < fits
    assert fits + unknown == pytest.approx(freed)
    for name, gpus in (("could_be_freed", freed), ("would_fit", fits), ("may_fit", unknown)):
        known = {"gpus": pytest.approx(gpus), "gpu_hours_per_day": pytest.approx(24 * gpus)}
        assert savings[name] == known | {"cost_per_day": None}
        assert priced[name] == known | {"cost_per_day": pytest.approx(60 * gpus)}


def test_savings_are_unknown_if_nothing_is_known_of_any_window() -> None:
    """That none of them has advice frees nothing that is known."""
    priced = advice_document([young()], 0.0, price=2.5)["savings"]
    nothing = advice_document([], 0.0, price=2.5)["savings"]
    for name in ("could_be_freed", "would_fit", "may_fit"):
        assert set(priced[name].values()) == {None}
        assert set(nothing[name].values()) == {0.0}
    assert priced["without_advice"] == {"young": 1}


async def test_json_and_csv_are_served() -> None:
    settings = {"poll_interval": STEP, "stale_after": 2 * STEP}
    async with serving(catalog.load("l40s"), began=1_700_000_000.0, **settings) as served:
        for step in range(2):
            await served.poll(step * STEP)
        url = f"{served.url}/api/v1/advice"
        async with served.client.get(url) as answer:
            document = json.loads(await answer.text())
        async with served.client.get(url, headers={"Accept": "text/csv"}) as answer:
            text, name = await answer.text(), answer.headers["Content-Disposition"]
        async with served.client.get(f"{url}?format=csv") as answer:
            assert await answer.text() == text
        async with served.client.get(f"{url}?format=text") as answer:
            assert answer.status == 400
    found = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["workload"] for row in found] == [one["workload"] or "" for one in document["advice"]]
    assert {row["reason"] for row in found} == {"young"}
    assert name.startswith('attachment; filename="gpuslice-advice-')
    described = operations.document()["components"]["schemas"]
    Draft202012Validator({**described["AdviceReport"], "components": {"schemas": described}}).validate(
        document
    )


def test_every_reason_and_every_system_with_units_is_on_the_page() -> None:
    assert {name for name in (*get_args(Reason), *UNITS) if f"`{name}`" not in DOCS} == set()
