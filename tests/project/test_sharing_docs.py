"""Every sharing system is documented, and is at work on a golden page."""

import re
from pathlib import Path

import pytest

from exporter.sharing import SYSTEMS
from tests.golden.page import Page
from tests.golden.story import NODES, golden, times

DOCS = Path(__file__).parents[2] / "docs/sharing-systems.md"
# The plugins of NVIDIA and AMD have several modes, and none of their names.
PLUGINS = {
    "nvidia": {"exclusive", "time-slicing", "mps", "mig", "mig-time-slicing"},
    "amd": {"exclusive", "amd-partition"},
}
# Claims of AMD's driver show modes that others have too; the resource tells them.
BY_RESOURCE = {"amd-dra": ("gpu.amd.com", {"dra", "amd-partition"})}
SYSTEM_NAMES = {system.name for system in SYSTEMS}
DOCUMENTED = SYSTEM_NAMES.difference(PLUGINS).union(*PLUGINS.values())


def first_cells() -> list[str]:
    """Return where the rows of the page's tables begin."""
    cells = [line.split("|")[1].strip() for line in DOCS.read_text().splitlines() if line.startswith("|")]
    return [cell for cell in cells if cell not in {"system", "---"}]


@pytest.fixture(scope="module")
def shown() -> set[tuple[str, str]]:
    """Return the resources and the ways of sharing of all holders on golden pages."""
    pages = (Page(golden(name, time).read_text()) for name in NODES for time in times(name))
    rows = (labels for page in pages for labels, _ in page.series("gpuslice_container_info"))
    return {(labels.get("resource", ""), labels.get("sharing", "")) for labels in rows}


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_each_name_is_documented(name: str) -> None:
    """Whatever the label ``sharing`` says stands in code letters where a row begins."""
    assert any(name in names(cell) for cell in first_cells())


@pytest.mark.parametrize("cell", first_cells())
def test_each_row_begins_with_names(cell: str) -> None:
    """They are those of systems and modes that there are."""
    assert names(cell)
    assert names(cell) <= DOCUMENTED


@pytest.mark.parametrize("name", sorted(SYSTEM_NAMES))
def test_each_system_is_on_a_golden_page(name: str, shown: set[tuple[str, str]]) -> None:
    """Somebody reviewed a page with a holder of each of its modes."""
    resource, wanted = BY_RESOURCE.get(name, ("", PLUGINS.get(name, {name})))
    assert wanted <= {sharing for of, sharing in shown if resource in {"", of}}


def names(cell: str) -> set[str]:
    """Return the names in code letters with which a cell begins."""
    found = re.match(r"`[^`]+`(?:, `[^`]+`)*", cell)
    return set(re.findall(r"`([^`]+)`", found[0])) if found is not None else set()
