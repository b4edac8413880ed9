"""Sums of which a part may not be known: that part is never taken for 0."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats_words import UNKNOWN


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum over ``known`` things; of ``missing`` others nobody knows how much they add.

    ``refused``: of some of them it could not be asked.
    """

    total: float = 0.0
    known: int = 0
    missing: int = 0
    refused: bool = False

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.total + other.total,
            self.known + other.known,
            self.missing + other.missing,
            self.refused or other.refused,
        )

    @property
    def value(self) -> float | None:
        """What is known of it: at least so much, None where nothing is known."""
        return self.total if self.known or not self.missing else None

    def text(self, write: Callable[[float], str]) -> str:
        """Write it: at least that (``≥``) where a part is not known, a dash where nothing is."""
        if self.value is None:
            return UNKNOWN
        return ("≥ " if self.missing else "") + write(self.value)

    def as_dict(self) -> dict[str, float | bool | None]:
        """Give it as plain data of JSON."""
        return {"value": self.value, "complete": not self.missing}


UNTOLD = Amount(missing=1)
"""An amount of which nothing is known."""

UNASKED = Amount(missing=1, refused=True)
"""An amount of which nothing is known, since it could not be asked."""


class Share(NamedTuple):
    """What is held of something, what is used of it, and what is held without being used.

    The last is summed holder by holder: what one uses beyond its share does not make up for another's waste.
    """

    held: Amount = UNTOLD
    used: Amount = UNTOLD
    wasted: Amount = UNTOLD

    def as_dict(self) -> dict[str, dict[str, float | bool | None]]:
        """Give it as plain data of JSON."""
        return {"held": self.held.as_dict(), "used": self.used.as_dict(), "wasted": self.wasted.as_dict()}


def total(amounts: Iterable[Amount]) -> Amount:
    """Add amounts up."""
    return sum(amounts, Amount())


def total_share(shares: Iterable[Share]) -> Share:
    """Add shares up."""
    each = list(shares)
    return Share(*(total(share[place] for share in each) for place in range(len(Share._fields))))
