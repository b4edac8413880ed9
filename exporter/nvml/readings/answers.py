"""Decoders of the driver's answers, the rows of the tables of readings, and the rows of memory.

A decoder converts an answer to the unit of the model, and returns None for an implausible one.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from exporter.model import Bar1, Memory
from exporter.nvml.driver.calls import Call, Calls

# Sentinels of fields of 32 and 64 bits.
UNKNOWN_32, UNKNOWN_64 = 2**32 - 1, 2**64 - 1
HIGHEST_CELSIUS = 200
MOST_OVERSHOOT_PERCENT = 1000

# Place of a value in a reading: a field, and the keys below it.
Path = tuple[Any, ...]
Values = dict[Any, Any]
# Values by row, None for a reading that the device does not have; a row that failed is not in it.
Kept = dict[Any, Any]
Decode = Callable[[Any], Any]


# Compared and hashed by identity: every sweep looks up all rows of every GPU.
@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One reading of a table."""

    # A key of GROUPS in exporter.metrics.
    group: str
    into: Path
    # Calls that return it, newest form first.
    calls: tuple[Call, ...]
    # May return a dictionary of values below ``into``.
    decode: Decode


def ask_row(calls: Calls, device: str, handle: Any, row: Row) -> Any:
    """Return the value of a row; None if the device does not report it, or an implausible one.

    Raises as ``Calls.ask`` does.
    """
    calls.group = row.group
    answer = calls.first(device, handle, row.calls)
    return None if answer is None else row.decode(answer)


def set_path(values: Values, into: Path, value: Any) -> None:
    """Set a value, or a dictionary of values, at a path; None sets nothing."""
    if isinstance(value, dict):
        for key, part in value.items():
            set_path(values, (*into, key), part)
    elif value is not None:
        for key in into[:-1]:
            values = values.setdefault(key, {})
        values[into[-1]] = value


def add_kept(values: Values, kept: Kept) -> None:
    """Set the kept values at the paths of their rows."""
    for row, value in kept.items():
        set_path(values, row.into, value)


def forget(uuid: str | None, *by_uuid: dict[str, Any]) -> None:
    """Drop what is known of one GPU, or of all."""
    for known in by_uuid:
        if uuid is None:
            known.clear()
        else:
            known.pop(uuid, None)


def keep_only(existing: Collection[Any], *by_key: dict[Any, Any]) -> None:
    """Drop what is known of everything that does not exist any more."""
    for known in by_key:
        for gone in known.keys() - existing:
            del known[gone]


def is_skipped(into: Path, skip: Collection[str]) -> bool:
    """Return whether ``skip`` has the path of a reading, joined by dots, or the beginning of it.

    Keys that are no words, such as those of ECC errors by location, have no name: the path ends before them.
    """
    name = ""
    for key in into:
        if not isinstance(key, str):
            return False
        name = f"{name}.{key}" if name else key
        if name in skip:
            return True
    return False


def number(answer: int) -> int | None:
    """Return a number of 32 bits."""
    return answer if 0 <= answer < UNKNOWN_32 else None


def long_number(answer: int) -> int | None:
    """Return a number of 64 bits."""
    return answer if 0 <= answer < UNKNOWN_64 else None


def percent(answer: int) -> int | None:
    """Return a share of time in percent; a value above 100 is not plausible."""
    return answer if 0 <= answer <= 100 else None


def sampled_percent(answer: int) -> int | None:
    """Return a sampled share in percent, at most 100: sampling may exceed it, but not by far."""
    return min(answer, 100) if answer <= MOST_OVERSHOOT_PERCENT else None


def first_percent(answer: Any) -> int | None:
    """Return the share in an answer (percent, sampling period)."""
    return percent(answer[0])


def celsius(answer: int) -> int | None:
    """Return a temperature; boards without a sensor answer 0 or a sentinel."""
    return answer if 0 < answer < HIGHEST_CELSIUS else None


def margin(answer: int) -> int | None:
    """Return a temperature margin; a negative one may come in an unsigned field of 32 bits."""
    signed = answer - 2**32 if answer >= 2**31 else answer
    return signed if abs(signed) < HIGHEST_CELSIUS else None


def flag(answer: int) -> bool | None:
    """Return True for 1 and False for 0."""
    return {0: False, 1: True}.get(answer)


def word(words: Mapping[int, str]) -> Callable[[int], str | None]:
    """Return a decoder of numbers to words; unknown numbers become None."""
    return words.get


def memory(answer: Any) -> Memory | None:
    """Return device memory; only the second version of the call reports reserved memory separately."""
    total, used, free = answer.total, answer.used, answer.free
    reserved = getattr(answer, "reserved", None)
    if not long_number(total) or max(used, free, reserved or 0) > total:
        return None
    return Memory(total=total, used=used, free=free, reserved=reserved)


def bar1(answer: Any) -> Bar1 | None:
    """Return BAR1 memory; boards without BAR1 report 0."""
    total, used = answer.bar1Total, answer.bar1Used
    return Bar1(total=total, used=used) if long_number(total) and used <= total else None


MEMORY = Row(
    "memory",
    ("memory",),
    (("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)), ("nvmlDeviceGetMemoryInfo", ())),
    memory,
)
BAR1 = Row("bar1", ("bar1",), (("nvmlDeviceGetBAR1MemoryInfo", ()),), bar1)


def ask_until_refused(
    calls: Calls, refusal: str, device: str, name: str, *arguments: Any, since: Any = None
) -> Any:
    """Return ``Calls.ask``; after the error ``refusal``, the call is recorded as unsupported."""
    earlier = refusals(calls, refusal, device, name)
    answer = calls.ask(device, name, *arguments, since=since)
    if refusals(calls, refusal, device, name) > earlier:
        calls.refused(device, name, *arguments[1:])
    return answer


def refusals(calls: Calls, refusal: str, device: str, name: str) -> int:
    """Return how often a call has failed with the error ``refusal``, for a MIG device with its whole GPU."""
    return calls.errors[calls.parents.get(device, device), name, refusal]
