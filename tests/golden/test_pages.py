"""The page of every node, compared with the page that was reviewed.

HELP and TYPE are compared once, in ``families.prom``: a text that is reworded is one changed line. The page
is the one without any option, less the names of DCGM; on the nodes of ``WITH_ALL``, which have nearly all
series, the page of all series is compared too.
``pytest tests/golden --update-golden`` writes all of these files.
"""

import math
from difflib import unified_diff
from pathlib import Path

import pytest

from exporter.demo.scenario import Fault, catalog
from exporter.exposition import SelfMetrics
from exporter.exposition.lines import text_header
from exporter.metrics import FAMILIES
from exporter.metrics.dcgm import DCGM
from tests.golden.page import headers, reviewed
from tests.golden.story import HERE, NODES, golden, scenario, story, times

WITH_ALL = ("confidential", "dra", "dra-only", "gb200-nvl72", "h100-exclusive", "sick-gpus")


def _compare(path: Path, lines: list[str], request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden", default=False):
        path.write_text("".join(f"{line}\n" for line in lines))
    named = str(path.relative_to(HERE)), "now"
    shown = "\n".join(unified_diff(path.read_text().splitlines(), lines, *named, n=1, lineterm=""))
    assert not shown, f"\n{shown}\nif this is meant: pytest tests/golden --update-golden"


@pytest.mark.parametrize("name", NODES)
def test_the_page_is_the_one_that_was_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    """The samples of a node have not changed, except values that differ from run to run."""
    for scene in story(name).scenes:
        _compare(golden(name, scene.time), reviewed(scene.default, dcgm=False), request)


@pytest.mark.parametrize("name", WITH_ALL)
def test_all_series_are_those_that_were_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    """The same with ``--metric-set full`` and ``--dcgm-names all``, at the first moment."""
    scene = story(name).scenes[0]
    _compare(HERE / name / "full.prom", reviewed(scene.text, dcgm=True), request)


@pytest.mark.parametrize("name", NODES)
def test_the_default_page_is_a_part_of_all_series(name: str) -> None:
    """A set leaves series out, and changes none."""
    for scene in story(name).scenes:
        assert set(reviewed(scene.default, dcgm=True)) <= set(reviewed(scene.text, dcgm=True))


def test_help_and_type_are_those_that_were_reviewed(request: pytest.FixtureRequest) -> None:
    """Each family has one HELP and one TYPE line, in the order of the page."""
    spelt = b"".join(map(text_header, (*FAMILIES, *DCGM))).decode().splitlines()
    of_process = SelfMetrics().body(openmetrics=False).decode().splitlines()
    lines = [*spelt, *(line for line in of_process if line.startswith("# "))]

    assert len(lines) == len(set(lines))
    _compare(HERE / "families.prom", lines, request)


@pytest.mark.parametrize("name", NODES)
def test_a_page_has_no_other_help_or_type(name: str) -> None:
    """What stands above the samples of a page is in the reviewed file."""
    known = headers((HERE / "families.prom").read_text())
    for scene in story(name).scenes:
        assert headers(scene.text) <= known


def test_every_scenario_has_a_page() -> None:
    """Each scenario that comes with the program is here, and all else here brings its own scenario."""
    own = {path.parent.name for path in HERE.glob("*/scenario.json")}

    assert set(NODES) == own | set(catalog.names())
    assert not own & set(catalog.names())


@pytest.mark.parametrize("name", [name for name in NODES if scenario(name).faults])
def test_every_fault_is_looked_at(name: str) -> None:
    """For each fault there is a page while it lasts, and one when it is over."""
    for fault in scenario(name).faults:
        end = _end(fault)
        assert any(fault.at <= time < end for time in times(name)), fault
        assert math.isinf(end) or any(time >= end for time in times(name)), fault


def _end(fault: Fault) -> float:
    return math.inf if fault.for_ is None else fault.at + fault.for_
