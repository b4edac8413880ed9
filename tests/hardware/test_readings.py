"""What a GPU says beside its numbered fields: each call, what its answer means, and how often it is asked."""

import re
from typing import Any

import pynvml
import pytest

from exporter.metrics import GROUPS
from exporter.model import Bar1, Ecc, EncoderSessions, PcieLink, Repairs
from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.device_reader import DeviceReader
from exporter.nvml.sweep import Sweeper
from tests.hardware.making import LARGE, SMALL, Clock, Driver, gpu, nvml, sweep
from tests.hardware.tiny import HANDLE, Function, answers, fills, installed, writes

GPU = "GPU-a"
NOTHING, NOTHING_LONG = 2**32 - 1, 2**64 - 1
NOT_SUPPORTED, INVALID, NO_PERMISSION = 3, 2, 4
LOCATION = "nvmlDeviceGetMemoryErrorCounter"


def read(calls: Calls, reader: DeviceReader | None = None) -> dict[str, Any]:
    """Read one GPU of a driver of a few functions."""
    return (reader or DeviceReader()).read(calls, GPU, HANDLE)[0]


def several(*values: int) -> Function:
    """Make a function that writes several numbers by reference."""

    def function(*arguments: Any) -> int:
        for reference, value in zip(arguments[-len(values) :], values, strict=True):
            reference._obj.value = value
        return 0

    return function


def by_kind(told: dict[int, int], code: int = NOT_SUPPORTED) -> Function:
    """Make a function that tells a number for these kinds, and answers with a code for the others."""

    def function(_handle: Any, kind: Any, reference: Any) -> int:
        number = getattr(kind, "value", kind)
        if number not in told:
            return code
        reference._obj.value = told[number]
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
def test_what_each_call_tells(name: str, function: Function, expected: dict[str, Any]):
    """A driver of this one function tells this one reading, and nothing else."""
    calls = installed(**{name: function})
    assert read(calls) == expected
    assert not calls.errors


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
def test_what_cannot_be_is_not_told(name: str, function: Function):
    """Sentinels, shares past the whole and numbers without a meaning are absent: the GPU told nothing."""
    assert read(installed(**{name: function})) == {}


def test_the_new_name_of_clock_events_is_asked_first():
    """Both names tell the same mask; the old one is asked of drivers that lack the new one only."""
    new, old = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    assert read(installed(**{new: writes(1), old: writes(2)})) == {"clock_events": 1}
    assert read(installed(**{new: answers(NO_PERMISSION), old: writes(2)})) == {}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, INVALID])
