"""The outcome of a soak in the documentation: the table between its marks, and what failed in words."""

from pathlib import Path

import pytest

from tests.together.soak.judge import Claim
from tests.together.soak.laws import Books
from tests.together.soak.plan import whole
from tests.together.soak.soak import Run
from tests.together.soak.table import BEGIN, END, failures, markdown, summary, write
from tests.together.soak.test_judge import sampled

FLAT = Claim("resident memory, at its lowest", True, "106.2 MB", "104.2 MB", "-2.1 MB")
FULL = Claim("entries of a.Cache._kept", True, "4096", "4096", "+0.0")
GROWN = Claim("threads", False, "14", "22", "+8.2")


@pytest.fixture
def run() -> Run:
    """Return the outcome of a day without objections."""
    plan = whole(1_000, 6_000)
    return Run(plan=plan, books=Books(plan.day), polls=1_000, seconds=600.0, samples=sampled(polls=100))


def test_the_table_is_written_between_its_marks(run: Run, tmp_path: Path) -> None:
    """What stands around the marks stays, and a second run takes the place of the first."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        write(page, markdown(run, [FLAT, FULL]))
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n1,000 polls (1.4 h at 5 s) in 10 minutes")
    assert text.endswith(f"\n{END}\nafter\n")
    assert "| resident memory, at its lowest | 106.2 MB | 104.2 MB | -2.1 MB | holds |" in text
    assert "| 1 caches and books | bounded | bounded | | holds |" in text
    assert text.count("caches and books") == 1


def test_a_page_without_marks_is_named(run: Run, tmp_path: Path) -> None:
    """Nothing is written, and the error names the missing marks."""
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match=r"page\.md must have <!-- soak -->"):
        write(page, markdown(run, [FLAT]))
    assert page.read_text() == "nothing\n"


def test_each_failure_is_listed_once(run: Run) -> None:
    """Growth, objections of the books and broken laws are listed, and counted in the summary."""
    run.books.objections.append("poll 7: sliced-1-0 held too much")
    run.broken.append("poll 50: test_memory_adds_up_on_every_device: it does not hold")
    assert failures(run, [FLAT, GROWN]) == [
        "threads: 14 → 22 (+8.2)",
        "poll 7: sliced-1-0 held too much",
        "poll 50: test_memory_adds_up_on_every_device: it does not hold",
    ]
    assert summary(run, [FLAT, GROWN]).startswith("soak FAILS in 3 points: 1000 polls")
