"""Readings of a GPU that are no fields: each call, its answer, and how often it is made."""

import re
from typing import Any

import pynvml
import pytest

from exporter.metrics import GROUPS
from exporter.model import Bar1, Ecc, EncoderSessions, PcieLink, Repairs
from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.device_reader import DeviceReader
from tests.core.hardware.making import LARGE, SMALL, Clock, Driver, gpu
from tests.core.hardware.tiny import HANDLE, Function, answers, fills, installed, writes

GPU = "GPU-a"
NOTHING, NOTHING_LONG = 2**32 - 1, 2**64 - 1
NOT_SUPPORTED, INVALID, NO_PERMISSION = 3, 2, 4
LOCATION = "nvmlDeviceGetMemoryErrorCounter"


def read(calls: Calls, reader: DeviceReader | None = None) -> dict[str, Any]:
    """Read one GPU of a driver of a few functions."""
    return (reader or DeviceReader()).read(calls, GPU, HANDLE)[0]


def several(*values: int) -> Function:
    """Return a function that writes several numbers by reference."""

    def function(*arguments: Any) -> int:
        for reference, value in zip(arguments[-len(values) :], values, strict=True):
            reference._obj.value = value
        return 0

    return function


def by_kind(values: dict[int, int], code: int = NOT_SUPPORTED) -> Function:
    """Return a function that writes these values by kind, and returns a code for other kinds."""

    def function(_handle: Any, kind: Any, reference: Any) -> int:
        number = getattr(kind, "value", kind)
        if number not in values:
            return code
        reference._obj.value = values[number]
        return 0

    return function


@pytest.mark.parametrize(
    ("name", "function", "expected"),
    [
        ("nvmlDeviceGetBAR1MemoryInfo", fills(bar1Total=256, bar1Used=5), {"bar1": Bar1(total=256, used=5)}),
        ("nvmlDeviceGetEncoderUtilization", several(40, 167_000), {"engine_percent": {"encoder": 40}}),
        ("nvmlDeviceGetDecoderUtilization", several(41, 167_000), {"engine_percent": {"decoder": 41}}),
        ("nvmlDeviceGetJpgUtilization", several(42, 167_000), {"engine_percent": {"jpeg": 42}}),
        ("nvmlDeviceGetOfaUtilization", several(43, 167_000), {"engine_percent": {"ofa": 43}}),
        (
            "nvmlDeviceGetEncoderStats",
            several(2, 30, 900),
            {"encoder_sessions": EncoderSessions(count=2, average_fps=30, average_latency_microseconds=900)},
        ),
        ("nvmlDeviceGetEnforcedPowerLimit", writes(300), {"power_limits_milliwatts": {"enforced": 300}}),
        ("nvmlDeviceGetPowerManagementLimit", writes(310), {"power_limits_milliwatts": {"configured": 310}}),
        (
            "nvmlDeviceGetApplicationsClock",
            by_kind({0: 1410}),
            {"clocks_application_megahertz": {"graphics": 1410}},
        ),
        ("nvmlDeviceGetCurrentClocksEventReasons", writes(0x44), {"clock_events": 0x44}),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", writes(0x8), {"clock_events": 0x8}),
        ("nvmlDeviceGetCurrPcieLinkGeneration", writes(4), {"pcie_link": PcieLink(generation=4)}),
        ("nvmlDeviceGetCurrPcieLinkWidth", writes(16), {"pcie_link": PcieLink(width=16)}),
        ("nvmlDeviceGetEccMode", several(1, 0), {"ecc": Ecc(enabled=True, pending=False)}),
        (
            "nvmlDeviceGetRowRemapperHistogram",
            fills(max=640, high=1, partial=2, low=3, none=4),
            {"repairs": Repairs(row_banks={"max": 640, "high": 1, "partial": 2, "low": 3, "none": 4})},
        ),
        ("nvmlDeviceGetPerformanceState", writes(8), {"performance_state": 8}),
        ("nvmlDeviceGetPersistenceMode", writes(1), {"persistence": True}),
        ("nvmlDeviceGetAccountingMode", writes(0), {"accounting": False}),
        ("nvmlDeviceGetDisplayActive", writes(0), {"display_active": False}),
        ("nvmlDeviceGetComputeMode", writes(2), {"compute_mode": "prohibited"}),
        ("nvmlDeviceGetMarginTemperature", fills(marginTemperature=-3), {"temperature_margin_celsius": -3}),
        ("nvmlDeviceGetFanSpeed", writes(104), {"fan_percent": 104}),
    ],
)
def test_each_call_fills_its_reading(name: str, function: Function, expected: dict[str, Any]):
    # Fixed readings are read of a GPU that has others.
    calls = installed(**{"nvmlDeviceGetPowerUsage": writes(250), name: function})
    assert read(calls) == {"power_milliwatts": 250, **expected}
    assert not calls.records.errors


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("nvmlDeviceGetBAR1MemoryInfo", fills(bar1Total=0, bar1Used=0)),
        ("nvmlDeviceGetBAR1MemoryInfo", fills(bar1Total=10, bar1Used=NOTHING_LONG)),
        ("nvmlDeviceGetEncoderUtilization", several(101, 0)),
        ("nvmlDeviceGetEncoderStats", several(NOTHING, 0, 0)),
        ("nvmlDeviceGetPowerUsage", writes(NOTHING)),
        ("nvmlDeviceGetTotalEnergyConsumption", writes(NOTHING_LONG)),
        ("nvmlDeviceGetFanSpeed", writes(NOTHING)),
        ("nvmlDeviceGetPerformanceState", writes(pynvml.NVML_PSTATE_UNKNOWN)),
        ("nvmlDeviceGetPersistenceMode", writes(7)),
        ("nvmlDeviceGetComputeMode", writes(9)),
        ("nvmlDeviceGetMarginTemperature", fills(marginTemperature=250)),
        ("nvmlDeviceGetEccMode", several(5, 5)),
        ("nvmlDeviceGetCurrentClocksEventReasons", writes(NOTHING_LONG)),
        (LOCATION, writes(NOTHING_LONG)),
    ],
)
def test_implausible_answers_are_absent(name: str, function: Function):
    assert read(installed(**{name: function})) == {}