def test_ecc_errors_by_the_locations_that_a_board_has(code: int):
    """The others are asked once; a location that is not there is no failure, whatever the driver calls it."""
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
        found = read(calls, reader)
    assert found == {
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
    assert not calls.errors
    assert LOCATION not in calls.unsupported(GPU)


def test_a_call_is_unsupported_when_it_can_tell_nothing():
    """One that tells some of its many things is not counted among what this GPU lacks."""
    calls = installed(**{LOCATION: answers(NOT_SUPPORTED), "nvmlDeviceGetClockInfo": by_kind({0: 210})})
    read(calls)
    assert LOCATION in calls.unsupported(GPU)
    assert "nvmlDeviceGetClockInfo" not in calls.unsupported(GPU)


FIXED = {
    "nvmlDeviceGetPowerManagementDefaultLimit": writes(300),
    "nvmlDeviceGetPowerManagementLimitConstraints": several(100, 320),
    "nvmlDeviceGetTemperatureThreshold": by_kind({0: 95, 1: 92, 2: 105, 3: 85}),
    "nvmlDeviceGetMaxClockInfo": by_kind({0: 1410, 1: 1410, 2: 1215}, INVALID),
    "nvmlDeviceGetMaxPcieLinkGeneration": writes(5),
    "nvmlDeviceGetMaxPcieLinkWidth": writes(16),
}


def counted(functions: dict[str, Function], asked: list[str]) -> dict[str, Function]:
    """Note each call of these functions by its name."""

    def noting(name: str, function: Function) -> Function:
        def call(*arguments: Any) -> int:
            asked.append(name)
            return function(*arguments)

        return call

    return {name: noting(name, function) for name, function in functions.items()}


def test_what_cannot_change_is_asked_once():
    """It is in every reading, beside what was asked now, and asked again of another driver."""
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
    assert not calls.errors
    reader.forget()
    read(calls, reader)
    assert asked.count("nvmlDeviceGetMaxPcieLinkWidth") == 2


def test_what_failed_is_asked_again_alone():
    """A fact that could not be told at first comes later; the others are not asked for again."""
    asked: list[str] = []
    failing = FIXED | {"nvmlDeviceGetMaxPcieLinkWidth": answers(NO_PERMISSION)}
    calls = installed(nvmlDeviceGetPowerUsage=writes(1), **counted(failing, asked))
    reader = DeviceReader()
    for _ in range(3):
        assert read(calls, reader)["pcie_link"] == PcieLink(max_generation=5)
    assert asked.count("nvmlDeviceGetMaxPcieLinkWidth") == 3
    assert asked.count("nvmlDeviceGetMaxPcieLinkGeneration") == 1


def test_what_is_only_remembered_keeps_no_gpu_up():
    """A GPU that tells nothing now is told nothing of, however much is known of it."""
    power = [0]

    def usage(*arguments: Any) -> int:
        return power[0] or writes(5)(*arguments)

    calls = installed(nvmlDeviceGetPowerUsage=usage, **FIXED)
    reader = DeviceReader()
    assert "pcie_link" in read(calls, reader)
    power[0] = 16
    assert read(calls, reader) == {}


def test_throughput_is_asked_on_request_only():
    """It keeps the sweep waiting; what the driver calls a KB counts 1024 bytes."""
    asked: list[str] = []
    slow = {"nvmlDeviceGetPcieThroughput": by_kind({0: 10, 1: 20})}
    assert read(installed(**counted(slow, asked))) == {}
    assert asked == []
    calls = installed(**counted(slow, asked))
    assert read(calls, DeviceReader(pcie_throughput=True)) == {
        "pcie_throughput": {"pcie_transmit": 10 * 1024, "pcie_receive": 20 * 1024}
    }
    assert len(asked) == 2
    assert calls.asked["pcie_throughput"] == 2


def test_the_flag_reaches_the_reading(driver: Driver):
    """A sweep asks for throughput where it was made to, and otherwise not at all."""
    driver.library.nvmlDeviceGetPcieThroughput = by_kind({0: 3, 1: 4})
    [plain] = Sweeper(nvml(driver.library)).sweep()
    assert plain.pcie_throughput == {}
    [asked] = Sweeper(nvml(driver.library, pcie_throughput=True)).sweep()
    assert asked.pcie_throughput == {"pcie_transmit": 3 * 1024, "pcie_receive": 4 * 1024}


@pytest.mark.parametrize(
    ("links", "states", "active", "told"),
    [
        (2, {0: 1, 1: 0}, frozenset({0}), 1),
        (2, {0: 1}, None, None),
        (0, {}, frozenset(), 0),
    ],
)
def test_the_state_of_links_comes_from_a_call_where_there_is_no_field(
    links: int, states: dict[int, int], active: frozenset[int] | None, told: int | None
):
    """An older driver has a call for each link; where one link is not told, how many are active is not."""

    def values(_handle: Any, _count: Any, entries: Any) -> int:
        for entry in entries._obj:
            entry.nvmlReturn = 0 if entry.fieldId == 91 else NOT_SUPPORTED
            entry.valueType, entry.value.uiVal = 1, links
        return 0

    calls = installed(nvmlDeviceGetFieldValues=values, nvmlDeviceGetNvLinkState=by_kind(states))
    found, links_up = DeviceReader().read(calls, GPU, HANDLE)
    assert links_up == active
    assert (found["nvlink"].links, found["nvlink"].active) == (links, told)


def test_every_call_has_a_group_that_there_is(driver: Driver):
    """Cost and reasons are told by the groups of the metrics, and by no other word."""
    driver.become(gpu("a"), gpu("b", SMALL, LARGE))
    sweeper = Sweeper(nvml(driver.library, pcie_throughput=True))
    readings = sweep(sweeper)
    assert set(sweeper.calls.asked) <= set(GROUPS)
    assert set(sweeper.calls.seconds) <= set(GROUPS)
    assert set(sweeper.calls.driver_microseconds) <= set(GROUPS)
    assert all(set(reading.withheld) <= set(GROUPS) for reading in readings.values())
    assert {"core", "memory", "power", "processes", "modes"} <= set(sweeper.calls.asked)


def test_calls_are_counted_with_their_own_group(driver: Driver):
    """What finds a GPU is no part of what was read of the one before it."""
    driver.become(gpu("a"), gpu("b"), gpu("c"))
    sweeper = Sweeper(nvml(driver.library))
    for sweeps in (1, 2):
        sweep(sweeper)
        assert sweeper.calls.asked["memory"] == 3 * sweeps
        # The shares of the whole GPU, and those of its processes.
        assert sweeper.calls.asked["utilization"] == 2 * 3 * sweeps


def test_a_failure_is_the_reason_of_its_group():
    """What cannot be told says why, by group, and only for as long as it cannot."""
    calls = installed(nvmlDeviceGetPowerUsage=answers(NO_PERMISSION), nvmlDeviceGetPersistenceMode=writes(1))
    calls.begin(GPU)
    read(calls)
    reasons = calls.withheld(GPU)
    assert reasons["power"] == "NoPermission"
    assert reasons["bar1"].startswith("not supported")


def test_the_numbered_fields_are_one_call_per_gpu_and_sweep(driver: Driver):
    """Once a GPU is known, a sweep asks for all its fields at once."""
    driver.become(gpu("a"), gpu("b", SMALL))
    sweeper = Sweeper(nvml(driver.library))
    sweep(sweeper)
    before = [driver.asked("nvmlDeviceGetFieldValues", name) for name in ("GPU-a", "GPU-b")]
    for _ in range(3):
        sweep(sweeper)
    after = [driver.asked("nvmlDeviceGetFieldValues", name) for name in ("GPU-a", "GPU-b")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [3, 3]


def test_a_sweep_settles_to_what_the_gpu_has(driver: Driver):
    """From the second sweep on each call is one that answered before: facts and refusals cost nothing."""
    clock = Clock()
    sweeper = Sweeper(nvml(driver.library, clock=clock.monotonic))
    counts = []
    for _ in range(4):
        before = driver.library.calls.copy()
        sweep(sweeper)
        # Too short for what is not read in every sweep.
        clock.now += 2.0
        made = driver.library.calls - before
        # A thread of its own waits for events, again and again.
        counts.append(made.total() - made["nvmlEventSetWait_v2", ""])
    assert counts[0] > counts[1] == counts[2] == counts[3]


def test_what_was_not_supported_comes_back_when_the_gpu_is_cut_differently(driver: Driver):
    """Fields and facts that a cut GPU refuses are asked anew once it is whole."""
    cut = {"value": True}
    real = driver.library.nvmlDeviceGetFieldValues

    def values(handle: Any, count: Any, entries: Any) -> int:
        code = real(handle, count, entries)
        for entry in entries._obj:
            if entry.fieldId == 143:
                entry.nvmlReturn = NOT_SUPPORTED if cut["value"] else 0
                entry.valueType, entry.value.uiVal = 1, 2
        return int(code)

    driver.library.nvmlDeviceGetFieldValues = values
    driver.become(gpu("a", SMALL))
    sweeper = Sweeper(nvml(driver.library))
    sweep(sweeper)
    cut["value"] = False
    unasked = sweep(sweeper)["GPU-a"].repairs
    assert unasked is None or "uncorrected" not in unasked.remapped_rows
    driver.become(gpu("a", mig={"enabled": False}))
    sweep(sweeper)
    assert sweep(sweeper)["GPU-a"].repairs.remapped_rows["uncorrected"] == 2


def test_nothing_is_ever_set(driver: Driver):
    """Of all that a sweep asks, with everything that can be asked for, nothing changes a GPU."""
    driver.become(gpu("a"), gpu("b", SMALL, LARGE))
    sweeper = Sweeper(nvml(driver.library, pcie_throughput=True))
    for _ in range(2):
        sweep(sweeper)
    # Sets of events are sets.
    names = {name for name, _ in driver.library.calls if not name.startswith("nvmlEvent")}
    assert names
    # So are the settings of confidential computing.
    names.discard("nvmlSystemGetConfComputeSettings")
    assert not [name for name in names if re.search("Set|Clear|Reset|Modify|Create|Destroy|Remove", name)]
