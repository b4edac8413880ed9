"""Asks for the numbered readings of a GPU, all in one call; each has a type and an error of its own."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

import pynvml

from exporter.nvml.driver.binding import NOT_ANSWERED
from exporter.nvml.driver.calls import FIELDS, INVALID_ARGUMENT, NOTHING_THERE, UNSUPPORTED, Calls
from exporter.nvml.driver.library import error_name
from exporter.nvml.readings.answers import NOTHING, NOTHING_LONG, Found, set_path
from exporter.nvml.readings.fields import ROWS, Field, FieldRow, link_rows

SUCCESS, DOUBLE = 0, 0
# An answer as the driver lays it out: the number and the scope of the field, when it was read, what that took
# in microseconds, the type of the value, the error code and the value. The binding looks at each of these
# for text that it would decode, which takes longer than all else.
ENTRY = Struct("IIqqII8s")
# How a value is laid out by the type that its answer says it has, and what it is where there is none to tell.
TYPES: Mapping[int, tuple[Struct, int | None]] = {
    DOUBLE: (Struct("d"), None),
    1: (Struct("I4x"), NOTHING),
    2: (Struct("L"), NOTHING_LONG),
    3: (Struct("Q"), NOTHING_LONG),
    4: (Struct("q"), None),
    5: (Struct("i4x"), None),
    6: (Struct("H6x"), None),
}
# What a driver answers that refuses the call for one of the fields in it.
REFUSED: tuple[()] = ()
REFUSAL = "InvalidArgument"
# What an answer says of a field that this GPU or its driver does not have.
LACKING = UNSUPPORTED | {INVALID_ARGUMENT, NOT_ANSWERED}


class Request(NamedTuple):
    """A reading, and which of its fields is asked for."""

    row: FieldRow
    field: Field


class Entry(NamedTuple):
    """One answer of ``ENTRY``."""

    number: int
    scope: int
    timestamp: int
    microseconds: int
    type: int
    code: int
    value: bytes


class FieldReader:
    """Reads the fields of GPUs; keeps how many NVLinks each has, which decides what to ask."""

    def __init__(self) -> None:
        self._links: dict[str, int] = {}
        # With what was known when it was made: of calls that are not supported, and of links.
        self._plans: dict[str, tuple[tuple[int, int], list[Request]]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any, found: Found) -> None:
        """Enter every field that a GPU tells.

        One call does, but for the first time: then what NVLinks there are is not known yet, nor which of
        several fields a reading has here.
        """
        requests = self._plan(calls, uuid)
        while requests:
            refused = _round(calls, uuid, handle, requests, found)
            requests = _requests(calls, uuid, [*refused, *self._new_links(uuid, found)])

    def forget(self, uuid: str | None = None) -> None:
        """Count the links anew: of one GPU, or of all as the driver was opened, and may be another one."""
        if uuid is None:
            self._links.clear()
            self._plans.clear()
        else:
            self._links.pop(uuid, None)
            self._plans.pop(uuid, None)

    def _plan(self, calls: Calls, uuid: str) -> list[Request]:
        """Return what to ask at first, which is as at the last read unless something was learnt since."""
        links = self._links.get(uuid, 0)
        known = calls.learnt, links
        before, plan = self._plans.get(uuid, ((-1, 0), []))
        if before != known:
            plan = _requests(calls, uuid, (*ROWS, *link_rows(links)))
            self._plans[uuid] = known, plan
        return plan

    def _new_links(self, uuid: str, found: Found) -> Sequence[FieldRow]:
        links = found.get("nvlink", {}).get("links")
        if links is None or links == self._links.get(uuid):
            return ()
        known, self._links[uuid] = self._links.get(uuid, 0), links
        return [row for row in link_rows(links) if row not in link_rows(known)]


def _round(calls: Calls, uuid: str, handle: Any, requests: list[Request], found: Found) -> list[FieldRow]:
    """Ask each row by one field; return the rows whose field this GPU turned out to lack."""
    refused = []
    for (row, field), entry in _ask(calls, uuid, handle, requests):
        if entry is not None and _is_answer(entry):
            set_path(found, row.into, _value(row, field, entry))
            continue
        calls.group = row.group
        if entry is None or entry.code in LACKING:
            calls.refused(uuid, FIELDS, field.number, field.scope)
            refused.append(row)
        elif entry.code not in NOTHING_THERE:
            calls.count(uuid, FIELDS, error_name(pynvml.NVMLError(entry.code)))
    return refused


def _requests(calls: Calls, uuid: str, rows: Iterable[FieldRow]) -> list[Request]:
    """Choose a field for each row; of one whose fields are all known to be lacking nothing is asked."""
    wanted = ((row, _field(calls, uuid, row)) for row in rows)
    return [Request(row, field) for row, field in wanted if field is not None]


def _field(calls: Calls, uuid: str, row: FieldRow) -> Field | None:
    """Return the first field of a row that this GPU is not known to lack."""
    return next(
        (field for field in row.fields if calls.supports(uuid, FIELDS, field.number, field.scope)), None
    )


def _ask(
    calls: Calls, uuid: str, handle: Any, requests: list[Request]
) -> Iterable[tuple[Request, Entry | None]]:
    """Answer with an entry of the driver for each request, None for a field that it refuses.

    A driver that refuses them together is asked one by one. Where the call fails there are no answers, nor
    where each of several is refused: then it is not the fields that the driver has something against.
    """
    wanted = [(field.number, field.scope) for _, field in requests]
    groups = Counter([row.group for row, _ in requests])
    with calls.shared(uuid, groups):
        answer = calls.ask(uuid, FIELDS, handle, since=wanted, none=REFUSED)
    if answer is None:
        return () if calls.supports(uuid, FIELDS) else [(request, None) for request in requests]
    if len(answer):
        entries = map(Entry._make, ENTRY.iter_unpack(memoryview(answer).cast("B")))
        answers = list(zip(requests, entries, strict=True))
        for request, entry in answers:
            # Fields that the driver reads together share the time that it tells.
            calls.driver_microseconds[request.row.group] += max(0, entry.microseconds)
        return answers
    if len(requests) == 1:
        return [(requests[0], None)]
    one_by_one = [answer for request in requests for answer in _ask(calls, uuid, handle, [request])]
    if any(entry is not None for _, entry in one_by_one):
        return one_by_one
    with calls.shared(uuid, groups):
        calls.count(uuid, FIELDS, REFUSAL)
    return ()


def _is_answer(entry: Entry) -> bool:
    """Whether a driver has told a value; one that has put it there may have left out that it succeeded."""
    return entry.code == SUCCESS or (entry.code == NOT_ANSWERED and bool(entry.type or any(entry.value)))


def _value(row: FieldRow, field: Field, entry: Entry) -> Any:
    """Decode the value of an answer; a type that is newer than this program says nothing."""
    mislabelled = entry.type == DOUBLE and row.integer
    kind = TYPES.get(row.integer if mislabelled else entry.type)
    if kind is None:
        return None
    layout, nothing = kind
    (value,) = layout.unpack(entry.value)
    if not math.isfinite(value) or value == nothing:
        return None
    return row.decode(round(value) * field.unit)
