"""Sums of figures that may be unknown."""

from collections.abc import Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)


def total(figures: Sequence[Number | None]) -> Number | None:
    """Return the sum, or None if one of the figures is unknown."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None
