"""Readings that are fields: one call for all, each with a type and an error of its own."""

import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

import pynvml
import pytest

from exporter.model.readings import C2cError, PacketError
from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.answers import KeptRows, add_kept
from exporter.nvml.readings.field_reader import ENTRY, FieldReader
from exporter.nvml.readings.fields import ALL_LINKS, ROWS, SLOW_ROWS, link_rows
from tests.core.hardware.tiny import HANDLE, Function, answers, installed

GPU = "GPU-a"
FIELDS = "nvmlDeviceGetFieldValues"
NOT_SUPPORTED, INVALID, NO_PERMISSION, UNKNOWN = 3, 2, 4, 999
DOUBLE, UINT, ULONG, ULL, SLL, INT, USHORT = range(7)
MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
POWER, MARGIN, TRAFFIC, LINKS, STATE, C2C_LINKS = (185, 0), (193, 0), (197, 0), (91, 0), 165, 170
# Bytes that no counter of 32 bits holds.
MANY = 9 << 32
# What a GPU without NVLinks is asked when its slow readings are due.
DUE = (*ROWS, *SLOW_ROWS)

# The answer for a field: its type and value, or an error code.
Answer = tuple[int, float] | int
Key = tuple[int, int]
WATTS = {"power_parts_milliwatts": {"average": 50_000}}
BYTES = {"traffic_bytes": {"pcie_transmit": MANY}}
BOTH = {POWER: (UINT, 50_000), TRAFFIC: (ULL, MANY)}


class Driver:
    """A driver under the binding with these answers by (field, scope), NOT_SUPPORTED for all other fields.

    ``asked`` has the fields of each call. If ``strict``, one unsupported field makes it refuse the call.
    """

    def __init__(self, answers: Mapping[Key, Answer], *, strict: bool = False, microseconds: int = 0) -> None:
        self.answers = dict(answers)
        self.asked: list[list[Key]] = []
        self._strict = strict
        self._microseconds = microseconds
        self.calls = installed(nvmlDeviceGetFieldValues=self)
        self.reader = FieldReader()

    def read(self) -> dict[Any, Any]:
        """Read the fields once more."""
        return read(self.calls, self.reader)

    def __call__(self, _handle: Any, count: Any, entries: Any) -> int:
        """Answer as the library function does."""
        keys = [(entry.fieldId, entry.scopeId) for entry in entries._obj[: count.value]]
        self.asked.append(keys)
        if self._strict and not self.answers.keys() >= set(keys):
            return INVALID
        for key, entry in zip(keys, entries._obj, strict=True):
            answer = self.answers.get(key, NOT_SUPPORTED)
            entry.latencyUsec = self._microseconds
            entry.nvmlReturn = answer if isinstance(answer, int) else 0
            if not isinstance(answer, int):
                entry.valueType, value = answer
                setattr(entry.value, MEMBERS[entry.valueType], value)
        return 0


def read(calls: Calls, reader: FieldReader | None = None) -> dict[Any, Any]:
    """Read the fields once."""
    readings: dict[Any, Any] = {}
    slow = KeptRows()
    (reader or FieldReader()).read(calls, GPU, HANDLE, readings, slow)
    add_kept(readings, slow)
    return readings


def read_from(driver: Function) -> dict[Any, Any]:
    """Read the fields of a driver once."""
    return read(installed(nvmlDeviceGetFieldValues=driver))


def read_one(field: int, kind: int, value: float) -> dict[Any, Any]:
    """Return the readings of a driver with one field."""
    return read_from(Driver({(field, 0): (kind, value)}))


def every_entry(kind: int, member: str, value: Callable[[int], int], *fields: int) -> Function:
    """Return a driver that writes these fields in its own way, and supports no others."""

    def values(_handle: Any, _count: Any, entries: Any) -> int:
        for entry in entries._obj:
            entry.nvmlReturn = 0 if entry.fieldId in fields else NOT_SUPPORTED
            entry.valueType = kind
            setattr(entry.value, member, value(entry.fieldId))
        return 0

    return values


TYPES = [(DOUBLE, 70.0), (UINT, 70), (ULONG, 2**40), (ULL, 2**50), (SLL, 2**40), (INT, 70), (USHORT, 70)]


@pytest.mark.parametrize(("kind", "value"), TYPES)
def test_each_value_type_is_read_from_its_union_member(kind: int, value: float):
    assert read_one(74, kind, value) == {"violations_nanoseconds": {"power": value}}


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (74, [(DOUBLE, math.nan), (DOUBLE, math.inf), (DOUBLE, 1e300), (SLL, -1), (INT, -5)]),
        (74, [(UINT, 2**32 - 1), (ULONG, 2**64 - 1), (ULL, 2**64 - 1), (99, 5)]),
        (82, [(UINT, 0), (UINT, 201), (UINT, 2**32 - 1)]),
        (193, [(INT, 300)]),
        (91, [(UINT, 4096)]),
        (144, [(UINT, 7)]),
        (230, [(UINT, 77)]),
        (3, [(DOUBLE, math.nan)]),
    ],
)
def test_implausible_values_and_unknown_types_are_unknown(field: int, values: list[tuple[int, float]]):
    for kind, value in values:
        member = MEMBERS[kind] if kind < len(MEMBERS) else "ullVal"
        assert read_from(every_entry(kind, member, lambda _, value=value: value, field)) == {}


