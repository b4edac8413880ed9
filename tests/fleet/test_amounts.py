"""Sums of which a part is not known."""

import pytest

from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount, Share, total_amount, total_share
from exporter.formats.wording import UNKNOWN


def test_a_part_that_is_not_known_makes_a_sum_a_least_figure() -> None:
    """What is known is told, with a mark that it is not all."""
    added = total_amount([Amount(1.5, 2), Amount(2.0, 1, 3)])

    assert added == Amount(3.5, 3, 3)
    assert added.text(str) == "≥ 3.5"
    assert added.as_dict() == {"value": 3.5, "complete": False}


def test_nothing_known_is_not_zero() -> None:
    """A sum of unknown things is a dash, and null."""
    added = total_amount([UNKNOWN_AMOUNT, Amount(missing=4)])

    assert added.text(str) == UNKNOWN
    assert added.as_dict() == {"value": None, "complete": False}


@pytest.mark.parametrize("amounts", [[], [Amount(0.0, 3)], [Amount()]])
def test_a_sum_of_nothing_is_zero(amounts) -> None:
    """Where there is nothing to add, or all of it is 0, the sum is known."""
    assert total_amount(amounts).text(str) in ("0", "0.0")
    assert not total_amount(amounts).missing


def test_shares_add_up_by_their_parts() -> None:
    """Held, used and wasted are summed each by itself."""
    added = total_share(
        [
            Share(Amount(1, 1), Amount(2, 1), UNKNOWN_AMOUNT),
            Share(Amount(10, 1), UNKNOWN_AMOUNT, Amount(30, 1)),
        ]
    )

    assert added == Share(Amount(11, 2), Amount(2, 1, 1), Amount(30, 1, 1))
