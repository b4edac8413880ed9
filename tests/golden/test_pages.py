"""Every byte of the page of every node, compared with the page that was reviewed.

``pytest tests/golden --update-golden`` writes the pages anew.
"""

import math
from difflib import unified_diff

import pytest

from exporter.demo import catalog
from exporter.demo.schema_faults import Fault
from tests.golden.page import masked
from tests.golden.story import HERE, NODES, golden, scenario, story, times


@pytest.mark.parametrize("name", NODES)
def test_the_page_is_the_one_that_was_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    """What a node serves has not changed, apart from what differs from run to run."""
    for scene in story(name).scenes:
        path, page = golden(name, scene.time), masked(scene.text)
        if request.config.getoption("--update-golden", default=False):
            path.write_text(page)
        before, now = path.read_text().splitlines(), page.splitlines()
        named = str(path.relative_to(HERE)), "now"
        shown = "\n".join(unified_diff(before, now, *named, n=1, lineterm=""))
        assert not shown, f"\n{shown}\nif this is meant: pytest tests/golden --update-golden"


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