@pytest.mark.parametrize("field", [197, 198])
def test_pcie_byte_counters_below_32_bits_are_unknown(field: int):
    """Some drivers count in 32 bits, which a busy link overflows in less than a second."""
    assert read_one(field, UINT, 2**32 - 2) == read_one(field, ULL, 2**32 - 1) == {}
    direction = {197: "pcie_transmit", 198: "pcie_receive"}[field]
    assert read_one(field, ULL, 2**32) == {"traffic_bytes": {direction: 2**32}}


@pytest.mark.parametrize("kind", [DOUBLE, UINT])
def test_memory_temperature_is_an_integer_whatever_the_type(kind: int):
    """One driver branch says that it is a double."""
    assert read_from(every_entry(kind, "uiVal", lambda _: 75, 82)) == {"memory_temperature_celsius": 75}


def test_ecc_totals_without_a_type_are_64_bit_integers():
    """Type 0 is that of a double."""
    readings = read_from(every_entry(0, "ullVal", lambda field: 2**33 + field, 3, 4, 5, 6))
    assert readings["ecc"]["errors"] == {
        ("corrected", "volatile"): 2**33 + 3,
        ("uncorrected", "volatile"): 2**33 + 4,
        ("corrected", "aggregate"): 2**33 + 5,
        ("uncorrected", "aggregate"): 2**33 + 6,
    }


@pytest.mark.parametrize(("kind", "value"), [(INT, -8), (UINT, 2**32 - 8)])
def test_a_temperature_margin_may_be_negative_in_any_type(kind: int, value: int):
    assert read_one(193, kind, value) == {"temperature_limits_celsius": {"shutdown": -8}}


VIOLATIONS = (
    "power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability", "application_clocks",
    "base_clocks", "software_thermal", "hardware_thermal", "power_brake",
)  # fmt: skip


def test_every_field_is_stored_in_its_place_of_the_model():
    fields = {(row.fields[0].number, row.fields[0].scope) for row in (*DUE, *link_rows(1, 1))}
    driver = Driver(dict.fromkeys(fields, (UINT, 1)) | {(82, 0): (UINT, 70), (STATE, 0): (UINT, 1)})
    assert read_from(driver) == {
        "power_parts_milliwatts": dict.fromkeys(("average", "instant", "module", "memory"), 1),
        "memory_temperature_celsius": 70,
        "temperature_limits_celsius": dict.fromkeys(("shutdown", "slowdown", "memory", "gpu"), 1),
        "violations_nanoseconds": dict.fromkeys(VIOLATIONS, 1),
        # One byte over PCIe may be 2^32 bytes and one.
        "traffic_bytes": {"nvlink_transmit": 1024, "nvlink_receive": 1024},
        "nvlink": {
            "links": 1,
            "megabytes_per_second": 1,
            "errors": dict.fromkeys(("crc_flit", "crc_data", "replay", "recovery"), 1),
            "packet_errors": dict.fromkeys(get_args(PacketError), 1),
            "recoveries": {"successful": 1, "failed": 1},
            # Mantissa 0, exponent 1.
            "bit_error_ratios": {"effective": 0.0, "symbol": 0.0},
        },
        "link_states": {0: 1},
        "c2c": {
            "links": 1,
            "states": {0: True},
            "speeds": {0: 1},
            "errors": dict.fromkeys(get_args(C2cError), 1),
        },
        "ecc": {
            "errors": {
                (severity, scope): 1
                for severity in ("corrected", "uncorrected")
                for scope in ("volatile", "aggregate")
            }
        },
        "repairs": {
            "retired_pages": {"single_bit": 1, "double_bit": 1},
            "retired_pages_pending": True,
            "remapped_rows": {"corrected": 1, "uncorrected": 1},
            "row_remap_pending": True,
            "row_remap_failure": True,
        },
        "recovery_action": "reset",
    }


ACTIONS = (
    "none", "reset", "reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset",
    "system_reboot",
)  # fmt: skip


def test_recovery_actions_are_named():
    for number, action in enumerate(ACTIONS):
        assert read_one(230, UINT, number) == {"recovery_action": action}


