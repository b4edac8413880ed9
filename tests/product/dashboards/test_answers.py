"""Every query of every dashboard, answered by a real Prometheus that has scraped nodes of many kinds."""

import importlib
import math
import re
from collections.abc import Iterator

import pytest

from tests.product.dashboards.answers import EVERYTHING, LEGEND, Answer, choice, drawn, says_none
from tests.product.dashboards.boards import FILES
from tests.product.dashboards.expressions import parts
from tests.product.dashboards.foreign import FOREIGN, choices, compared
from tests.product.dashboards.grafana import Window, ask, panels
from tests.product.dashboards.looks import link, links
from tests.product.dashboards.records import record_labels
from tests.product.dashboards.scene import Scene, scene
from tests.tools import tool

pytestmark = pytest.mark.slow

# Panels for which no fake node has data: their dashboards must list them as panels that may be empty.
EMPTY_HERE = {
    "fleet": {"Sources that fail"},
    "hardware": {"Other events", "Slowed down"},
    "tenant": {"GPU-hours held by day", "GPU-hours used by day"},
}
# No fake GPU measures its encoders: a query for these series may be empty if another one of its panel is not.
NEVER_SCRAPED = {"gpuslice_gpu_encoder_active_ratio", "gpuslice_mig_encoder_active_ratio"}
BUSY, SICK = "gpu-node-1", "hgx-a100-sick"
CHOICES = {
    "node": ({"node": [BUSY]}, {"node": [SICK]}),
    "hardware": ({"node": [BUSY]}, {"node": [SICK]}),
    "tenant": ({"namespace": ["shop"], "pod": ["rank"]}, {"namespace": ["train"], "pod": ["llm-3"]}),
    "fleet": ({"cluster": ["east"]}, {"cluster": ["west"]}),
}
KNOWN = re.compile(r'or on \(\) label_replace\(count\((.*)\) \* NaN, "\w+", "none"')
# The first of these variables that a dashboard has is varied.
NARROWED = ("node", "namespace", "cluster")

