"""Prices of GPU-hours by model and MIG profile, from a YAML file of the user; see docs/usage.md."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from exporter.config.parse import NAME, PRICE, SettingsError
from exporter.documents import DocumentError, decode, fail, matching, read_yaml
from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount, total_amount
from exporter.fleet.usage.model import Group, Kind, Quantities

_CURRENCY = matching("[A-Z]{3}", str, "a code of ISO 4217, such as EUR")
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a GPU-hour."""

    model: Annotated[str, NAME]
    """Name of a model, in which * is any text."""
    profile: Annotated[str, NAME] | None = None
    """MIG profile, likewise; None fits whole GPUs, and MIG devices without a price of their own."""
    price: Annotated[float, PRICE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices in one currency, of hours of a whole GPU: a MIG device has its part of it."""

    currency: Annotated[str, _CURRENCY]
    prices: tuple[Price, ...]
    by: Literal["held", "used"] = "held"
    account: Annotated[str, NAME] | None = None
    """Name of the account that is billed."""

    def __post_init__(self) -> None:
        if not self.prices:
            fail("prices", "has no row, such as {model: NVIDIA H100 80GB HBM3, price: 3.10}")

    def of(self, kind: Kind) -> float | None:
        """Return the price of a GPU-hour, None if there is none; the first row that fits counts."""
        fits = [row for row in self.prices if _pattern(row.model).fullmatch(kind.model)]
        own = [
            row
            for row in fits
            if kind.profile and row.profile is not None and _pattern(row.profile).fullmatch(kind.profile)
        ]
        return next((row.price for row in (*own, *(row for row in fits if row.profile is None))), None)

    @property
    def words(self) -> str:
        """What the prices are."""
        listed = [
            f"{_written(row.price)} ({' '.join(filter(None, (row.model, row.profile)))})"
            for row in self.prices[:_MOST_SHOWN]
        ]
        more = len(self.prices) - _MOST_SHOWN
        return (
            f"{self.currency} per GPU-hour {self.by}: {', '.join(listed)}{f' and {more} more' * (more > 0)}"
        )


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Return the pattern of a name; brackets and question marks are themselves, as in names of AMD GPUs."""
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def _written(price: float) -> str:
    """Return a price with all its decimals, at least two."""
    exact = Decimal(str(price))
    return f"{exact:.2f}" if exact == exact.quantize(Decimal("0.01")) else f"{exact:f}"


def cost_of(groups: Iterable[Group], prices: Prices) -> Amount:
    """Return what groups cost; a part without a price, or without a known amount, is missing."""
    return total_amount(
        cost_of_kind(kind, quantities, prices) for group in groups for kind, quantities in group.kinds.items()
    )


def cost_of_kind(kind: Kind, quantities: Quantities, prices: Prices) -> Amount:
    """Return what devices of one kind cost."""
    price = prices.of(kind)
    hours = priced_hours(quantities, prices)
    if price is None or hours.value is None:
        return UNKNOWN_AMOUNT
    return Amount(hours.value * price, 1, hours.missing)


def priced_hours(quantities: Quantities, prices: Prices) -> Amount:
    """Return the GPU-hours that are priced: held, or used."""
    return quantities.held_hours if prices.by == "held" else quantities.used_hours


def read_prices(path: Path) -> Prices:
    """Return the prices in a file; raises SettingsError with the place in the file and what is allowed."""
    try:
        prices: Prices = decode(Prices, read_yaml(path.read_bytes()))
    except OSError as error:
        raise SettingsError(f"--prices: cannot read {path}: {error.strerror}") from None
    except DocumentError as error:
        raise SettingsError(f"--prices: {path}: {error}") from None
    return prices
