"""How the rows of GPUs ask a reading: only of a GPU that answers, and part by part."""

from collections.abc import Callable, Iterable, Mapping
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
