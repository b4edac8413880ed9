"""Reads the field values of a GPU in one call; each value has its own type and error code."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

import pynvml

from exporter.model.bounds import ALL_ONES
from exporter.nvml.driver.binding import NOT_ANSWERED
from exporter.nvml.driver.calls import FIELDS, INVALID_ARGUMENT, NOTHING_THERE, UNSUPPORTED, Calls
from exporter.nvml.driver.library import error_name
from exporter.nvml.readings.answers import KeptRows, Values, believed, forget, is_skipped, set_path
from exporter.nvml.readings.fields import (
    C2C_LINKS_ROW,
    LINKS_ROW,
    ROWS,
    SLOW_ROWS,
    Field,
    FieldRow,
    link_rows,
)

SUCCESS, DOUBLE = 0, 0
# ``nvmlFieldValue_t`` of nvml.h, with the fields of ``Entry``. Access through the binding's structure is
# slower than the rest of the read, because it checks each field for text to decode.
ENTRY = Struct("IIqqII8s")
# Layout of the value by value type (``nvmlValueType_t``).
TYPES: Mapping[int, Struct] = {
    DOUBLE: Struct("d"),
    1: Struct("I4x"),
    2: Struct("L"),
    3: Struct("Q"),
    4: Struct("q"),
    5: Struct("i4x"),
    6: Struct("H6x"),
}
# Stands for the answer of a driver that refuses the whole call because of one field.
REFUSED: tuple[()] = ()
REFUSAL = "InvalidArgument"
# Codes of a field that this GPU or its driver does not have.
REFUSED_CODES = UNSUPPORTED | {INVALID_ARGUMENT}
MISSING = REFUSED_CODES | {NOT_ANSWERED}


# Numbers of NVLinks and of C2C links.
LinkCounts = tuple[int, int]
NO_LINKS: LinkCounts = (0, 0)
# What the requests of a GPU depend on: the generation of unsupported calls, the numbers of links, and the
# number of kept rows. In place of these rows themselves: from one change to none on, rows are only added.
Basis = tuple[int, LinkCounts, int]


class Request(NamedTuple):
    """A reading, and the field of it to read."""

    row: FieldRow
    field: Field


class Entry(NamedTuple):
    """One answer, unpacked by ``ENTRY``."""

    number: int
    scope: int
    timestamp: int
    # Time that the driver took to read it.
    microseconds: int
    type: int
    code: int
    value: bytes


class Found(NamedTuple):
    """Where the values of one read go, those of slow rows into ``kept``."""

    values: Values
    kept: KeptRows

    def add(self, row: FieldRow, value: Any) -> None:
        """Add the value of a row, None for a reading that the device does not have."""
        if row.slow:
            self.kept.add(row, value)
        else:
            set_path(self.values, row.into, value)

    def fail(self, calls: Calls, uuid: str, row: FieldRow) -> None:
        if row.slow:
            self.kept.fail(row)
            calls.records.note_until_due(uuid, row.group)


class FieldReader:
    """Reads the field values of GPUs; keeps the numbers of links of each, which decide what to read.

    ``skip`` are readings that are not read, as for ``DeviceReader``.
    """

    def __init__(self, skip: Collection[str] = ()) -> None:
        self._skip = skip
        self._links: dict[str, LinkCounts] = {}
        self._plans: dict[str, tuple[Basis | None, list[Request]]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any, values: Values, kept: KeptRows) -> None:
        """Add the field values of a GPU to ``values``, and those of slow rows to ``kept``.

        ``kept`` is of this reader alone: slow rows that are in it are not read. Raises as ``Calls.ask`` does.

        This takes one call, except at first: the links and the supported fields are then not yet known.
        """
        found = Found(values, kept)
        requests = self._plan(calls, uuid, kept)
        while requests:
            again = _read_requests(calls, uuid, handle, requests, found)
            requests = _requests(calls, uuid, [*again, *self._new_links(uuid, kept)])

    def forget(self, uuid: str | None = None) -> None:
        """Forget the links of one GPU, or of all after the driver was opened."""
        forget(uuid, self._links, self._plans)

    def _plan(self, calls: Calls, uuid: str, kept: KeptRows) -> list[Request]:
        """Return the requests of the first call, which are kept as long as their basis is the same."""
        links = self._links.get(uuid, NO_LINKS)
        basis = calls.records.generation, links, len(kept)
        last_basis, plan = self._plans.get(uuid, (None, []))
        if last_basis != basis:
            rows = (row for row in (*ROWS, *SLOW_ROWS, *link_rows(*links)) if row not in kept)
            plan = _requests(calls, uuid, self._needed(rows))
            self._plans[uuid] = basis, plan
        return plan

    def _new_links(self, uuid: str, kept: KeptRows) -> Sequence[FieldRow]:
        """Return the rows of links that have just become known."""
        known = self._links.get(uuid, NO_LINKS)
        nvlinks, c2c = kept.get(LINKS_ROW), kept.get(C2C_LINKS_ROW)
        links = known[0] if nvlinks is None else nvlinks, known[1] if c2c is None else c2c
        if links == known:
            return ()
        self._links[uuid] = links
        return [row for row in self._needed(link_rows(*links)) if row not in link_rows(*known)]

    def _needed(self, rows: Iterable[FieldRow]) -> list[FieldRow]:
        return [row for row in rows if not is_skipped(row.into, self._skip)]


def _read_requests(
    calls: Calls, uuid: str, handle: Any, requests: list[Request], found: Found
) -> list[FieldRow]:
    """Add the values of the requests; return the rows to request again.

    These have a field that this GPU does not have, or one that the driver has not answered beside such a
    field: driver 580 leaves others empty if a GPU without C2C links is asked for those.
    """
    again = []
    answers = list(_ask(calls, uuid, handle, requests))
    any_refused = any(entry is None or entry.code in REFUSED_CODES for _, entry in answers)
    for (row, field), entry in answers:
        calls.group, failures = row.group, calls.records.failures
        # A driver may fill a value and leave the code untouched.
        filled = entry is not None and entry.code == NOT_ANSWERED and bool(entry.type or any(entry.value))
        if entry is not None and (entry.code == SUCCESS or filled):
            value = believed(calls, uuid, FIELDS, _value(row, field, entry), row.bound)
            if calls.records.failures == failures:
                found.add(row, value)
        elif entry is not None and entry.code == NOT_ANSWERED and any_refused:
            again.append(row)
        elif entry is None or entry.code in MISSING:
            calls.refused(uuid, FIELDS, field.number, field.scope)
            again.append(row)
        elif entry.code in NOTHING_THERE:
            found.add(row, None)
        else:
            calls.count(uuid, FIELDS, error_name(pynvml.NVMLError(entry.code)))
        if calls.records.failures > failures:
            found.fail(calls, uuid, row)
    if not answers:
        for row, _ in requests:
            found.fail(calls, uuid, row)
    return again


def _requests(calls: Calls, uuid: str, rows: Iterable[FieldRow]) -> list[Request]:
    """Return the requests for the first supported field of each row, of those that have one."""
    requests = []
    for row in rows:
        supported = (field for field in row.fields if calls.supports(uuid, FIELDS, field.number, field.scope))
        if (field := next(supported, None)) is not None:
            requests.append(Request(row, field))
    return requests


def _ask(
    calls: Calls, uuid: str, handle: Any, requests: list[Request]
) -> Iterable[tuple[Request, Entry | None]]:
    """Return each request with the driver's entry, None for a field that it refuses.

    If the driver refuses the call, the fields are read one by one. There are no answers if the call fails,
    or if it is refused for each of several fields: the fields are then not the reason.
    """
    fields = [(field.number, field.scope) for _, field in requests]
    groups = Counter([row.group for row, _ in requests])
    with calls.shared(uuid, groups):
        answer = calls.ask(uuid, FIELDS, handle, since=fields, none=REFUSED)
    if answer is None:
        return () if calls.supports(uuid, FIELDS) else [(request, None) for request in requests]
    if len(answer):
        entries = map(Entry._make, ENTRY.iter_unpack(memoryview(answer).cast("B")))
        answers = list(zip(requests, entries, strict=True))
        for request, entry in answers:
            calls.records.driver_microseconds[request.row.group] += max(0, entry.microseconds)
        return answers
    if len(requests) == 1:
        return [(requests[0], None)]
    single = [answer for request in requests for answer in _ask(calls, uuid, handle, [request])]
    if any(entry is not None for _, entry in single):
        return single
    with calls.shared(uuid, groups):
        calls.count(uuid, FIELDS, REFUSAL)
    return ()


def _value(row: FieldRow, field: Field, entry: Entry) -> Any:
    """Return the decoded value of an answer; None for a sentinel or an unknown type."""
    mislabelled = entry.type == DOUBLE and row.integer
    layout = TYPES.get(row.integer if mislabelled else entry.type)
    if layout is None:
        return None
    (value,) = layout.unpack(entry.value)
    if not math.isfinite(value) or value in ALL_ONES:
        return None
    return row.decode(round(value) * field.unit)