def test_a_failing_field_costs_its_reading_and_is_asked_again():
    driver = Driver({POWER: NO_PERMISSION, TRAFFIC: (ULL, MANY)})
    calls = driver.calls
    assert driver.read() == BYTES
    assert calls.records.errors == {(GPU, FIELDS, "NoPermission"): 1}
    assert calls.records.withheld(GPU)["power"] == "NoPermission"
    driver.answers[POWER] = (UINT, 50_000)
    assert driver.read()["power_parts_milliwatts"] == {"average": 50_000}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, INVALID, 13])
def test_an_unsupported_field_is_asked_once_until_that_is_forgotten(code: int):
    """It is no failure, and the reason of its group."""
    driver = Driver({POWER: code, TRAFFIC: (ULL, MANY), (230, 0): (UINT, 0)})
    calls = driver.calls
    for _ in range(3):
        driver.read()
    assert [POWER in asked for asked in driver.asked] == [True, False, False]
    assert [len(asked) for asked in driver.asked[1:]] == [2, 2]
    assert not calls.records.errors
    assert calls.records.withheld(GPU)["power"].startswith("not supported")
    assert "core" not in calls.records.withheld(GPU)
    assert calls.records.unsupported(GPU) == ()
    calls.records.forget_unsupported(GPU)
    driver.read()
    assert POWER in driver.asked[-1]


def test_an_entry_that_the_driver_did_not_write_is_unknown():
    def fill(_handle: Any, count: Any, entries: Any) -> int:
        for entry in entries._obj[: count.value]:
            if entry.fieldId == TRAFFIC[0]:
                entry.valueType, entry.value.ullVal = ULL, MANY
        return 0

    calls = installed(nvmlDeviceGetFieldValues=fill)
    assert read(calls) == BYTES
    assert not calls.records.errors


def test_an_entry_left_out_because_of_an_unsupported_field_is_asked_again():
    """Driver 580 skips some fields in a call with fields of missing C2C links."""
    driver = Driver({POWER: (UINT, 50_000), MARGIN: (INT, -8)})

    def fill(handle: Any, count: Any, entries: Any) -> int:
        fields = entries._obj[: count.value]
        margin = next((entry for entry in fields if (entry.fieldId, entry.scopeId) == MARGIN), None)
        before = margin and (margin.nvmlReturn, margin.valueType, margin.value.ullVal)
        code = driver(handle, count, entries)
        if margin and any(entry.fieldId == C2C_LINKS for entry in fields):
            margin.nvmlReturn, margin.valueType, margin.value.ullVal = before
        return code

    calls = installed(nvmlDeviceGetFieldValues=fill)
    reader = FieldReader()
    expected = WATTS | {"temperature_limits_celsius": {"shutdown": -8}}
    for _ in range(2):
        assert read(calls, reader) == expected
    assert [len(asked) for asked in driver.asked] == [len(DUE), 1, 2]
    assert not calls.records.errors


def test_a_field_without_a_value_now_is_asked_again():
    driver = Driver({POWER: 6, TRAFFIC: (ULL, MANY)})
    assert "power_parts_milliwatts" not in driver.read()
    driver.read()
    assert POWER in driver.asked[-1]
    assert not driver.calls.records.errors


def test_a_driver_that_refuses_the_whole_call_is_asked_field_by_field_once():
    driver = Driver(BOTH, strict=True)
    assert driver.read() == WATTS | BYTES
    assert [len(asked) for asked in driver.asked] == [len(DUE)] + [1] * len(DUE)
    assert driver.read() == WATTS | BYTES
    assert driver.asked[-1] == [POWER, TRAFFIC]
    assert len(driver.asked) == len(DUE) + 2
    assert not driver.calls.records.errors


def test_a_driver_that_refuses_every_field_is_asked_for_all_again():
    driver = Driver({}, strict=True)
    assert driver.read() == {}
    assert driver.calls.records.errors == {(GPU, FIELDS, "InvalidArgument"): 1}
    assert driver.calls.records.withheld(GPU) == dict.fromkeys({row.group for row in DUE}, "InvalidArgument")
    driver.answers = BOTH
    assert driver.read() == WATTS | BYTES


@pytest.mark.parametrize("functions", [{}, {FIELDS: answers(NOT_SUPPORTED)}, {FIELDS: answers(13)}])
def test_a_driver_without_the_call_withholds_each_group(functions: dict[str, Function]):
    calls = installed(**functions)
    reader = FieldReader()
    assert read(calls, reader) == {}
    assert read(calls, reader) == {}
    assert not calls.records.errors
    assert calls.records.unsupported(GPU) == (FIELDS,)
    reasons = calls.records.withheld(GPU)
    groups = {"power", "thermal", "throttling", "pcie", "nvlink", "ecc", "repairs", "c2c"}
    assert set(reasons) == groups
    assert all(reason.startswith("not supported") for reason in reasons.values())


