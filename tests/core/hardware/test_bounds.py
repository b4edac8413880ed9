"""What a reading can be: each number of each table has a bound, and what is outside of it is absent."""

import math
from collections.abc import Iterator, Mapping
from ctypes import Structure, Union, _SimpleCData
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from exporter.dcgm_scrape.fields import FIELDS as DCGM_FIELDS
from exporter.dcgm_scrape.page import read_page
from exporter.model.bounds import ALL_ONES, Bound, bounded
from exporter.model.readings import Memory
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.library import Library
from exporter.nvml.mig import read_facts
from exporter.nvml.mig_layout import MigIdentity
from exporter.nvml.readings.answers import KeptRows, ask_row
from exporter.nvml.readings.device import ENERGY_ROWS, FIXED_ROWS, ROWS, SLOW_ROWS, THROUGHPUT_ROWS
from exporter.nvml.readings.device_reader import link_state_rows
from exporter.nvml.readings.field_reader import FieldReader
from exporter.nvml.readings.fields import LINKS_ROW, FieldRow, link_rows
from exporter.nvml.readings.fields import ROWS as FIELD_ROWS
from exporter.nvml.readings.fields import SLOW_ROWS as SLOW_FIELD_ROWS
from exporter.nvml.readings.gpm_metrics import METRICS, decode
from tests.core.dcgm_scrape.serving import page, sample
from tests.core.hardware.tiny import HANDLE

GPU = "GPU-a"
TABLE = (*ROWS, *THROUGHPUT_ROWS, *ENERGY_ROWS, *SLOW_ROWS, *FIXED_ROWS)
FIELD_TABLE = (*FIELD_ROWS, *SLOW_FIELD_ROWS, *link_rows(2, 2))
# All ones of each width, negative numbers, registers that cannot be read, and values that no reading reaches.
GARBAGE = (
    *(2**bits - 1 for bits in (16, 31, 32, 63, 64)),
    *(2**bits for bits in (31, 47, 62, 63)),
    0xBADF1100,
    -1,
    -2,
    -300,
)
TYPES = {0: "d", 1: "I", 2: "L", 3: "Q", 4: "q", 5: "i", 6: "H"}
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


