"""The two balances of a GPU: what its time was allocated to, and what it was used for.

Each class has a part of the time, and the parts of a balance add up to all of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeAlias, TypeVar, get_args

AllocationClass: TypeAlias = Literal[
    "held", "unknown", "down", "withdrawn", "not_offered", "free", "unpartitioned"
]
UseClass: TypeAlias = Literal["holders", "others", "unmeasured", "idle_held", "idle_free"]
ALLOCATION_CLASSES: Final[tuple[AllocationClass, ...]] = get_args(AllocationClass)
USE_CLASSES: Final[tuple[UseClass, ...]] = get_args(UseClass)
NANOSECONDS: Final = 1_000_000_000

Class = TypeVar("Class", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balances:
    """The time of one GPU by class, in nanoseconds since it was first listed.

    Whole numbers, so that both balances add up to ``observed`` however many polls there were.
    """

    observed: int
    allocation: Mapping[AllocationClass, int]
    use: Mapping[UseClass, int]


def divide(whole: int, shares: Mapping[Class, float]) -> dict[Class, int]:
    """Return a whole number divided by ``shares`` of 1; the last class has what the others leave.

    The edges between classes are rounded, not the parts: a class with a share of 0 gets nothing by rounding.
    """
    *leading, _ = shares.values()
    edges = [0, *(min(round(whole * edge), whole) for edge in accumulate(leading)), whole]
    parts = (upper - lower for lower, upper in pairwise(edges))
    return dict(zip(shares, parts, strict=True))
