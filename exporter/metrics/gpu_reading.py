"""How the rows of GPUs ask a reading: only of a GPU that answers, and part by part."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from exporter.metrics.family import Labelled, Number
from exporter.model import GpuReading, GpuRow


def reading(value: Callable[[GpuReading], Number | None]) -> Callable[[GpuRow], Number | None]:
    """Ask the reading, where there is one of a GPU that answers."""

    def read(row: GpuRow) -> Number | None:
        found = answering(row)
        return None if found is None else value(found)

    return read


def each(
    values: Callable[[GpuReading], Mapping[Any, int]], units: float = 1, *, times: int = 1
) -> Callable[[GpuRow], Iterator[Labelled]]:
    """Ask one of the reading's mappings: a sample for each key, its number divided by ``units``.

    ``times`` multiplies instead, so that whole numbers stay whole.
    """

    def read(row: GpuRow) -> Iterator[Labelled]:
        found = answering(row)
        if found is not None:
            for key, number in values(found).items():
                yield (key,), number * times if units == 1 else number / units

    return read


def word(value: Callable[[GpuReading], str | None]) -> Callable[[GpuRow], Iterator[Labelled]]:
    """Ask one word of the reading, for an info series."""

    def read(row: GpuRow) -> Iterator[Labelled]:
        found = answering(row)
        told = None if found is None else value(found)
        if told:
            yield (told,), 1

    return read


def flag(value: bool | None) -> int | None:
    """Spell yes and no as 1 and 0; what is not known stays so."""
    return None if value is None else int(value)


def answering(row: GpuRow) -> GpuReading | None:
    """Return the reading of a GPU that answers."""
    return row.reading if row.reading is not None and row.reading.up else None
