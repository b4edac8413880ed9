"""Every query of every dashboard, asked of a real Prometheus that has scraped nodes of many kinds."""

import importlib
import math
import re
from collections.abc import Iterator

import pytest

from tests.dashboards.answers import EVERYTHING, FILES, LEGEND, Answer, choice, drawn, says_none
from tests.dashboards.expressions import parts
from tests.dashboards.foreign import FOREIGN, choices, compared
from tests.dashboards.grafana import Window, ask, panels
from tests.dashboards.looks import link, links
from tests.dashboards.records import record_labels
from tests.dashboards.scene import Scene, scene
from tests.end_to_end.programs import program

pytestmark = pytest.mark.slow

EMPTY_HERE = {
    "fleet": {"Sources that fail"},
    "hardware": {"Other events", "Slowed down"},
}
"""Panels for which no fake node has anything: their dashboards must say that they may be empty."""
NEVER_SCRAPED = {
    "gpuslice_gpu_encoder_active_ratio": "no fake GPU has a meter of its encoders",
    "gpuslice_mig_encoder_active_ratio": "no fake GPU has a meter of its encoders",
}
"""Series that no fake node has: a query for them may be empty beside another one in its panel."""
BUSY, SICK = "gpu-node-1", "hgx-a100-sick"
CHOICES = {
    "node": ({"node": [BUSY]}, {"node": [SICK]}),
    "hardware": ({"node": [BUSY]}, {"node": [SICK]}),
    "tenant": ({"namespace": ["shop"], "pod": ["rank"]}, {"namespace": ["train"], "pod": ["llm-3"]}),
    "fleet": ({"cluster": ["east"]}, {"cluster": ["west"]}),
}
KNOWN = re.compile(r'or on \(\) label_replace\(count\((.*)\) \* NaN, "\w+", "none"')
NARROWED = ("node", "namespace", "cluster")
"""Variables that narrow a dashboard: the first one that it has is varied."""

