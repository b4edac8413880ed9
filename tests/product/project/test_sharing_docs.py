"""Every sharing system is documented, and on a golden page."""

import re
from pathlib import Path

import pytest

from exporter.sharing import SYSTEMS
from exporter.sharing.dra.others import OtherClaims
from tests.core.golden.page import Page
from tests.core.golden.story import NODES, golden, times

DOCS = Path(__file__).parents[3] / "docs/sharing-systems.md"
# The plugins of NVIDIA and AMD have several modes, with other names.
PLUGINS = {
    "nvidia": {"exclusive", "time-slicing", "mps", "mig", "mig-time-slicing"},
    "amd": {"exclusive", "amd-partition"},
}
# Claims of these drivers have modes of other systems; the resource distinguishes them.
BY_RESOURCE = {
    "amd-dra": ("gpu.amd.com", {"dra", "amd-partition"}),
    "intel-dra": ("gpu.intel.com", {"dra", "exclusive"}),
}
# Claims of unknown drivers are unresolved: they have no holders on a page.
SYSTEM_NAMES = {system.name for system in SYSTEMS if system is not OtherClaims}
DOCUMENTED = SYSTEM_NAMES.difference(PLUGINS).union(*PLUGINS.values())


def first_cells() -> list[str]:
    """Return the first cells of the rows of the page's tables."""
    cells = [line.split("|")[1].strip() for line in DOCS.read_text().splitlines() if line.startswith("|")]
    return [cell for cell in cells if cell not in {"system", "---"}]


@pytest.fixture(scope="module")
def shown() -> set[tuple[str, str]]:
    """Return the resource and the sharing system of all holders on golden pages."""
    pages = (Page(golden(name, time).read_text()) for name in NODES for time in times(name))
    rows = (labels for page in pages for labels, _ in page.series("gpuslice_container_info"))
    return {(labels.get("resource", ""), labels.get("sharing", "")) for labels in rows}


def test_the_rows_are_those_of_all_systems() -> None:
    """Each row begins with names in code letters, those that the label ``sharing`` can have."""
    assert all(map(names, first_cells()))
    assert set.union(*map(names, first_cells())) == DOCUMENTED


def test_each_system_is_on_a_golden_page(shown: set[tuple[str, str]]) -> None:
    """With a holder of each of its modes."""
    for name in SYSTEM_NAMES:
        resource, modes = BY_RESOURCE.get(name, ("", PLUGINS.get(name, {name})))
        assert modes <= {sharing for of, sharing in shown if resource in {"", of}}, name


def names(cell: str) -> set[str]:
    """Return the names in code letters at the start of a cell."""
    start = re.match(r"`[^`]+`(?:, `[^`]+`)*", cell)
    return set(re.findall(r"`([^`]+)`", start[0])) if start is not None else set()