def test_the_new_name_of_clock_events_is_asked_first():
    """The old one is asked of drivers that lack the new one only."""
    new, old = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    assert read(installed(**{new: writes(1), old: writes(2)})) == {"clock_events": 1}
    assert read(installed(**{new: answers(NO_PERMISSION), old: writes(2)})) == {}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, INVALID])
def test_ecc_errors_by_location_are_asked_where_a_board_has_them(code: int):
    """A missing location is no failure, and is asked once."""
    asked = []

    def counter(_handle: Any, severity: Any, scope: Any, location: Any, reference: Any) -> int:
        asked.append((severity.value, scope.value, location.value))
        if location.value not in {2, 7}:
            return code
        reference._obj.value = 100 * severity.value + 10 * scope.value + location.value
        return 0

    calls = installed(**{LOCATION: counter})
    reader = DeviceReader()
    for _ in range(3):
        readings = read(calls, reader)
    assert readings == {
        "ecc": Ecc(
            by_location={
                ("corrected", "volatile", "dram"): 2,
                ("corrected", "volatile", "sram"): 7,
                ("corrected", "aggregate", "dram"): 12,
                ("corrected", "aggregate", "sram"): 17,
                ("uncorrected", "volatile", "dram"): 102,
                ("uncorrected", "volatile", "sram"): 107,
                ("uncorrected", "aggregate", "dram"): 112,
                ("uncorrected", "aggregate", "sram"): 117,
            }
        )
    }
    assert len(asked) == 2 * 2 * (8 + 2 + 2)
    assert not calls.records.errors
    assert LOCATION not in calls.records.unsupported(GPU)


