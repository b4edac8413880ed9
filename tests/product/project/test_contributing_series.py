"""The series that the guide adds is exported, with as few changes as the guide says."""

import re
from pathlib import Path

import pytest

from tests.product.project.guide import changed, copied, edit, run, section

MOST_FILES = 5
PYTEST = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider")
GOLDEN = "tests/core/golden"
GENERATED = {
    "docs/metrics.md",
    f"{GOLDEN}/call_budgets.toml",
    f"{GOLDEN}/families.prom",
    f"{GOLDEN}/h100-exclusive/full.prom",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree with the series."""
    tree = copied(tmp_path_factory.mktemp("series"))
    # A line that is there, and the lines to write below it.
    parts = re.findall(r"```diff\n--- (\S+)\n (.*\n)((?:\+.*\n)+)```", section("A series, worked out"))
    assert parts
    for file, line, lines in parts:
        edit(tree / file, line, line + re.sub(r"^\+", "", lines, flags=re.MULTILINE))
    assert len(changed(tree)) <= MOST_FILES
    return tree


@pytest.mark.slow
def test_a_fake_node_has_the_series_and_the_tests_of_all_series_pass(tree: Path) -> None:
    """Generators write the rest."""
    written = changed(tree)
    run(tree, "scripts/write-docs")
    pages = (f"{GOLDEN}/test_pages.py", f"{GOLDEN}/test_budgets.py", "--update")
    run(tree, *PYTEST, *pages, "-k", "h100-exclusive or help_and_type")
    run(tree, *PYTEST, "tests/core/exposition/test_table.py", "tests/core/hardware/test_readings.py")

    page = (tree / GOLDEN / "h100-exclusive/full.prom").read_text()
    samples = re.findall(r"^gpuslice_gpu_memory_bus_width\{.*\} 5120$", page, re.MULTILINE)
    assert len(samples) == 8
    assert changed(tree) - written == GENERATED
