"""Ranges of ids in a scenario: expansion, folding, and mistakes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.demo.scenario.codec import ScenarioError
from exporter.demo.scenario.expand import MOST, folded, written_out


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
def test_a_range_stands_for_its_numbers(written, ids):
    """Numbers have the width of the first; an id without a range stays the same."""
    assert written_out((written, "end"), "offers[0].ids") == (*ids, "end")


@pytest.mark.parametrize("written", ["{3..2}", f"{{0..{MOST}}}"])
def test_a_range_that_is_none_is_a_mistake(written):
    """Reversed, or longer than the list of any node: the error has its path."""
    with pytest.raises(ScenarioError, match=r"offers\[0\]\.ids: .* is not a range"):
        written_out((written,), "offers[0].ids")


def test_ids_fold_to_ranges():
    """Runs of three and more become one; ids without a number, or with a very long one, stay."""
    ids = [*map(str, range(12)), "all", "0-00", "0-01", "0-02", "GPU-1-7", "GPU-1-8", "a12345678"]
    assert folded(ids) == ("all", "a12345678", "{0..11}", "0-{00..02}", "GPU-1-7", "GPU-1-8")


@pytest.mark.slow
@given(st.sets(st.from_regex(r"(a|b-|)[0-9]{0,3}", fullmatch=True)))
def test_folded_ids_are_the_same_ids(ids):
    """Expanded again they are the folded ids, each once."""
    assert sorted(written_out(folded(sorted(ids)), "")) == sorted(ids)
