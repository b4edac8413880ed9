"""What a row of the table is: one family of series, and how its samples come out of a plain record.

A value function takes a record of the model and nothing else, converts to base units, and answers None
for what is not known; then the sample is left out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from exporter.model import GpuReading, GpuRow

Number: TypeAlias = int | float
FamilyType: TypeAlias = Literal["gauge", "counter", "info"]
Level: TypeAlias = Literal[
    "node", "collector", "gpu", "mig", "vgpu", "container", "pod", "dcgm", "dcgm_legacy"
]
Labelled: TypeAlias = tuple[tuple[str, ...], Number | None]

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Family(Generic[Row]):
    """One sample for each entity of the level, under the labels of the level.

    ``group`` is a key of ``GROUPS`` for what a device says, "" elsewhere.
    """

    name: str
    type: FamilyType
    level: Level
    help: str
    value: Callable[[Row], Number | None]
    labels: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True, slots=True)
class LabelledFamily(Generic[Row]):
    """Any number of samples for each entity, told apart by ``labels`` beyond those of the level.

    ``samples`` yields the values of ``labels`` with the number. An empty label value means the same as no
    such label, and is not printed. The type ``info`` is one sample of 1 that carries names, or one for each
    of ``several`` things.
    """

    name: str
    type: FamilyType
    level: Level
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Row], Iterable[Labelled]]
    group: str = ""
    several: bool = False


AnyFamily: TypeAlias = Family[Any] | LabelledFamily[Any]


def field_name(family: AnyFamily) -> str:
    """Name the family inside a record of its level, as JSON and CSV do: without the prefix they share."""
    return family.name.removeprefix("gpuslice_").removeprefix(f"{family.level}_").removesuffix("_info")


def scaled(value: int | None, units: int) -> float | None:
    """Divide a driver's integer into base units (percent by 100, milliwatts by 1000); None stays None."""
    return None if value is None else value / units


def reading(value: Callable[[GpuReading], Number | None]) -> Callable[[GpuRow], Number | None]:
    """Ask the reading, where there is one of a GPU that answers."""

    def read(row: GpuRow) -> Number | None:
        found = answering(row)
        return None if found is None else value(found)

    return read


def each(
    values: Callable[[GpuReading], Mapping[Any, int]], units: float = 1, *, times: int = 1
) -> Callable[[GpuRow], Iterable[Labelled]]:
    """Ask one of the reading's mappings: a sample for each key, its number divided by ``units``.

    ``times`` multiplies instead, so that whole numbers stay whole.
    """

    def read(row: GpuRow) -> Iterable[Labelled]:
        found = answering(row)
        if found is None:
            return ()
        told = values(found)
        return [((key,), told[key] * times if units == 1 else told[key] / units) for key in told]

    return read


def word(value: Callable[[GpuReading], str | None]) -> Callable[[GpuRow], Iterable[Labelled]]:
    """Ask one word of the reading, for an info series."""

    def read(row: GpuRow) -> Iterable[Labelled]:
        found = answering(row)
        told = None if found is None else value(found)
        return (((told,), 1),) if told else ()

    return read


def flag(value: bool | None) -> int | None:
    """Spell yes and no as 1 and 0; what is not known stays so."""
    return None if value is None else int(value)


def answering(row: GpuRow) -> GpuReading | None:
    """Return the reading of a GPU that answers."""
    found = row.reading
    return found if found is not None and found.up else None
