"""Recorded sums of each node or namespace: memory and compute that containers hold, use, and hold unused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from exporter.fleet.amounts import FAILED_AMOUNT, Amount, Share, closed
from exporter.fleet.queries import Answers, Level, Place, Sums, SumsByPlace

Quantity: TypeAlias = Literal["gpus", "bytes"]

_SHARES = tuple(f"{part}_{quantity}" for quantity in ("gpus", "bytes") for part in ("held", "used", "unused"))
_SUMS: Mapping[Level, tuple[str, ...]] = {
    "node": ("holders", *_SHARES, "idle_holders", "idle_gpus"),
    "namespace": ("holders", *_SHARES),
}
_KNOWN, _ALL = "known_containers", "containers"


def holder_questions(level: Level) -> dict[str, str]:
    """Return the queries for the sums of a level, how many containers are in each, and how many there are."""
    sums = {_query_name(level, name): f"{level}:gpuslice_{name}:sum" for name in _SUMS[level]}
    return sums | {_query_name(level, name): f"{level}:gpuslice_{name}:count" for name in (_KNOWN, _ALL)}


def _query_name(level: Level, name: str) -> str:
    return f"{name.replace('_', ' ')} of {level}s"


class Parts(NamedTuple):
    """The sum of a place in parts, such as one for each model, with the number of addends in each part."""

    sums: Sums
    counts: Sums

    def of(self, resource: str) -> "Parts":
        """Return the parts whose first label is this resource; all if it is empty."""
        if not resource:
            return self
        sums = {part: value for part, value in self.sums.items() if part[0] == resource}
        return Parts(sums, {part: count for part, count in self.counts.items() if part[0] == resource})

    @property
    def total(self) -> float | None:
        """The sum, None if there is no record of it."""
        return sum(self.sums.values()) if self.sums else None

    @property
    def known(self) -> int:
        """The number of addends in the sum: without a record of their part they are not in it."""
        return int(sum(count for part, count in self.counts.items() if part in self.sums))

    @property
    def counted(self) -> int:
        """The number of known addends, also of those without a record of their part."""
        return int(sum(self.counts.values()))


@dataclass(frozen=True, slots=True)
class RecordedSums:
    """A sum of each place, and the number of its addends; None if the query failed."""

    sums: SumsByPlace | None
    counts: SumsByPlace | None

    @property
    def failed(self) -> bool:
        """Whether one of the queries failed."""
        return self.sums is None or self.counts is None

    def parts(self, place: Place) -> Parts:
        """Return the parts of the sum of a place."""
        return Parts((self.sums or {}).get(place, {}), (self.counts or {}).get(place, {}))

    def amount(self, place: Place, expected: int | None, *, failed: bool = False) -> Amount:
        """Return the sum of ``expected`` addends (None is unknown; ``failed`` if their query has failed)."""
        if self.failed or failed:
            return FAILED_AMOUNT
        parts = self.parts(place)
        return closed(parts.total, parts.known, expected)


class HolderSums:
    """The sums of the containers on the GPUs of each node, or in each namespace."""

    def __init__(self, answers: Answers, level: Level) -> None:
        # A node has a record of each sum, and of its count, for each model.
        known = _query_name(level, _KNOWN)
        self._sums = {
            name: RecordedSums(
                answers.by_place(_query_name(level, name), level, "model"),
                answers.by_place(known, level, "model", value=name),
            )
            for name in _SUMS[level]
        }
        self._containers = answers.sums(_query_name(level, _ALL), "cluster", level)
        counted = answers.sums(known, "cluster", level)
        # Whether it is unknown how many containers there are, or how many of them are in the sums.
        self.failed = self._containers is None or counted is None
        # The places with containers, and those that are known to have none.
        self.places: list[Place] = sorted({*(self._containers or ()), *(counted or ())})

    def containers(self, place: Place) -> int | None:
        """Return the number of containers that are there; None if it is not known."""
        count = (self._containers or {}).get(place)
        return None if count is None else int(count)

    def holders(self, place: Place) -> Amount:
        """Return how many containers hold; those that may are missing."""
        return self._amount("holders", place, self.containers(place), 0)

    def share(self, place: Place, quantity: Quantity, unseen: int | None = 0) -> Share:
        """Return the share of a quantity; ``unseen`` more containers are unknown (None: a query failed)."""
        return Share(
            self.of_holders(f"held_{quantity}", place, unseen),
            self._amount(f"used_{quantity}", place, self.containers(place), unseen),
            self.of_holders(f"unused_{quantity}", place, unseen),
        )

    def of_holders(self, name: str, place: Place, unseen: int | None) -> Amount:
        """Return a sum over the containers that hold, and those that may; ``unseen`` as in ``share``."""
        containers, holders = self.containers(place), self._sums["holders"]
        if containers is None:
            expected = None
        else:
            parts = holders.parts(place)
            expected = int(parts.total or 0) + max(containers - parts.known, 0)
        return self._amount(name, place, expected, None if holders.failed else unseen)

    def _amount(self, name: str, place: Place, expected: int | None, unseen: int | None) -> Amount:
        every = None if expected is None else expected + (unseen or 0)
        return self._sums[name].amount(place, every, failed=self.failed or unseen is None)
