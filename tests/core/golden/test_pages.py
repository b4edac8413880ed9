"""The page of every node, compared with the page that was reviewed.

HELP and TYPE are compared once, in ``families.prom``: a reworded text is one changed line. The page is the
default page, less the names of DCGM; on the nodes of ``WITH_ALL``, which have nearly all series, the page of
all series is compared too. The default names of DCGM are compared on the nodes of ``OF_VERSIONS``, for each
``--dcgm-version``. Numbers of NVML calls are in ``call_budgets.toml`` instead.
``pytest tests/core/golden --update`` writes all of these files.
"""

import math
from difflib import unified_diff
from pathlib import Path
from typing import get_args

import pytest

from exporter.demo.scenario import catalog
from exporter.exposition import Exposition, Format, SelfMetrics
from exporter.exposition.lines import text_header
from exporter.metrics import FAMILIES
from exporter.metrics.dcgm import DCGM, DcgmVersion
from exporter.metrics.selection import Selection
from tests.core.golden.page import headers, reviewed
from tests.core.golden.story import HERE, NODES, golden, scenario, story, times

# GPUs with profiling metrics and NVLink, and GPU instances of MIG.
OF_VERSIONS = ("confidential", "compute-instances")
WITH_ALL = ("confidential", "dra", "dra-only", "gb200-nvl72", "h100-exclusive", "sick-gpus")


def _compare(path: Path, lines: list[str], request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update"):
        path.write_text("".join(f"{line}\n" for line in lines))
    names = str(path.relative_to(HERE)), "now"
    diff = "\n".join(unified_diff(path.read_text().splitlines(), lines, *names, n=1, lineterm=""))
    assert not diff, f"\n{diff}\nif this is meant: pytest tests/core/golden --update"


def _families() -> list[str]:
    """Return the lines of ``families.prom``."""
    of_families = b"".join(map(text_header, (*FAMILIES, *DCGM["both"]))).decode().splitlines()
    of_process = SelfMetrics().body(openmetrics=False).decode().splitlines()
    return [*of_families, *(line for line in of_process if line.startswith("# "))]


@pytest.mark.parametrize("name", NODES)
def test_the_page_is_the_one_that_was_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    """And it is a part of the page with all series, whose HELP and TYPE are those of ``families.prom``."""
    known = headers("\n".join(_families()))
    for scene in story(name).scenes:
        _compare(golden(name, scene.time), reviewed(scene.default, dcgm=False), request)
        assert set(reviewed(scene.default, dcgm=True)) <= set(reviewed(scene.text, dcgm=True))
        assert headers(scene.text) <= known


@pytest.mark.parametrize("name", WITH_ALL)
def test_all_series_are_those_that_were_reviewed(name: str, request: pytest.FixtureRequest) -> None:
    """The same with ``--metric-set full`` and ``--dcgm-names all``, at the first moment."""
    scene = story(name).scenes[0]
    _compare(HERE / name / "full.prom", reviewed(scene.text, dcgm=True), request)


@pytest.mark.parametrize("version", get_args(DcgmVersion))
@pytest.mark.parametrize("name", OF_VERSIONS)
def test_names_of_each_version_of_dcgm_are_those_that_were_reviewed(
    name: str, version: DcgmVersion, request: pytest.FixtureRequest
) -> None:
    snapshot = story(name).scenes[0].snapshot
    assert snapshot is not None
    page = Exposition(Selection(dcgm_version=version)).page(snapshot).body(Format.TEXT).decode()
    lines = [line for line in reviewed(page, dcgm=True) if line.startswith("DCGM_")]
    _compare(HERE / name / f"dcgm-{version}.prom", lines, request)


def test_help_and_type_are_those_that_were_reviewed(request: pytest.FixtureRequest) -> None:
    """Each family has one HELP and one TYPE line, in the order of the page."""
    lines = _families()

    assert len(lines) == len(set(lines))
    _compare(HERE / "families.prom", lines, request)


def test_every_scenario_has_a_page() -> None:
    """The scenarios of the catalog, and those of this folder."""
    own = {path.parent.name for path in HERE.glob("*/scenario.json")}

    assert set(NODES) == own | set(catalog.names())
    assert not own & set(catalog.names())


@pytest.mark.parametrize("name", NODES)
def test_every_fault_has_a_page_while_it_lasts_and_one_after_it(name: str) -> None:
    for fault in scenario(name).faults:
        end = math.inf if fault.for_ is None else fault.at + fault.for_
        assert any(fault.at <= time < end for time in times(name)), fault
        assert math.isinf(end) or any(time >= end for time in times(name)), fault
