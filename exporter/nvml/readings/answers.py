"""What the driver's numbers mean: what can be believed, and where it belongs in a reading.

A decoder turns an answer into the unit of the model, or into None where it makes no sense.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from exporter.nvml.driver.calls import Call, Calls

# What fields of 32 and 64 bits hold where there is nothing to tell.
NOTHING, NOTHING_LONG = 2**32 - 1, 2**64 - 1
HOTTEST_BELIEVABLE = 200
MOST_OVERSHOOT_PERCENT = 1000

# Where a value goes: a field of the reading, and the keys below it.
Path = tuple[Any, ...]
Found = dict[Any, Any]
Decode = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One reading: its group, where it goes, the calls that can tell it (newest first), and their meaning.

    A decoder that returns a dictionary fills several places below ``into``.
    """

    group: str
    into: Path
    calls: tuple[Call, ...]
    decode: Decode


def ask_row(calls: Calls, device: str, handle: Any, row: Row) -> Any:
    """Ask one row of a table; None where the device does not tell, or nothing that can be believed."""
    calls.group = row.group
    answer = calls.first(device, handle, row.calls)
    return None if answer is None else row.decode(answer)


def set_path(found: Found, into: Path, value: Any) -> None:
    """Put a value where it belongs; what is not known leaves no trace."""
    if isinstance(value, dict):
        for key, part in value.items():
            set_path(found, (*into, key), part)
    elif value is not None:
        *way, last = into
        for step in way:
            found = found.setdefault(step, {})
        found[last] = value


def number(answer: int) -> int | None:
    """Keep a count or an amount of 32 bits."""
    return answer if 0 <= answer < NOTHING else None


def long_number(answer: int) -> int | None:
    """Keep a count or an amount of 64 bits."""
    return answer if 0 <= answer < NOTHING_LONG else None


def percent(answer: int) -> int | None:
    """Keep a share of time; a value past 100 is a driver's garbage, not a busy device."""
    return answer if 0 <= answer <= 100 else None


def sampled_percent(answer: int) -> int | None:
    """Cut what sampling overshoots; a figure far beyond that is garbage and says nothing."""
    return min(answer, 100) if answer <= MOST_OVERSHOOT_PERCENT else None


def first_percent(answer: Any) -> int | None:
    """Keep the share of an answer that is (percent, sampling period)."""
    return percent(answer[0])


def celsius(answer: int) -> int | None:
    """Keep what a thermometer can show: boards without a sensor answer 0 or a sentinel."""
    return answer if 0 < answer < HOTTEST_BELIEVABLE else None


def margin(answer: int) -> int | None:
    """Keep a distance between temperatures, which may be below zero; it may come in an unsigned field."""
    signed = answer - 2**32 if answer >= 2**31 else answer
    return signed if abs(signed) < HOTTEST_BELIEVABLE else None


def flag(answer: int) -> bool | None:
    """Read yes or no."""
    return {0: False, 1: True}.get(answer)


def word(words: Mapping[int, str]) -> Callable[[int], str | None]:
    """Return a decoder of the driver's numbers for these words; a number that is newer says nothing."""
    return words.get


def ask_until_refused(
    calls: Calls, refusal: str, device: str, name: str, *arguments: Any, since: Any = None
) -> Any:
    """Ask as ``Calls.ask`` does, and never again after the error ``refusal`` (NVML's name of it)."""
    before = refusals(calls, refusal, device, name)
    answer = calls.ask(device, name, *arguments, since=since)
    if refusals(calls, refusal, device, name) > before:
        calls.refused(device, name, *arguments[1:])
    return answer


def refusals(calls: Calls, refusal: str, device: str, name: str) -> int:
    """Count how often a call has failed with this error, on a MIG device's whole GPU together."""
    return calls.errors[calls.parents.get(device, device), name, refusal]
