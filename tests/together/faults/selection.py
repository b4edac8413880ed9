"""A few cells of a matrix that cover what the whole matrix has, pair by pair."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import TypeVar

T = TypeVar("T")
Traits = Callable[[T], Iterable[Hashable]]


def covering(cells: Iterable[T], traits: Traits[T]) -> Sequence[T]:
    """Return cells, in their order, such that each trait of any cell is that of one of them.

    Cells with many traits that no other has yet are chosen first.
    """
    left = [(cell, frozenset(traits(cell))) for cell in cells]
    covered: set[Hashable] = set()
    chosen: set[int] = set()
    for least in range(max((len(its) for _, its in left), default=0), 0, -1):
        for place, (_, its) in enumerate(left):
            if len(its - covered) >= least:
                chosen.add(place)
                covered |= its
    return [cell for place, (cell, _) in enumerate(left) if place in chosen]


def pairs(*values: Hashable) -> Iterator[Hashable]:
    """Return each pair of values, with their places, as traits of a cell."""
    return combinations(enumerate(values), 2)
