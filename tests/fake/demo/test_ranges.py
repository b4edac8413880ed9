"""Ranges of ids in a scenario: expansion, folding, and mistakes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.demo.scenario.expand import MOST, folded, written_out
from exporter.documents import DocumentError


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        ("0-{00..02}", ("0-00", "0-01", "0-02")),
        ("{98..101}", ("98", "99", "100", "101")),
        ("a{08..10}b", ("a08b", "a09b", "a10b")),
        ("{7..7}", ("7",)),
        ("GPU-1::0", ("GPU-1::0",)),
        ("{gpu:0}-{n}", ("{gpu:0}-{n}",)),
    ],
)
def test_a_range_is_expanded_to_its_numbers(written, ids):
    """With the width of the first; an id without a range stays the same."""
    assert written_out((written, "end"), "offers[0].ids") == (*ids, "end")


@pytest.mark.parametrize("written", ["{3..2}", f"{{0..{MOST}}}"])
def test_a_reversed_or_huge_range_is_a_mistake(written):
    with pytest.raises(DocumentError, match=r"offers\[0\]\.ids: .* is not a range"):
        written_out((written,), "offers[0].ids")


def test_runs_of_three_ids_and_more_become_ranges():
    """Ids without a number, or with a very long one, stay."""
    ids = [*map(str, range(12)), "all", "0-00", "0-01", "0-02", "GPU-1-7", "GPU-1-8", "a12345678"]
    assert folded(ids) == ("all", "a12345678", "{0..11}", "0-{00..02}", "GPU-1-7", "GPU-1-8")


@given(st.sets(st.from_regex(r"(a|b-|)[0-9]{0,3}", fullmatch=True)))
def test_expanded_folded_ids_are_the_ids(ids):
    assert sorted(written_out(folded(sorted(ids)), "")) == sorted(ids)
