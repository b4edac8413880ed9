"""Quantities are the numbers that Kubernetes makes of them, rounded up once, after they are summed."""

from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.quantity import BILLION, LARGEST, amount, billionths

SUFFIXES = {
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate(("", "m", "u", "n"))},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


@pytest.mark.parametrize(
    ("text", "resource", "expected"),
    [
        ("0", "cpu", 0),
        ("1500m", "cpu", 1500),
        ("0.1", "cpu", 100),
        ("100u", "cpu", 1),
        ("1n", "memory", 1),
        ("40Gi", "memory", 40 << 30),
        ("1.5Gi", "memory", 3 << 29),
        ("128974848000m", "memory", 128974848),
        ("1E", "memory", 10**18),
        ("1E3", "memory", 1000),
        ("12e-1", "memory", 2),
        ("+.5k", "memory", 500),
        ("5.", "nvidia.com/gpu", 5),
        ("9Ei", "memory", LARGEST),
        ("-1", "cpu", -1000),
    ],
)
def test_each_form_of_a_quantity_is_its_number(text: str, resource: str, expected: int) -> None:
    assert amount(resource, billionths(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["", ".", "+", "1 Gi", "1gi", "1K", "1mi", "0x10", "1e", "1e1.5", "1Gi5", "\u0661", "1\n", "NaN", "1_0"],
)
def test_what_is_not_a_quantity_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity") as refused:
        billionths(text)

    assert repr(text) in str(refused.value)


def test_numbers_that_would_cost_memory_are_refused() -> None:
    for text in ("1e999999999", "9" * 100_000, f"0.{'0' * 100_000}1"):
        with pytest.raises(ValueError, match="not a quantity"):
            billionths(text)


@given(
    st.decimals("0", "1e12", places=6), st.sampled_from(sorted(SUFFIXES)), st.sampled_from(["cpu", "memory"])
)
def test_a_quantity_is_its_number_times_its_suffix_rounded_up(
    number: Decimal, suffix: str, resource: str
) -> None:
    exact = Fraction(number) * SUFFIXES[suffix]
    unit = 1000 if resource == "cpu" else 1

    found = billionths(f"{number:f}{suffix}")

    assert found == ceil(exact * BILLION)
    assert amount(resource, found) == min(ceil(Fraction(found, BILLION) * unit), LARGEST)


@given(st.lists(st.integers(0, 10**6), max_size=8))
def test_a_sum_is_rounded_once(parts: list[int]) -> None:
    """Ten containers of half a byte each need five bytes."""
    total = sum(billionths(f"{part}m") for part in parts)

    assert amount("memory", total) == ceil(Fraction(sum(parts), 1000))