each_board = pytest.mark.parametrize("name", FILES)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Scrape the nodes once for all tests."""
    program("prometheus")
    with scene(tmp_path_factory.mktemp("scene")) as made:
        yield made


@pytest.fixture(scope="module")
def answers(seen: Scene) -> dict[str, list[Answer]]:
    """Draw every dashboard with everything chosen."""
    return {name: list(drawn(name, seen, choice(name, seen, EVERYTHING))) for name in FILES}


@each_board
def test_no_panel_is_empty(answers, name) -> None:
    """With everything chosen each query has an answer, but for what no fake node has."""
    may_be_empty = getattr(importlib.import_module(f"dashboards.{name}"), "MAY_BE_EMPTY", {})
    empty = [each for each in answers[name] if not each.found]
    silent = [
        each.called
        for each in empty
        if each.panel["title"] not in EMPTY_HERE.get(name, set())
        and not {selector.name for selector in parts(each.target["expr"]).selectors} & NEVER_SCRAPED.keys()
    ]
    answered = {each.panel["title"] for each in answers[name] if each.found}
    titles = {panel["title"] for panel in panels(FILES[name]) if panel.get("targets")}

    assert not silent
    assert titles - answered == EMPTY_HERE.get(name, set()) <= may_be_empty.keys()


def test_what_is_never_scraped_is_not(seen) -> None:
    """No series is excused that there is."""
    for name in NEVER_SCRAPED:
        assert not seen.server.api("query", query=name, time=str(seen.now))["result"], name


@each_board
def test_numbers_are_numbers(answers, name) -> None:
    """No query divides by nothing: what is not known is absent, and neither NaN nor infinite."""
    wrong = [
        each.called
        for each in answers[name]
        for series in each.found
        if not all(map(math.isfinite, series.values.values()))
    ]

    assert not wrong


@each_board
def test_legends_and_columns_are_labels(answers, name) -> None:
    """What a legend or a column shows is a label that the series may have, or a value."""
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
def test_a_choice_shows_its_own_rows(seen, answers, name) -> None:
    """Of whatever is told by node, pod or cluster, a choice shows all rows of its own, and no others."""
    for chosen in CHOICES[name]:
        found = drawn(name, seen, choice(name, seen, chosen))
        for whole, each in zip(answers[name], found, strict=True):
            told = {(label, value) for label, (value,) in chosen.items()}
            if all(chosen.keys() <= series.labels.keys() for series in whole.found):
                own = {row for row in whole.rows if told <= set(row)}
                # Of all together, a list of the largest has not all that a list of one's own has.
                assert own <= each.rows if "topk" in whole.target["expr"] else own == each.rows, each.called
                assert all(told <= set(row) for row in each.rows), each.called


@each_board
def test_a_table_that_lists_nothing_says_so(seen, name) -> None:
    """Whatever is chosen, a table that can say "none" has a row where it is known what it lists."""
    offered = choice(name, seen, EVERYTHING).offered
    by = next(variable for variable in NARROWED if variable in offered)
    told = 0
    for chosen in offered[by]:
        variables = choice(name, seen, {by: [chosen]})
        for each in drawn(name, seen, variables):
            for known in KNOWN.findall(each.target["expr"]):
                expected = bool(ask({"expr": known, "instant": True}, variables, seen.server))
                assert bool(each.series) >= expected, (each.called, chosen)
                told += sum(map(says_none, each.series))
    assert told


@each_board
def test_rows_can_be_merged(answers, name) -> None:
    """No query of a table has the name of its series or the labels of a target: rows would stay apart."""
    for each in answers[name]:
        if each.panel["type"] == "table" and len(each.panel["targets"]) > 1:
            for series in each.series:
                assert not series.labels.keys() & {"__name__", "job", "instance"}, each.called


@each_board
def test_a_cell_leads_to_what_it_shows(answers, name) -> None:
    """No link sets a variable to the words for a missing value, "-" or "unknown"."""
    for each in answers[name]:
        for url in links(each.panel):
            for series in each.found:
                led = link(each.panel, url, series.labels)
                assert not re.search(r"=(-|unknown)(&|$)", led), (each.called, led)


@each_board
def test_no_series_is_drawn_twice(seen, name) -> None:
    """Where one is chosen, the series of a query are told apart by their legends."""
    for each in drawn(name, seen, choice(name, seen, CHOICES[name][0])):
        assert len(set(each.lines)) == len(each.lines), (each.called, each.lines)


@each_board
def test_variables_offer_something(seen, name) -> None:
    """Every list has values, each once."""
    variables = choice(name, seen, EVERYTHING)
    for called, offered in variables.offered.items():
        assert offered, called
        assert len(set(offered)) == len(offered), called


@each_board
def test_clusters_are_told_apart(seen, name) -> None:
    """Nodes and pods that are called the same in two clusters are not called the same in a panel."""
    for each in drawn(name, seen, choice(name, seen, {"node": [BUSY]})):
        assert len(set(each.lines)) == len(each.lines), (each.called, each.lines)


def test_records_have_the_labels_that_they_should(seen) -> None:
    """What the dashboards may group records by is what the records have."""
    found = seen.server.api("query", query='{__name__=~".+:gpuslice_.+:.+"}', time=str(seen.now))["result"]
    assert found
    for series in found:
        name = series["metric"].pop("__name__")
        assert series["metric"].keys() <= record_labels(name), name


@pytest.mark.parametrize("dashboard", FOREIGN, ids=lambda dashboard: dashboard["source"])
def test_dashboards_and_alerts_for_dcgm_have_data(seen, dashboard) -> None:
    """Every query has an answer, and every alert something that it compares."""
    chosen = list(choices(seen.server, Window(seen.now)))
    silent = [
        expression
        for expression in dashboard["expressions"]
        if not any(ask({"expr": compared(expression), "instant": True}, each, seen.server) for each in chosen)
    ]

    assert not silent
