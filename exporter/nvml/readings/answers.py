"""Decoders of the driver's answers, the rows of the tables of readings, and the rows of memory.

A decoder converts an answer to the unit of the model, and returns None for one that stands for no value. What
the numbers of a reading can be is the bound of its row.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pynvml

from exporter.model import Bar1, Memory
from exporter.model.bounds import ALL_ONES, BYTES, IMPOSSIBLE_VALUE, SAMPLED_PERCENT, Bound, bounded
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.records import Call
from exporter.nvml.readings.paths import GPU, Path, path_of

# A number in no bound: an answer whose parts contradict each other.
IMPOSSIBLE = math.nan

Values = dict[Any, Any]
Decode = Callable[[Any], Any]


class KeptRows(dict[Any, Any]):
    """Values by row since their class was last due; None for a reading that the device does not have.

    A row that fails is asked once more, in the next sweep. If it fails again it is None, until it is due.
    """

    def __init__(self) -> None:
        super().__init__()
        # Rows that failed when they were last asked.
        self._failed: set[Any] = set()

    def add(self, row: Any, value: Any) -> None:
        self[row] = value
        self._failed.discard(row)

    def fail(self, row: Any) -> None:
        if row in self._failed:
            self[row] = None
        self._failed.add(row)


# Compared and hashed by identity: every sweep looks up all rows of every GPU.
@dataclass(frozen=True, slots=True, eq=False)
class CallRow:
    """One reading of a table."""

    group: str  # of readings, for which its calls and failures count
    into: Path
    # Forms of the call that returns it: a device is asked the first one that it supports.
    calls: tuple[Call, ...]
    bound: Bound | None  # what its numbers can be; None for a reading without numbers
    decode: Decode  # may return a dictionary of values below ``into``


def ask_row(calls: Calls, device: str, handle: Any, row: CallRow) -> Any:
    """Return the value of a row; None if the device does not report it, or an impossible one.

    Raises as ``Calls.ask`` does.
    """
    calls.group = row.group
    answer = calls.first(device, handle, row.calls)
    if answer is None:
        return None
    return believed(calls, device, calls.form(device, row.calls), row.decode(answer), row.bound)


def believed(calls: Calls, device: str, call: str, value: Any, bound: Bound | None) -> Any:
    """Return a value as ``bounded`` does; impossible numbers are a failure of the call."""
    value, impossible = bounded(value, bound)
    if impossible:
        calls.count(device, call, IMPOSSIBLE_VALUE)
    return value


def set_path(values: Values, into: Path, value: Any) -> None:
    """Set a value, or a dictionary of values, at a path; None sets nothing."""
    if isinstance(value, dict):
        for key, part in value.items():
            set_path(values, (*into, key), part)
    elif value is not None:
        for key in into[:-1]:
            values = values.setdefault(key, {})
        values[into[-1]] = value


def add_kept(values: Values, kept: KeptRows) -> None:
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


def known(answer: int) -> int | None:
    """Return a number; all ones are none."""
    return None if answer in ALL_ONES else answer


def positive(answer: int) -> int | None:
    """Return a number; 0 and all ones are none."""
    return known(answer) or None


def sampled_percent(answer: int) -> int | None:
    """Return a sampled share in percent, at most 100; None for an impossible one."""
    return min(answer, 100) if SAMPLED_PERCENT.has(answer) else None


def first_of_two(answer: Any) -> int | None:
    """Return the share in an answer (percent, sampling period)."""
    return known(answer[0])


def celsius(answer: int) -> int | None:
    """Return a temperature; boards without a sensor answer 0, a negative number or a sentinel."""
    return known(answer) if answer > 0 else None


def margin(answer: int) -> int:
    """Return a temperature margin; a negative one may come in an unsigned field of 32 bits."""
    return answer - 2**32 if answer >= 2**31 else answer


def flag(answer: int) -> bool | None:
    """Return True for 1 and False for 0."""
    return {0: False, 1: True}.get(answer)


def memory(answer: Any) -> Memory | float | None:
    """Return device memory; only the second version of the call reports reserved memory separately."""
    total, used, free = answer.total, answer.used, answer.free
    reserved = getattr(answer, "reserved", None)
    if not positive(total):
        return None
    if max(used, free, reserved or 0) > total:
        return IMPOSSIBLE
    return Memory(total=total, used=used, free=free, reserved=reserved)


def bar1(answer: Any) -> Bar1 | float | None:
    """Return BAR1 memory; boards without BAR1 report 0."""
    total, used = answer.bar1Total, answer.bar1Used
    if not positive(total):
        return None
    return Bar1(total=total, used=used) if used <= total else IMPOSSIBLE


MEMORY = CallRow(
    "memory",
    path_of(GPU.memory),
    (("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)), ("nvmlDeviceGetMemoryInfo", ())),
    BYTES,
    memory,
)
BAR1 = CallRow("bar1", path_of(GPU.bar1), (("nvmlDeviceGetBAR1MemoryInfo", ()),), BYTES, bar1)


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
    return calls.records.errors[calls.records.parents.get(device, device), name, refusal]
