"""Memory, compute and GPU-hours held, used and unused, of a node or a namespace, from recorded sums."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from exporter.fleet import Namespace
from exporter.fleet.amounts import FAILED_AMOUNT, Amount, Share
from exporter.fleet.queries import Answers, Sums

Place: TypeAlias = tuple[str, ...]
Level: TypeAlias = Literal["node", "namespace"]
Quantity: TypeAlias = Literal["gpus", "bytes"]

_WHATS = ("held", "used", "unused")
_SUMS = ("holders", *(f"{what}_{quantity}" for quantity in ("gpus", "bytes") for what in _WHATS))
_COUNTS = "known_containers"
_LABELS: dict[Level, tuple[str, ...]] = {"node": ("cluster", "node"), "namespace": ("namespace",)}


def questions(level: Level) -> dict[str, str]:
    """Return the queries for the sums of a level, and for how many containers each is complete."""
    sums = {_named(level, name): f"{level}:gpuslice_{name}:sum" for name in _SUMS}
    return sums | {_named(level, _COUNTS): f"{level}:gpuslice_{_COUNTS}:count"}


def amount(value: float | None, known: int | None, expected: int | None) -> Amount:
    """Return a recorded sum over ``known`` of ``expected`` parts (None: a query failed); None is absent.

    An absent sum is unknown if it has parts, even if these are known: it may not have been recorded yet.
    """
    if known is None or expected is None:
        return FAILED_AMOUNT
    if value is None:
        return Amount(missing=expected)
    return Amount(value, max(known, 1), max(expected - known, 0))


def amount_at(sums: Sums | None, place: Place, known: int | None, expected: int | None) -> Amount:
    """Return the recorded sum of a place, likewise; without ``sums`` their query failed."""
    return FAILED_AMOUNT if sums is None else amount(sums.get(place), known, expected)


class Shares:
    """The recorded sums of a level, by node and cluster or by namespace."""

    def __init__(self, answers: Answers, level: Level) -> None:
        labels = _LABELS[level]
        self._sums = {name: answers.sums(_named(level, name), *labels) for name in _SUMS}
        self._counts = answers.sums(_named(level, _COUNTS), *labels, "value")

    @property
    def places(self) -> list[Place] | None:
        """The places with containers; None if the query failed."""
        return None if self._counts is None else sorted({key[:-1] for key in self._counts})

    def holders(self, place: Place) -> int | None:
        """Return how many containers hold, with those that may; None if a query failed."""
        holders = self._sums["holders"]
        containers, slices = self._count(place, "containers"), self._count(place, "slices")
        if holders is None or containers is None or slices is None:
            return None
        return int(holders.get(place, 0)) + max(containers - slices, 0)

    def share(self, place: Place, quantity: Quantity, unseen: int | None = 0) -> Share:
        """Return the share of a quantity; ``unseen`` further containers are unknown (None: nor how many)."""
        held = self._amount(place, f"held_{quantity}", _plus(self.holders(place), unseen))
        used = self._amount(place, f"used_{quantity}", _plus(self._count(place, "containers"), unseen))
        if held.refused or used.refused:
            return Share(held, used, FAILED_AMOUNT)
        # It is known of holders of whom both are known.
        holders, missing = held.known + held.missing, max(held.missing, used.missing)
        unused = amount_at(self._sums[f"unused_{quantity}"], place, holders - missing, holders)
        return Share(held, used, unused)

    def _amount(self, place: Place, name: str, expected: int | None) -> Amount:
        return amount_at(self._sums[name], place, self._count(place, name), expected)

    def _count(self, place: Place, value: str) -> int | None:
        """Return the number of containers with a known value; None if the query failed."""
        return None if self._counts is None else int(self._counts.get((*place, value), 0))


def _named(level: Level, name: str) -> str:
    return f"{name.replace('_', ' ')} of {level}s"


def _plus(count: int | None, other: int | None) -> int | None:
    return None if count is None or other is None else count + other


_HOURS = {
    "held": "namespace:gpuslice_held_gpu_seconds:increase1h",
    "used": "namespace:gpuslice_used_gpu_seconds:increase1h",
    "measured": "namespace:gpuslice_measured_gpu_seconds:increase1h",
}
_SPENT = "GPU-hours {}"
_SECONDS = 3600.0
# Prometheus extrapolates the increase of two counters over the same window a little differently.
_ALIKE = 0.999


def namespace_questions(window: float) -> dict[str, str]:
    """Return the queries for the sums of each namespace, and its GPU-hours over ``window`` seconds."""
    return questions("namespace") | {
        _SPENT.format(what): f"sum by (namespace) (sum_over_time({record}[{window:.0f}s:1h]))"
        for what, record in _HOURS.items()
    }


def read_namespaces(answers: Answers) -> tuple[Namespace, ...] | None:
    """Return each namespace; None if the list of namespaces could not be queried."""
    recorded = Shares(answers, "namespace")
    if recorded.places is None:
        return None
    spent = {what: answers.sums(_SPENT.format(what), "namespace") for what in _HOURS}
    return tuple(
        Namespace(
            name=place[0],
            holders=recorded.holders(place),
            memory=recorded.share(place, "bytes"),
            compute=recorded.share(place, "gpus"),
            hours=_hours(spent, place),
        )
        for place in recorded.places
    )


def _hours(spent: Mapping[str, Sums | None], place: Place) -> Share:
    of_held, of_used, of_measured = spent["held"], spent["used"], spent["measured"]
    if of_held is None:
        return Share(FAILED_AMOUNT, FAILED_AMOUNT, FAILED_AMOUNT)
    held = of_held.get(place)
    if held is None:
        return Share()
    whole = Amount(held / _SECONDS, 1)
    if of_used is None or of_measured is None:
        return Share(whole, FAILED_AMOUNT, FAILED_AMOUNT)
    used, measured = of_used.get(place), of_measured.get(place)
    if used is None or measured is None:
        return Share(held=whole)
    missing = int(measured < held * _ALIKE)
    return Share(
        held=whole,
        used=Amount(used / _SECONDS, 1, missing),
        wasted=Amount(max(measured - used, 0.0) / _SECONDS, 1, missing),
    )