def test_a_call_is_unsupported_if_it_answers_for_no_argument():
    calls = installed(**{LOCATION: answers(NOT_SUPPORTED), "nvmlDeviceGetClockInfo": by_kind({0: 210})})
    read(calls)
    assert LOCATION in calls.records.unsupported(GPU)
    assert "nvmlDeviceGetClockInfo" not in calls.records.unsupported(GPU)


FIXED = {
    "nvmlDeviceGetPowerManagementDefaultLimit": writes(300),
    "nvmlDeviceGetPowerManagementLimitConstraints": several(100, 320),
    "nvmlDeviceGetTemperatureThreshold": by_kind({0: 95, 1: 92, 2: 105, 3: 85}),
    "nvmlDeviceGetMaxClockInfo": by_kind({0: 1410, 1: 1410, 2: 1215}, INVALID),
    "nvmlDeviceGetMaxPcieLinkGeneration": writes(5),
    "nvmlDeviceGetMaxPcieLinkWidth": writes(16),
}


def counted(functions: dict[str, Function], asked: list[str]) -> dict[str, Function]:
    """Return functions that add their name to ``asked`` at each call."""

    def noting(name: str, function: Function) -> Function:
        def call(*arguments: Any) -> int:
            asked.append(name)
            return function(*arguments)

        return call

    return {name: noting(name, function) for name, function in functions.items()}


def test_fixed_facts_are_read_once():
    asked: list[str] = []
    calls = installed(nvmlDeviceGetEnforcedPowerLimit=writes(250), **counted(FIXED, asked))
    reader = DeviceReader()
    for _ in range(3):
        assert read(calls, reader) == {
            "power_limits_milliwatts": {"enforced": 250, "default": 300, "min": 100, "max": 320},
            "temperature_thresholds_celsius": {"shutdown": 95, "slowdown": 92, "memory": 105, "gpu": 85},
            "clocks_max_megahertz": {"graphics": 1410, "sm": 1410, "memory": 1215},
            "pcie_link": PcieLink(max_generation=5, max_width=16),
        }
    assert len(asked) == 1 + 1 + 4 + 4 + 1 + 1
    assert not calls.records.errors
    reader.forget()
    read(calls, reader)
    assert asked.count("nvmlDeviceGetMaxPcieLinkWidth") == 2


def test_a_failed_fact_is_asked_again_alone():
    asked: list[str] = []
    failing = FIXED | {"nvmlDeviceGetMaxPcieLinkWidth": answers(NO_PERMISSION)}
    calls = installed(nvmlDeviceGetPowerUsage=writes(1), **counted(failing, asked))
    reader = DeviceReader()
    for _ in range(3):
        assert read(calls, reader)["pcie_link"] == PcieLink(max_generation=5)
    assert asked.count("nvmlDeviceGetMaxPcieLinkWidth") == 3
    assert asked.count("nvmlDeviceGetMaxPcieLinkGeneration") == 1


def test_remembered_facts_do_not_keep_a_gpu_up():
    power = [0]

    def usage(*arguments: Any) -> int:
        return power[0] or writes(5)(*arguments)

    calls = installed(nvmlDeviceGetPowerUsage=usage, **FIXED)
    reader = DeviceReader()
    assert "pcie_link" in read(calls, reader)
    power[0] = 16
    assert read(calls, reader) == {}


def test_pcie_throughput_is_read_on_request_only():
    """It takes long; the driver's KB is 1024 bytes."""
    asked: list[str] = []
    slow = {"nvmlDeviceGetPcieThroughput": by_kind({0: 10, 1: 20})}
    assert read(installed(**counted(slow, asked))) == {}
    assert asked == []
    calls = installed(**counted(slow, asked))
    assert read(calls, DeviceReader(pcie_throughput=True)) == {
        "pcie_throughput": {"pcie_transmit": 10 * 1024, "pcie_receive": 20 * 1024}
    }
    assert len(asked) == 2
    assert calls.records.asked["pcie_throughput"] == 2


