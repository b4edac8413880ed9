"""docs/reliability.md: each of the long runs writes its own table, whichever comes first."""

import re
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from tests.together.faults.cells import Cell, Result
from tests.together.faults.reliability import BEGIN, END, PAGE, write
from tests.together.faults.report import page_of
from tests.together.fuzz import report as fuzz
from tests.together.soak import table as soak

ROOT = Path(__file__).parents[3]
MARKS = {"faults": (BEGIN, END), "fuzz": (fuzz.BEGIN, fuzz.END), "soak": (soak.BEGIN, soak.END)}
CELL = Cell(source="kubelet", what="List", how="closed", where="the socket")
OUTCOME = fuzz.Outcome(target="pod-names", inputs=5, seconds=1, slowest=0.1, megabytes=1, edges=2)
TABLES = {
    "faults": page_of({"The kubelet": [Result(cell=CELL, outcome="nothing", lost=0, polls=1)]}),
    "fuzz": fuzz.table([OUTCOME], "a machine"),
    "soak": "| | after warm-up |\n|---|---|\n| memory | 100 MB |",
}
WRITERS: dict[str, Callable[[Path, str], None]] = {
    "faults": lambda page, text: write(page, BEGIN, END, text),
    "fuzz": lambda page, text: write(page, fuzz.BEGIN, fuzz.END, text),
    "soak": soak.write,
}


def between(page: str, name: str) -> str:
    """Return the text between the marks of one run."""
    begin, end = MARKS[name]
    (found,) = re.findall(f"{begin}\n(.*?){end}", page, re.DOTALL)
    return found.strip()


def around(page: str) -> str:
    """Return the page without the texts between marks."""
    for begin, end in MARKS.values():
        page = re.sub(f"{begin}.*?{end}", begin + end, page, flags=re.DOTALL)
    return page


@pytest.mark.parametrize("order", list(permutations(TABLES)), ids=" ".join)
def test_each_run_writes_its_part_of_the_page_in_any_order(order: tuple[str, ...], tmp_path: Path) -> None:
    """The first makes the page; every one puts its table there, and leaves all else as it was."""
    page = tmp_path / "reliability.md"
    for done, name in enumerate(order, 1):
        WRITERS[name](page, TABLES[name])
        text = page.read_text()
        assert around(text) == around(PAGE)
        for run in order[:done]:
            assert between(text, run) == TABLES[run].strip()
        for run in order[done:]:
            assert between(text, run) == f"Not yet run: `make {run}`."


def test_a_second_run_takes_the_place_of_the_first_on_the_page(tmp_path: Path) -> None:
    """The table of before is gone, also where a table has what looks like a pattern."""
    page = tmp_path / "reliability.md"
    for text in ("old", r"new \1 \g<0>"):
        write(page, BEGIN, END, text)
    assert between(page.read_text(), "faults") == r"new \1 \g<0>"


@pytest.mark.parametrize("text", ["", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"])
def test_a_page_without_one_place_for_it_stays(text: str, tmp_path: Path) -> None:
    """Where the marks are missing or there twice, the error names them, and nothing is written."""
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=rf"page\.md must have {BEGIN} and {END} once"):
        write(page, BEGIN, END, "table")
    assert page.read_text() == text


def test_the_page_in_docs_is_the_one_that_is_written() -> None:
    """Around its tables the page has the texts of tests/together/faults/reliability.py: change them there."""
    assert around((ROOT / "docs/reliability.md").read_text("utf-8")) == around(PAGE)
