"""Adding up what may not be known."""

from collections.abc import Sequence
from typing import TypeVar

Number = TypeVar("Number", int, float)


def total(figures: Sequence[Number | None]) -> Number | None:
    """Add up, or return None when one of the figures is not known."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None