@pytest.mark.parametrize(
    ("links", "states", "active", "expected"),
    [
        (2, {0: 1, 1: 0}, frozenset({0}), 1),
        (2, {0: 1}, None, None),
        (0, {}, frozenset(), 0),
    ],
)
def test_link_states_come_from_a_call_where_there_is_no_field(
    links: int, states: dict[int, int], active: frozenset[int] | None, expected: int | None
):
    """One unknown link makes the number of active ones unknown."""

    def values(_handle: Any, _count: Any, entries: Any) -> int:
        for entry in entries._obj:
            entry.nvmlReturn = 0 if entry.fieldId == 91 else NOT_SUPPORTED
            entry.valueType, entry.value.uiVal = 1, links
        return 0

    calls = installed(nvmlDeviceGetFieldValues=values, nvmlDeviceGetNvLinkState=by_kind(states))
    readings, links_up = DeviceReader().read(calls, GPU, HANDLE)
    assert links_up == active
    assert (readings["nvlink"].links, readings["nvlink"].active) == (links, expected)


def test_every_call_has_a_known_group(driver: Driver):
    driver.become(gpu("a"), gpu("b", SMALL, LARGE))
    driver.configure(pcie_throughput=True)
    readings = driver.sweep()
    assert set(driver.sweeper.calls.records.asked) <= set(GROUPS)
    assert set(driver.sweeper.calls.records.seconds) <= set(GROUPS)
    assert set(driver.sweeper.calls.records.driver_microseconds) <= set(GROUPS)
    assert all(set(reading.withheld) <= set(GROUPS) for reading in readings.values())
    assert {"core", "memory", "power", "processes", "pcie_throughput"} <= set(
        driver.sweeper.calls.records.asked
    )


def test_calls_are_counted_for_their_own_group(driver: Driver):
    driver.become(gpu("a"), gpu("b"), gpu("c"))
    for sweeps in (1, 2):
        driver.sweep()
        assert driver.sweeper.calls.records.asked["memory"] == 3 * sweeps
        # The shares of the whole GPU, and those of its processes.
        assert driver.sweeper.calls.records.asked["utilization"] == 2 * 3 * sweeps


def test_a_failure_is_the_reason_of_its_group():
    calls = installed(nvmlDeviceGetPowerUsage=answers(NO_PERMISSION), nvmlDeviceGetPersistenceMode=writes(1))
    read(calls)
    reasons = calls.records.withheld(GPU)
    assert reasons["power"] == "NoPermission"
    assert reasons["bar1"].startswith("not supported")


def test_fields_are_one_call_per_gpu_and_sweep(driver: Driver):
    driver.become(gpu("a"), gpu("b", SMALL))
    driver.sweep()
    before = [driver.asked("nvmlDeviceGetFieldValues", name) for name in ("GPU-a", "GPU-b")]
    for _ in range(3):
        driver.sweep()
    after = [driver.asked("nvmlDeviceGetFieldValues", name) for name in ("GPU-a", "GPU-b")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 3]


def test_facts_and_refusals_cost_no_calls_after_the_first_sweep(driver: Driver):
    clock = Clock()
    driver.configure(clock=clock.monotonic)
    counts = []
    for _ in range(4):
        before = driver.library.calls.copy()
        driver.sweep()
        # Too short for what is not read in every sweep.
        clock.now += 2.0
        made = driver.library.calls - before
        # A thread of its own waits for events, again and again.
        counts.append(made.total() - made["nvmlEventSetWait_v2", ""])
    assert counts[0] > counts[1] == counts[2] == counts[3]


def test_no_sweep_calls_a_function_that_changes_a_gpu(driver: Driver):
    driver.become(gpu("a"), gpu("b", SMALL, LARGE))
    driver.configure(pcie_throughput=True)
    for _ in range(2):
        driver.sweep()
    # Sets of events are sets.
    names = {name for name, _ in driver.library.calls if not name.startswith("nvmlEvent")}
    assert names
    # So are the settings of confidential computing.
    names.discard("nvmlSystemGetConfComputeSettings")
    assert not [name for name in names if re.search("Set|Clear|Reset|Modify|Create|Destroy|Remove", name)]