def test_a_failing_call_is_one_error_and_the_reason_of_each_group():
    calls = installed(nvmlDeviceGetFieldValues=answers(UNKNOWN))
    assert read(calls) == {}
    assert calls.records.errors == {(GPU, FIELDS, "Unknown"): 1}
    groups = {row.group for row in DUE}
    assert calls.records.withheld(GPU) == dict.fromkeys(groups, "Unknown")
    calls.records.reasons.begin(GPU, slow=False)
    assert calls.records.withheld(GPU) == dict.fromkeys({row.group for row in SLOW_ROWS}, "Unknown")
    calls.records.reasons.begin(GPU, slow=True)
    assert calls.records.withheld(GPU) == {}


def test_cost_is_divided_by_group():
    """One call counts once, and its time is divided by readings."""
    driver = Driver({POWER: (UINT, 1), (186, 0): (UINT, 1), TRAFFIC: (ULL, 1)}, microseconds=5)
    calls = driver.calls
    driver.read()
    assert dict(calls.records.asked) == {"core": 1}
    assert sum(calls.records.driver_microseconds.values()) == 5 * len(DUE)
    calls.records.driver_microseconds.clear()
    calls.records.seconds.clear()
    driver.read()
    assert calls.records.driver_microseconds == {"power": 10, "pcie": 5}
    assert calls.records.seconds["power"] == pytest.approx(2 * calls.records.seconds["pcie"])
    assert calls.records.seconds["pcie"] > 0
    assert dict(calls.records.asked) == {"core": 2}


def test_a_gpu_without_links_has_no_link_counters():
    driver = Driver({LINKS: (UINT, 0)} | {(field, 0): (ULL, 0) for field in (38, 45, 52, 59, 90)})
    assert read_from(driver) == {"nvlink": {"links": 0}}
    assert len(driver.asked) == 1


def test_link_fields_are_part_of_the_one_call_once_the_number_of_links_is_known():
    answers = {LINKS: (UINT, 2), (STATE, 0): (UINT, 1), (STATE, 1): (UINT, 0), (90, 0): (UINT, 25_781)}
    driver = Driver(answers)
    for calls_so_far in (3, 4, 5):
        readings = driver.read()
        assert readings["nvlink"] == {"links": 2, "megabytes_per_second": 25_781}
        assert readings["link_states"] == {0: 1, 1: 0}
        assert len(driver.asked) == calls_so_far
    driver.reader.forget()
    driver.read()
    assert len(driver.asked) == 7


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({(138, ALL_LINKS): (ULL, 3), (202, ALL_LINKS): (ULL, 999)}, 3 * 1024),
        ({(202, ALL_LINKS): (ULL, 4096)}, 4096),
    ],
)
def test_nvlink_traffic_comes_from_whichever_counters_exist(answers: dict[Key, Answer], expected: int):
    """Those in KiB if any, else those in bytes of newer boards."""
    driver = Driver({LINKS: (UINT, 1)} | answers)
    for _ in range(2):
        assert driver.read()["traffic_bytes"] == {"nvlink_transmit": expected}


def test_a_failing_counter_is_not_replaced_by_one_that_counts_differently():
    driver = Driver({LINKS: (UINT, 1), (138, ALL_LINKS): UNKNOWN, (202, ALL_LINKS): (ULL, 999)})
    assert "traffic_bytes" not in read_from(driver)


NUMBERS = {
    "POWER_INSTANT": 186, "MEMORY_TEMP": 82, "TEMPERATURE_SHUTDOWN_TLIMIT": 193, "NVLINK_GET_STATE": STATE,
    "PERF_POLICY_TOTAL_BASE_CLOCKS": 81, "PCIE_COUNT_TX_BYTES": 197, "NVLINK_LINK_COUNT": 91,
    "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": 45, "NVLINK_THROUGHPUT_DATA_RX": 139, "NVLINK_COUNT_RCV_BYTES": 204,
    "NVLINK_COUNT_LINK_RECOVERY_EVENTS": 215, "ECC_DBE_AGG_TOTAL": 6, "RETIRED_PENDING": 31,
    "REMAPPED_FAILURE": 145, "GET_GPU_RECOVERY_ACTION": 230,
}  # fmt: skip


def test_field_numbers_are_those_of_the_binding():
    assert {name: getattr(pynvml, f"NVML_FI_DEV_{name}") for name in NUMBERS} == NUMBERS
    assert set(NUMBERS.values()) <= {field.number for row in (*DUE, *link_rows(1)) for field in row.fields}


def test_entries_are_unpacked_as_the_binding_lays_them_out():
    entry = pynvml.c_nvmlFieldValue_t(
        fieldId=1, scopeId=2, timestamp=3, latencyUsec=4, valueType=5, nvmlReturn=6
    )
    entry.value.ullVal = 7
    assert ENTRY.unpack(bytes(entry)) == (1, 2, 3, 4, 5, 6, bytes([7]) + bytes(7))
