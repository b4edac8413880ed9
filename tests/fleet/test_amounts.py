"""Sums with unknown parts."""

import pytest

from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount, Share, total_amount, total_share
from exporter.wording import UNKNOWN


def test_a_sum_with_an_unknown_part_is_a_least_figure() -> None:
    total = total_amount([Amount(1.5, 2), Amount(2.0, 1, 3)])

    assert total == Amount(3.5, 3, 3)
    assert total.text(str) == "≥ 3.5"
    assert total.as_dict() == {"value": 3.5, "complete": False}


def test_a_sum_of_unknown_parts_is_not_zero() -> None:
    total = total_amount([UNKNOWN_AMOUNT, Amount(missing=4)])

    assert total.text(str) == UNKNOWN
    assert total.as_dict() == {"value": None, "complete": False}


@pytest.mark.parametrize("amounts", [[], [Amount(0.0, 3)], [Amount()]])
def test_a_sum_of_nothing_is_zero(amounts) -> None:
    assert total_amount(amounts).text(str) in ("0", "0.0")
    assert not total_amount(amounts).missing


def test_held_used_and_wasted_are_summed_separately() -> None:
    one = Share(Amount(1, 1), Amount(2, 1), UNKNOWN_AMOUNT)
    other = Share(Amount(10, 1), UNKNOWN_AMOUNT, Amount(30, 1))

    assert total_share([one, other]) == Share(Amount(11, 2), Amount(2, 1, 1), Amount(30, 1, 1))