each_board = pytest.mark.parametrize("name", FILES)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Scrape the nodes once for all tests."""
    tool("prometheus")
    with scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(scope="module")
def answers(seen: Scene) -> dict[str, list[Answer]]:
    """Return all answers of each dashboard with everything chosen."""
    return {name: list(drawn(name, seen, choice(name, seen, EVERYTHING))) for name in FILES}


@each_board
def test_no_panel_is_empty(answers, name) -> None:
    """With everything chosen, except for what no fake node has."""
    may_be_empty = getattr(importlib.import_module(f"dashboards.{name}"), "MAY_BE_EMPTY", {})
    empty_here = EMPTY_HERE.get(name, set())
    empty = [
        answer.called
        for answer in answers[name]
        if not answer.found
        and answer.panel["title"] not in empty_here
        and not {selector.name for selector in parts(answer.target["expr"]).selectors} & NEVER_SCRAPED
    ]
    filled = {answer.panel["title"] for answer in answers[name] if answer.found}
    titles = {panel["title"] for panel in panels(FILES[name]) if panel.get("targets")}

    assert not empty
    assert titles - filled == empty_here <= may_be_empty.keys()


def test_series_excused_as_never_scraped_do_not_exist(seen) -> None:
    for name in NEVER_SCRAPED:
        assert not seen.server.api("query", query=name, time=str(seen.now))["result"], name


@each_board
def test_no_value_is_infinite_or_not_a_number(answers, name) -> None:
    """Unknown values are absent: no query divides by zero."""
    wrong = [
        each.called
        for each in answers[name]
        for series in each.found
        if not all(map(math.isfinite, series.values.values()))
    ]

    assert not wrong


@each_board
def test_legends_and_columns_show_labels_that_the_series_may_have(answers, name) -> None:
    for each in answers[name]:
        shown = set(LEGEND.findall(each.target.get("legendFormat", "")))
        assert shown <= each.labels, each.called
    for panel in panels(FILES[name]):
        if panel["type"] == "table":
            own = [each for each in answers[name] if each.panel is panel]
            values = {f"Value #{each.target['refId']}" for each in own} if len(own) > 1 else {"Value"}
            (ordered,) = (step for step in panel["transformations"] if step["id"] == "organize")
            columns = ordered["options"]["indexByName"].keys()
            assert columns <= values | {label for each in own for label in each.labels}, panel["title"]


@each_board
def test_a_chosen_node_pod_or_cluster_shows_all_its_rows_and_no_others(seen, answers, name) -> None:
    for chosen in CHOICES[name]:
        labels = {(label, value) for label, (value,) in chosen.items()}
        for whole, part in zip(answers[name], drawn(name, seen, choice(name, seen, chosen)), strict=True):
            if all(chosen.keys() <= series.labels.keys() for series in whole.found):
                own = {row for row in whole.rows if labels <= set(row)}
                # A list of the largest of all lacks some of the largest of a part.
                assert own <= part.rows if "topk" in whole.target["expr"] else own == part.rows, part.called
                assert all(labels <= set(row) for row in part.rows), part.called


@each_board
def test_an_empty_table_has_a_row_with_none_if_that_is_known(seen, name) -> None:
    offered = choice(name, seen, EVERYTHING).offered
    by = next(variable for variable in NARROWED if variable in offered)
    rows_of_none = 0
    for chosen in offered[by]:
        variables = choice(name, seen, {by: [chosen]})
        for each in drawn(name, seen, variables):
            for known in KNOWN.findall(each.target["expr"]):
                expected = bool(ask({"expr": known, "instant": True}, variables, seen.server))
                assert bool(each.series) >= expected, (each.called, chosen)
                rows_of_none += sum(map(says_none, each.series))
    assert rows_of_none


@each_board
def test_queries_of_one_table_have_no_labels_that_keep_their_rows_apart(answers, name) -> None:
    for each in answers[name]:
        if each.panel["type"] == "table" and len(each.panel["targets"]) > 1:
            for series in each.series:
                assert not series.labels.keys() & {"__name__", "job", "instance"}, each.called


@each_board
def test_no_link_sets_a_variable_to_the_text_of_a_missing_value(answers, name) -> None:
    for each in answers[name]:
        for url in links(each.panel):
            for series in each.found:
                target = link(each.panel, url, series.labels)
                assert not re.search(r"=(-|unknown)(&|$)", target), (each.called, target)


@each_board
def test_series_of_a_query_have_different_names(seen, name) -> None:
    """Also nodes and pods of the same name in two clusters."""
    for chosen in (CHOICES[name][0], {"node": [BUSY]}):
        for each in drawn(name, seen, choice(name, seen, chosen)):
            assert len(set(each.lines)) == len(each.lines), (each.called, each.lines)


@each_board
def test_variables_offer_values_each_once(seen, name) -> None:
    for variable, offered in choice(name, seen, EVERYTHING).offered.items():
        assert len(set(offered)) == len(offered) > 0, variable


def test_records_have_only_the_labels_that_they_may_have(seen) -> None:
    records = seen.server.api("query", query='{__name__=~".+:gpuslice_.+:.+"}', time=str(seen.now))["result"]
    assert records
    for series in records:
        name = series["metric"].pop("__name__")
        assert series["metric"].keys() <= record_labels(name), name


@pytest.mark.parametrize("dashboard", FOREIGN, ids=lambda dashboard: dashboard["source"])
def test_dashboards_and_alerts_for_dcgm_have_data(seen, dashboard) -> None:
    variables = list(choices(seen.server, Window(seen.now)))
    empty = [
        expression
        for expression in dashboard["expressions"]
        if not any(
            ask({"expr": compared(expression), "instant": True}, each, seen.server) for each in variables
        )
    ]

    assert not empty
