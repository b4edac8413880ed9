"""What is added up over the rows of containers, at every level alike."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from alerts.promql import CONTAINER_SLICES
from alerts.recording.containers import HELD, IDLE, UNITS, USED

HOLDERS = "gpuslice_holders:count"
IDLE_HOLDERS = "gpuslice_idle_holders:count"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A sum over rows of containers.

    ``name`` is that of its records without the level, and ``rows`` are what is added up or counted. Without
    any rows the result would look as if it were not known: with ``zero``, it is 0 where that count is 0, and
    what is counted is 0 where that count is known at all. ``by_gpu`` tells whether it is recorded for single
    GPUs too.
    """

    name: str
    rows: str
    why: str
    function: Literal["sum", "count"] = "sum"
    zero: str | None = None
    by_gpu: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """Used by held, of the rows of which both are known; ``used`` and ``held`` are the names of the sums."""

    name: str
    used: str
    held: str
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
    """Give the sums. A row whose part is not known adds nothing: each is what there is at least."""
    yield Sum(
        name=HOLDERS,
        rows=f"{CONTAINER_SLICES} > bool 0",
        why="Holders: containers, once for each device that they hold slices of.",
        by_gpu=True,
    )
    yield Sum(
        name=IDLE_HOLDERS,
        rows=IDLE,
        why="Holders that are idle, of those whose compute is measured.",
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
        why=f"The {quantity} that holders are entitled to, as far as that is known.",
        zero=HOLDERS,
        by_gpu=True,
    )
    yield Sum(
        name=f"gpuslice_{quantity}_entitled_holders:count",
        rows=held,
        function="count",
        why=f"Holders whose entitlement to {quantity} is known: of the others nothing is in the sum.",
        zero=HOLDERS,
    )
    yield Sum(
        name=f"gpuslice_{quantity}_used_{unit}:sum",
        rows=used,
        why=f"The {quantity} that containers use, those that hold nothing too, as far as it is measured.",
        by_gpu=True,
    )
    yield Sum(
        name=f"gpuslice_idle_{quantity}_held_{unit}:sum",
        rows=f"{held} and {IDLE} == 1",
        why=f"The {quantity} that idle holders are entitled to.",
        zero=IDLE_HOLDERS,
    )
    yield Sum(
        name=f"gpuslice_{quantity}_held_measured_{unit}:sum",
        rows=f"{held} and {used}",
        why=f"The {quantity} held by those whose use is measured: what the efficiency is of.",
    )
    yield Sum(
        name=f"gpuslice_{quantity}_used_entitled_{unit}:sum",
        rows=f"{used} and {held}",
        why=f"The {quantity} used by those whose entitlement is known.",
    )