class Writes:
    """A library of all functions: each writes one number into everything that it fills."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __getattr__(self, name: str) -> Any:
        """Return a function of the library."""
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return self._fill

    def _fill(self, *arguments: Any) -> int:
        for argument in arguments:
            target = getattr(argument, "_obj", None)
            if target is not None:
                _fill(target, self._value)
        return 0


def _fill(target: Any, value: int) -> None:
    """Write a number into a ctypes number, and into all of a record."""
    if isinstance(target, _SimpleCData):
        target.value = value
    elif isinstance(target, (Structure, Union)):
        for name, kind, *_ in target._fields_:
            if issubclass(kind, _SimpleCData) and name != "version":
                setattr(target, name, value)
            elif issubclass(kind, (Structure, Union)):
                _fill(getattr(target, name), value)


def calls_of(value: int) -> Calls:
    """Return the calls into a library that writes one number everywhere."""
    Library(library=Writes(value)).open()
    return Calls()


def numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in a value."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from numbers(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from numbers(getattr(value, field.name))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


@pytest.mark.parametrize("row", TABLE, ids=lambda row: ".".join(map(str, row.into)) or row.group)
def test_each_number_that_is_asked_has_a_bound_and_keeps_to_it(row: Any):
    assert row.bound is not None or not list(numbers(ask_row(calls_of(1), GPU, HANDLE, row)))
    for value in GARBAGE:
        calls = calls_of(value)
        found = list(numbers(ask_row(calls, GPU, HANDLE, row)))
        assert all(row.bound.has(number) for number in found)
        assert not ALL_ONES.intersection(found)


def test_states_of_links_have_a_bound():
    (row,) = link_state_rows(without_fields(), GPU, {LINKS_ROW: 1})
    assert row.bound is not None


def without_fields() -> Calls:
    """Return the calls into a driver without field values."""
    calls = Calls()
    calls.refused(GPU, "nvmlDeviceGetFieldValues", 165, 0)
    return calls


class FieldValues:
    """A driver with one field of one type and value; it does not support others."""

    def __init__(self, row: FieldRow, place: int, kind: int, value: float) -> None:
        self._field, self._kind, self._value = row.fields[place], kind, value
        self.nvmlInitWithFlags = self.nvmlShutdown = lambda *_: 0

    def nvmlDeviceGetFieldValues(self, _handle: Any, _count: Any, entries: Any) -> int:  # noqa: N802
        """Answer as the library function does."""
        for entry in entries._obj:
            there = (entry.fieldId, entry.scopeId) == (self._field.number, self._field.scope)
            links = entry.fieldId in (91, 170)
            entry.nvmlReturn = 0 if there or links else 3
            entry.valueType = self._kind if there else 1
            if there:
                setattr(entry.value, MEMBERS[self._kind], self._value)
            elif links:
                entry.value.uiVal = 2
        return 0


def field_value(row: FieldRow, place: int, kind: int, value: float) -> tuple[Any, Calls]:
    """Return what is read of a row, and the calls."""
    Library(library=FieldValues(row, place, kind, value)).open()
    calls, values, kept = Calls(), dict[Any, Any](), KeptRows()
    FieldReader().read(calls, GPU, HANDLE, values, kept)
    for key in row.into:
        values = values.get(key, {})
    return kept.get(row) if row.slow else values or None, calls


@pytest.mark.parametrize("row", FIELD_TABLE, ids=lambda row: ".".join(map(str, row.into)))
def test_each_number_that_is_a_field_has_a_bound_and_keeps_to_it(row: FieldRow):
    for place, _ in enumerate(row.fields):
        value, _ = field_value(row, place, 3, 1)
        assert row.bound is not None or not list(numbers(value))
        for kind in TYPES:
            values = (math.nan, math.inf, -math.inf, 1e300, -1e300, -5.0) if kind == 0 else GARBAGE
            for garbage in values:
                value, _ = field_value(row, place, kind, garbage)
                found = list(numbers(value))
                assert all(row.bound is not None and row.bound.has(number) for number in found)


@pytest.mark.parametrize("number", METRICS)
def test_each_profiling_metric_keeps_to_its_bound(number: int):
    metric = METRICS[number]
    outside = (2**32 - 1, 2**64 - 1, -1.0, math.inf, -math.inf, metric.bound.highest / metric.factor * 1.02)
    for raw in outside:
        profile, any_impossible = decode([(metric, raw)])
        assert not list(numbers(profile))
        assert any_impossible
    profile, any_impossible = decode([(metric, math.nan)])
    assert not list(numbers(profile))
    assert not any_impossible


@pytest.mark.parametrize("name", DCGM_FIELDS)
def test_each_series_of_dcgm_keeps_to_its_bound(name: str):
    series = name.removeprefix("DCGM_FI_PROF_")
    outside = (2**32 - 1, 2**64 - 1, -1, "+Inf", "1e300", int(DCGM_FIELDS[name].bound.highest * 1.02) + 1)
    for value in outside:
        reading = read_page(page(sample(series, value)).decode(), oldest=0.0)
        assert (reading.profiles, reading.unreadable) == ({}, 1)


def test_facts_of_a_mig_device_keep_to_their_bounds():
    identity = MigIdentity(1, 0, "MIG-a", "NVIDIA Test MIG 1g.2gb")
    # Those that are garbage in 32 bits, too.
    for value in (value for value in GARBAGE if value % 2**32 >= 2**31 - 1):
        calls = calls_of(value)
        facts, _ = read_facts(calls, identity, HANDLE, HANDLE)
        reading = facts.reading
        sizes = (reading.compute_slices, reading.instance_slices, reading.multiprocessors)
        assert not any(sizes)
        assert not reading.engines
        assert facts.instance_memory is None
        assert (reading.gi_start, reading.gi_size) == (None, None)


@pytest.mark.parametrize("number", [math.nan, math.inf, -1, 101, 2**32 - 1, 2**64 - 1])
def test_an_impossible_number_costs_itself_or_its_record(number: float):
    bound = Bound(0, 100)
    assert bounded(number, bound) == (None, True)
    assert bounded({"a": number, "b": 5}, bound) == ({"a": None, "b": 5}, True)
    assert bounded(Memory(total=100, used=5, free=number), bound) == (None, True)
    assert bounded(Memory(total=100, used=5, free=95), bound)[1] is False
    assert bounded(True, bound) == (True, False)
