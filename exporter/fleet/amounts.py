"""Sums with unknown parts: an unknown part never counts as 0.

``closed`` is the one place that makes a sum of records, and so decides between 0 and unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from exporter.wording import UNKNOWN, short_names


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum with parts that may be unknown."""

    total: float = 0.0  # the sum of the known parts
    known: int = 0  # the number of known parts
    missing: int = 0  # the number of unknown parts
    refused: bool = False  # whether some are unknown because their query failed

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.total + other.total,
            self.known + other.known,
            self.missing + other.missing,
            self.refused or other.refused,
        )

    @property
    def value(self) -> float | None:
        """The sum of the known parts, None if no part is known."""
        return self.total if self.known or not self.missing else None

    def text(self, write: Callable[[float], str]) -> str:
        """Return it as text: with ``≥`` if a part is unknown, a dash if all parts are."""
        if self.value is None:
            return UNKNOWN
        return ("≥ " if self.missing else "") + write(self.value)

    def as_dict(self) -> dict[str, float | bool | None]:
        """Return it as JSON data."""
        return {"value": self.value, "complete": not self.missing}


UNKNOWN_AMOUNT = Amount(missing=1)
FAILED_AMOUNT = Amount(missing=1, refused=True)


def closed(total: float | None, known: int, expected: int | None) -> Amount:
    """Return a recorded sum (None: there is none) of ``known`` of ``expected`` parts.

    It is complete only if it has as many parts as there have to be, and 0 only if it is complete: a missing
    record proves nothing. ``expected`` comes from what reports the parts themselves, None if it is not known.
    Without parts to add, the sum is 0.
    """
    if expected == 0:
        return Amount(total or 0.0, known)
    missing = 1 if expected is None else max(expected - known, 0)
    if total is None or (missing and not total):
        return Amount(missing=max(missing, known, 1))
    return Amount(total, max(known, 1), missing)


def total_amount(amounts: Iterable[Amount]) -> Amount:
    """Return the sum of amounts."""
    return sum(amounts, Amount())


def size_of(size: Amount, *parts: Amount) -> Amount:
    """Return a size to print next to some parts of it; unknown if it is incomplete and below one of them."""
    if size.missing and any(part.known and part.total > size.total for part in parts):
        return Amount(missing=size.missing, refused=size.refused)
    return size


class Share(NamedTuple):
    """An amount held, the part of it that is used, and the part held but not used.

    ``wasted`` is summed over holders: use beyond one share does not offset the waste of another.
    """

    held: Amount = UNKNOWN_AMOUNT
    used: Amount = UNKNOWN_AMOUNT
    wasted: Amount = UNKNOWN_AMOUNT

    def as_dict(self) -> dict[str, dict[str, float | bool | None]]:
        """Return it as JSON data."""
        return {"held": self.held.as_dict(), "used": self.used.as_dict(), "wasted": self.wasted.as_dict()}


UNKNOWN_SHARE = Share()


def total_share(shares: Iterable[Share]) -> Share:
    """Return the sum of shares."""
    held, used, wasted = Amount(), Amount(), Amount()
    for share in shares:
        held, used, wasted = held + share.held, used + share.used, wasted + share.wasted
    return Share(held, used, wasted)


class Units(NamedTuple):
    """The held and the offered units of a resource."""

    resource: str  # "" for the slices of the vendors' own plug-ins together
    held: Amount = UNKNOWN_AMOUNT
    offered: Amount = UNKNOWN_AMOUNT  # unknown if no device plugin reports it
    unhealthy: float | None = 0.0  # offered and unhealthy, held or not; None if the query failed

    @property
    def size(self) -> Amount:
        """The offered units, as a size of the held ones."""
        return size_of(self.offered, self.held)

    @property
    def has_size(self) -> bool:
        """Whether a size is shown; a resource may have none, of slices an unknown one is shown too."""
        return not self.resource or self.size.value is not None

    @property
    def of_size(self) -> str:
        """The size as text after the held units, "" if none is shown."""
        return f" of {self.size.text(whole)}" if self.has_size else ""

    def text(self, name: str) -> str:
        """Return the held units and the size as text; ``name`` is "" for slices that are the only units."""
        return f"{self.held.text(whole)}{self.of_size}{f' {name}' if name else ''}"

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {"resource": self.resource, "held": self.held.as_dict(), "offered": self.size.as_dict()}


UNKNOWN_SLICES = Units("")


def total_of(resource: str, parts: Sequence[Units]) -> Units:
    """Return the sum of units of one resource."""
    unhealthy = [part.unhealthy for part in parts if part.unhealthy is not None]
    return Units(
        resource,
        total_amount(part.held for part in parts),
        total_amount(part.offered for part in parts),
        sum(unhealthy) if len(unhealthy) == len(parts) else None,
    )


def total_units(of_nodes: Iterable[tuple[Units, ...] | None]) -> tuple[Units, ...] | None:
    """Return the sum of units by resource; None if none is known and there may be some."""
    nodes = list(of_nodes)
    known = [units for units in nodes if units is not None]
    unknown = len(nodes) - len(known)
    if unknown and not any(known):
        return None
    by_resource: dict[str, list[Units]] = {}
    for part in chain.from_iterable(known):
        by_resource.setdefault(part.resource, []).append(part)
    missing = Units("", Amount(missing=unknown), Amount(missing=unknown))
    return tuple(total_of(resource, [*parts, missing]) for resource, parts in sorted(by_resource.items()))


def shown_units(slices: Units, units: Sequence[Units] | None) -> tuple[Units, ...]:
    """Return the units to show: slices if there are any or nothing else, then each resource."""
    has_slices = bool(slices.held.known or slices.offered.known)
    if units is None:
        return (slices if has_slices else Units("", FAILED_AMOUNT, FAILED_AMOUNT),)
    return (slices, *units) if has_slices or not units else tuple(units)


def named(parts: Sequence[Units]) -> Iterator[tuple[str, Units]]:
    """Return each with the shortest unambiguous name; "" for slices if they are the only ones."""
    names = short_names([part.resource for part in parts])
    slices = "slices" if len(parts) > 1 else ""
    return zip((name or slices for name in names), parts, strict=True)


def words(parts: Sequence[Units]) -> str:
    """Return the held units of each resource as text."""
    return ", ".join(part.text(name) for name, part in named(parts))


def whole(value: float) -> str:
    """Return a count as text."""
    return f"{value:.0f}"
