"""Usage as records: two balances of all GPUs that close, and what each group held and used."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount, total_amount
from exporter.fleet.usage.period import HOUR, Period
from exporter.model.balances import ALLOCATION_CLASSES, USE_CLASSES

# Prometheus extrapolates the increase of two counters over the same window a little differently.
_ALIKE = 0.999
_JOULES = 3.6e6


class Kind(NamedTuple):
    """What is priced alike."""

    model: str
    profile: str
    """MIG profile, "" for whole GPUs."""

    def __str__(self) -> str:
        return " ".join(filter(None, self)) or "unknown model"


@dataclass(frozen=True, slots=True)
class Quantities:
    """GPU-seconds and joules; None is unknown."""

    held: float | None = None
    measured: float | None = None
    """Held while use was known."""
    used: float | None = None
    joules: float | None = None
    uncompared: float | None = None
    """Used by holders whose ``measured`` is unknown."""
    unshared: float | None = None
    """Seconds for which devices were held by containers whose share is unknown."""

    @property
    def held_hours(self) -> Amount:
        """GPU-hours held; a lower bound if the share of a holder is unknown."""
        return UNKNOWN_AMOUNT if self.held is None else Amount(self.held / HOUR, 1, int(bool(self.unshared)))

    @property
    def used_hours(self) -> Amount:
        """GPU-hours used; a lower bound if use was not known all the time."""
        if self.used is None:
            return UNKNOWN_AMOUNT
        all_measured = self.held is None or (self.measured or 0.0) >= self.held * _ALIKE
        return Amount(self.used / HOUR, 1, int(bool(self.unshared) or not all_measured))

    @property
    def used_of_held(self) -> float | None:
        """The part of what was held while use was known that was used."""
        if self.used is None or not self.measured:
            return None
        return max(self.used - (self.uncompared or 0.0), 0.0) / self.measured

    @property
    def kilowatt_hours(self) -> float | None:
        """Energy, as far as it is known."""
        return None if self.joules is None else self.joules / _JOULES

    @property
    def holds(self) -> bool:
        """Whether something was held, known or not."""
        return bool(self.held or self.unshared)


def total_quantities(parts: Iterable[Quantities]) -> Quantities:
    """Return the sums of what is known."""
    listed = list(parts)
    return Quantities(*(_sum(getattr(part, name) for part in listed) for name in VALUES))


VALUES = ("held", "measured", "used", "joules", "uncompared", "unshared")


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


class Amounts(NamedTuple):
    """Sums over devices that are lower bounds if one of the devices is unknown."""

    held_hours: Amount
    used_hours: Amount
    kilowatt_hours: Amount


def total_amounts(parts: Iterable[Quantities]) -> Amounts:
    """Return sums of kinds of devices. What was not held does not lack use and energy."""
    listed = list(parts)
    held = [part.held_hours for part in listed if part.holds or part.held is not None]
    used = [part.used_hours for part in listed if part.holds or part.used is not None]
    energy = [
        UNKNOWN_AMOUNT if part.kilowatt_hours is None else Amount(part.kilowatt_hours, 1)
        for part in listed
        if part.holds or part.joules is not None
    ]
    return Amounts(*(total_amount(sums) if sums else UNKNOWN_AMOUNT for sums in (held, used, energy)))


@dataclass(frozen=True, kw_only=True)
class Group:
    """A namespace, an owner, a team, a model or a node."""

    name: str
    """"" for what has none."""
    kinds: Mapping[Kind, Quantities]
    namespace: str = ""
    """"" if the group is not a namespace."""

    @cached_property
    def total(self) -> Quantities:
        """The sums over all kinds of devices."""
        return total_quantities(self.kinds.values())


@dataclass(frozen=True, kw_only=True)
class Balance:
    """The time of all GPUs in a day or a period, in GPU-seconds: two balances that each add up to it."""

    start: float
    """Unix time."""
    end: float
    capacity: float
    """Known GPUs times the length."""
    allocation: Mapping[str, float]
    """By class; empty if nothing was observed."""
    use: Mapping[str, float]
    not_observed: float
    overcommitted: float = 0.0
    """Shares beyond GPUs."""


def balance_of(  # noqa: PLR0913 - by keyword: what it consists of
    *,
    start: float,
    end: float,
    gpus: int,
    allocation: Mapping[str, float],
    use: Mapping[str, float],
    overcommitted: float = 0.0,
) -> Balance:
    """Return a balance that closes: what the classes leave was not observed."""
    capacity = gpus * (end - start)
    # An exporter counts by its polls and Prometheus by its scrapes: their hours differ by a few seconds.
    whole: dict[str, float] = {name: allocation.get(name, 0.0) for name in ALLOCATION_CLASSES}
    seconds = sum(whole.values())
    scale = min(1.0, capacity / seconds) if seconds else 1.0
    whole = {name: value * scale for name, value in whole.items()}
    observed = sum(whole.values())
    used: dict[str, float] = {name: use.get(name, 0.0) for name in USE_CLASSES}
    # Both counters have the same time, and differ by rounding, or by a record that is missing.
    rest = sum(used.values())
    scale = min(1.0, observed / rest) if rest else 1.0
    used = {name: value * scale for name, value in used.items()} if rest else {}
    if rest:
        used["unmeasured"] += max(observed - sum(used.values()), 0.0)
    return Balance(
        start=start,
        end=end,
        capacity=capacity,
        allocation=whole if seconds else {},
        use=used,
        not_observed=max(capacity - observed, 0.0),
        overcommitted=overcommitted,
    )


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What was held and used in a period."""

    at: float
    """Unix time of Prometheus."""
    period: Period
    by: str
    """What the groups are, such as namespace or label:team."""
    gpus: int
    """Number of known GPUs."""
    balance: Balance
    days: tuple[Balance, ...]
    groups: tuple[Group, ...] | None
    """Those that held most come first; None if a query failed."""
    problems: tuple[str, ...] = field(default=())
    """What could not be read, as sentences."""

    only: tuple[str, ...] = ()
    """Namespaces whose groups are shown, () for all."""

    @property
    def shown(self) -> tuple[Group, ...]:
        """The groups to show."""
        return tuple(
            group
            for group in self.groups or ()
            if not self.only or (group.namespace or group.name) in self.only
        )

    @cached_property
    def total(self) -> Quantities:
        """The sums of the groups to show."""
        return total_quantities(group.total for group in self.shown)

    @cached_property
    def _held_by_groups(self) -> float:
        return total_quantities(group.total for group in self.groups or ()).held or 0.0

    @property
    def held(self) -> float | None:
        """GPU-seconds that were held according to the balance."""
        return self.balance.allocation.get("held")

    @property
    def overcommitted(self) -> float | None:
        """Shares beyond GPUs in GPU-seconds, at least what the groups held beyond the balance."""
        if self.held is None or self.groups is None:
            return None
        return max(self.balance.overcommitted, self._held_by_groups - self.held, 0.0)

    @property
    def unseen(self) -> float | None:
        """GPU-seconds held by pods that no scrape saw: held + overcommitted - the sum of the groups."""
        held, beyond = self.held, self.overcommitted
        return None if held is None or beyond is None else held + beyond - self._held_by_groups
