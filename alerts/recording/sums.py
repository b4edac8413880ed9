"""The sums over rows of containers, the same at every level."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from alerts.promql import CONTAINER_SLICES
from alerts.recording.containers import HELD, IDLE, UNITS, USED

HOLDERS = "gpuslice_holders:count"
IDLE_HOLDERS = "gpuslice_idle_holders:count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A sum over rows of containers."""

    name: str
    """Name of its records without the level."""
    rows: str
    """PromQL of the rows that are added up or counted."""
    why: str
    """Meaning, as one sentence."""
    function: Literal["sum", "count"] = "sum"
    zero: str | None = None
    """Name of a count. Without rows, a sum is 0 if that count is 0, a count is 0 if that count is known."""
    by_gpu: bool = False
    """Whether it is recorded for single GPUs too."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Used by held, of rows with both known."""

    name: str
    used: str
    """Name of the sum of used."""
    held: str
    """Name of the sum of held."""
    quantity: str


RATIOS = tuple(
    Ratio(
        f"gpuslice_{quantity}_efficiency",
        f"gpuslice_{quantity}_used_entitled_{unit}:sum",
        f"gpuslice_{quantity}_held_measured_{unit}:sum",
        quantity,
    )
    for quantity, unit in UNITS.items()
)


def container_sums() -> Iterator[Sum]:
    """Return the sums. A row with an unknown value adds nothing, so each sum is a lower bound."""
    yield Sum(
        name=HOLDERS,
        rows=f"{CONTAINER_SLICES} > bool 0",
        why="Holders: containers, once for each device that they hold slices of.",
        by_gpu=True,
    )
    yield Sum(
        name=IDLE_HOLDERS,
        rows=IDLE,
        why="Idle holders, of those with measured compute.",
        zero=HOLDERS,
        by_gpu=True,
    )
    for quantity, unit in UNITS.items():
        yield from _of_quantity(quantity, unit)


def _of_quantity(quantity: str, unit: str) -> Iterator[Sum]:
    held, used = HELD[quantity], USED[quantity]
    yield Sum(
        name=f"gpuslice_{quantity}_held_{unit}:sum",
        rows=held,
        why=f"Entitlements of holders to {quantity}, if known.",
        zero=HOLDERS,
        by_gpu=True,
    )
    yield Sum(
        name=f"gpuslice_{quantity}_entitled_holders:count",
        rows=held,
        function="count",
        why=f"Holders with a known entitlement to {quantity}; the others are not in the sum.",
        zero=HOLDERS,
    )
    yield Sum(
        name=f"gpuslice_{quantity}_used_{unit}:sum",
        rows=used,
        why=f"Use of {quantity} by containers, also those that hold nothing, if measured.",
        by_gpu=True,
    )
    yield Sum(
        name=f"gpuslice_idle_{quantity}_held_{unit}:sum",
        rows=f"{held} and {IDLE} == 1",
        why=f"Entitlements of idle holders to {quantity}.",
        zero=IDLE_HOLDERS,
    )
    yield Sum(
        name=f"gpuslice_{quantity}_held_measured_{unit}:sum",
        rows=f"{held} and {used}",
        why=f"Entitlements to {quantity} of containers with measured use; the base of the efficiency.",
    )
    yield Sum(
        name=f"gpuslice_{quantity}_used_entitled_{unit}:sum",
        rows=f"{used} and {held}",
        why=f"Use of {quantity} by containers with a known entitlement.",
    )
