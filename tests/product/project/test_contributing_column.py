"""The column that the guide adds to the table of holders is shown, with as few changes as the guide says."""

import re
from pathlib import Path
from textwrap import indent

import pytest

from tests.page.web.views_reading import read
from tests.product.project.guide import append, blocks, changed, copied, edit, run, section

TITLE = "A column, worked out"
MOST_FILES = 3
# Prints the page of a fake node with the new column, sorted by it.
PRINT_PAGE = """
from exporter.web.node.parameters import Query
from tests.page.web.views_reading import node_page, scenario
print(node_page(scenario("hami"), query=Query(columns=("gpu", "peak"), sort="-peak")))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree with the column."""
    tree = copied(tmp_path_factory.mktemp("column"))
    cells, table, tests = (
        tree / path for path in re.findall(r"`((?:exporter|tests)/\S+\.py)`", section(TITLE))
    )
    cell, row, test = blocks(TITLE)
    append(cells, cell)
    (columns,) = re.findall(r"^COLUMNS\b.*?^\)\n", table.read_text(), re.DOTALL | re.MULTILINE)
    edit(table, columns, columns.removesuffix(")\n") + indent(f"{row.rstrip()},\n", " " * 4) + ")\n")
    append(tests, test)
    return tree


@pytest.mark.slow
def test_the_guide_changes_few_files_which_stay_short(tree: Path) -> None:
    assert len(changed(tree)) <= MOST_FILES
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/product/project/test_files.py")


@pytest.mark.slow
def test_the_page_of_a_node_shows_the_column_and_is_sorted_by_it(tree: Path) -> None:
    holders = read(run(tree, "-c", PRINT_PAGE)).one("section", id="holders")

    heading = holders.one("th", of="h-peak")
    assert (heading.text, heading.attributes["aria-sort"]) == ("Memory peak", "descending")
    cells = holders.one("tbody").all("td", **{"data-label": "Memory peak"})
    sizes = [float(cell.text.removesuffix(" GiB")) for cell in cells]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0
    assert all("end" in cell.classes for cell in (heading, *cells))
    assert "peak" in [box.attributes["value"] for box in holders.all("input", type="checkbox")]


@pytest.mark.slow
def test_the_tests_of_the_table_pass_with_the_column(tree: Path) -> None:
    """Also the one that the guide adds."""
    (file,) = re.findall(r"`(tests/\S+\.py)`", section(TITLE))
    report = run(
        tree, "-m", "pytest", "-v", "-p", "no:cacheprovider", file, "-k", "peak or column or heading"
    )

    assert "test_the_peak_of_memory_is_shown_and_sorted PASSED" in report
