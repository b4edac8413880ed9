"""The fake driver on whole GPUs, through the unmodified binding."""

import ctypes
from collections.abc import Callable

import pynvml
import pytest

from tests.demo.making import MIB, Bench, code_of, gpu, listed, made, pod

BUSY = {"memory": "4 GiB", "load": {"high": 50}}
Put = Callable[..., Bench]


@pytest.fixture
def node(bench: Put) -> Bench:
    """Two GPUs; on the first a busy process of a pod."""
    board = gpu(
        count=2, fan=30, serial="S-{n}", memory_temperature=True, pcie_replays=7, compute_mode="prohibited"
    )
    return bench(made(gpus=[board], pods=[pod("p", BUSY | {"device": "{gpu:0}"})]))


def first() -> object:
    """Return the handle of the first GPU."""
    return pynvml.nvmlDeviceGetHandleByIndex(0)


class TemperatureV1(ctypes.Structure):
    """The record of nvmlDeviceGetTemperatureV, which older bindings do not have."""

    _fields_ = (("version", ctypes.c_uint), ("sensorType", ctypes.c_int), ("temperature", ctypes.c_int))


def versioned_temperature(node: Bench, handle: object, version: int) -> tuple[int, int]:
    """Return the code and the temperature of the newer call."""
    record = TemperatureV1(version=version)
    return node.nvml.nvmlDeviceGetTemperatureV(handle, ctypes.byref(record)), record.temperature


def test_nothing_answers_before_init_and_after_the_last_shutdown(bench: Put):
    bench(made(), opened=False)
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 1
    pynvml.nvmlShutdown()
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    assert code_of(pynvml.nvmlShutdown) == pynvml.NVML_ERROR_UNINITIALIZED


def test_the_driver_has_versions_and_texts_of_errors(node: Bench):
    assert pynvml.nvmlSystemGetDriverVersion() == "550.90.07"
    assert pynvml.nvmlSystemGetNVMLVersion() == "12.550.90.07"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 12040
    assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 12040
    assert pynvml.nvmlErrorString(pynvml.NVML_ERROR_GPU_IS_LOST) == "Gpu is lost"
    assert pynvml.nvmlErrorString(0) == "Success"
    assert pynvml.nvmlErrorString(4711) == "Unknown code 4711"
    assert node.nvml.calls["nvmlSystemGetDriverVersion", ""] == 1


@pytest.mark.usefixtures("node")
def test_an_index_always_returns_the_same_handle():
    handle, other = (pynvml.nvmlDeviceGetHandleByIndex(1) for _ in range(2))
    assert pynvml.nvmlDeviceGetCount() == 2
    assert ctypes.cast(other, ctypes.c_void_p).value == ctypes.cast(handle, ctypes.c_void_p).value
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 2) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert code_of(pynvml.nvmlDeviceGetUUID, None) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_gpu_has_its_identity(node: Bench):
    board, handle = node.scenario.gpus[1], pynvml.nvmlDeviceGetHandleByIndex(1)
    assert pynvml.nvmlDeviceGetUUID(handle) == board.uuid
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA Test"
    assert pynvml.nvmlDeviceGetMinorNumber(handle) == 1
    assert pynvml.nvmlDeviceGetSerial(handle) == "S-1"
    assert pynvml.nvmlDeviceGetArchitecture(handle) == 7
    assert pynvml.nvmlDeviceGetComputeMode(handle) == pynvml.NVML_COMPUTEMODE_PROHIBITED
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    assert (info.busId, info.busIdLegacy) == ("00000000:0F:00.0", "0000:0F:00.0")
    assert (info.domain, info.bus, info.device) == (0, 0x0F, 0)


def test_the_old_form_of_a_pci_address_is_short(node: Bench):
    info = pynvml.nvmlPciInfo_v2_t()
    assert node.nvml.nvmlDeviceGetPciInfo_v2(first(), ctypes.byref(info)) == 0
    assert info.busId == "0000:07:00.0"


@pytest.mark.usefixtures("node")
def test_memory_adds_up_in_both_versions():
    """Used memory excludes reserved memory in the second version and includes it in the first."""
    new = pynvml.nvmlDeviceGetMemoryInfo(first(), version=pynvml.nvmlMemory_v2)
    old = pynvml.nvmlDeviceGetMemoryInfo(first())
    assert (new.total, new.reserved, new.used) == (16384 * MIB, 512 * MIB, (4096 + 100) * MIB)
    assert new.total == new.used + new.free + new.reserved
    assert (old.total, old.used, old.free) == (new.total, new.used + new.reserved, new.free)
    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, first(), 1) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    bar = pynvml.nvmlDeviceGetBAR1MemoryInfo(first())
    assert bar.bar1Total == bar.bar1Used + bar.bar1Free == 256 * MIB


def test_all_readings_follow_the_load(node: Bench):
    handle, idle = first(), pynvml.nvmlDeviceGetHandleByIndex(1)
    node.step(1)
    node.step(200)
    assert pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 50
    assert pynvml.nvmlDeviceGetUtilizationRates(idle).gpu == 0
    assert pynvml.nvmlDeviceGetEncoderUtilization(handle) == [0, 167_000]
    assert pynvml.nvmlDeviceGetDecoderUtilization(handle) == [0, 167_000]
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 70_000
    assert pynvml.nvmlDeviceGetPowerUsage(idle) == 20_000
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) == 120_000
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 120_000
    assert pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU) == 51
    assert versioned_temperature(node, handle, 0x0100000C) == (0, 51)
    assert versioned_temperature(node, handle, 0x0200000C)[0] == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert code_of(pynvml.nvmlDeviceGetTemperature, handle, 5) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert pynvml.nvmlDeviceGetFanSpeed(handle) == pynvml.nvmlDeviceGetFanSpeed_v2(handle, 0) == 51
    assert pynvml.nvmlDeviceGetPcieReplayCounter(handle) == 7
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(idle) == 1
    assert pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) == 0


def test_clocks_depend_on_work_and_have_a_maximum(node: Bench):
    handle, idle = first(), pynvml.nvmlDeviceGetHandleByIndex(1)
    for kind, at_work, at_rest, most in (
        (pynvml.NVML_CLOCK_SM, 1410, 210, 1410),
        (pynvml.NVML_CLOCK_GRAPHICS, 1410, 210, 1410),
        (pynvml.NVML_CLOCK_MEM, 1215, 1215, 1215),
        (pynvml.NVML_CLOCK_VIDEO, 1290, 192, 1290),
    ):
        assert pynvml.nvmlDeviceGetClockInfo(handle, kind) == at_work
        assert pynvml.nvmlDeviceGetClockInfo(idle, kind) == at_rest
        assert pynvml.nvmlDeviceGetMaxClockInfo(handle, kind) == most
    assert code_of(pynvml.nvmlDeviceGetClockInfo, handle, 9) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert node.gpus[0].utilization == 50


def test_energy_is_the_integral_of_power(node: Bench):
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(first())
    node.step(100)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(first()) - before == 7_000_000


def test_each_field_value_has_its_own_code(node: Bench):
    node.step(10)
    values = pynvml.nvmlDeviceGetFieldValues(first(), [82, 74, 186, (138, 0)])
    assert [value.nvmlReturn for value in values] == [0, 0, 0, pynvml.NVML_ERROR_NOT_SUPPORTED]
    assert values[0].value.uiVal == pynvml.nvmlDeviceGetTemperature(first(), 0) + 6
    assert values[1].value.ullVal == 0
    assert values[2].value.uiVal == pynvml.nvmlDeviceGetPowerUsage(first())
    assert values[0].timestamp == 1_700_000_010_000_000


def test_missing_readings_of_a_board_are_not_supported(bench: Put):
    bench(made(gpus=[gpu(serial=None, bar1_total=None, unsupported=["nvmlDeviceGetPowerUsage"])]))
    for function in (
        pynvml.nvmlDeviceGetFanSpeed,
        pynvml.nvmlDeviceGetSerial,
        pynvml.nvmlDeviceGetBAR1MemoryInfo,
        pynvml.nvmlDeviceGetPowerUsage,
        pynvml.nvmlDeviceGetMigMode,
        pynvml.nvmlDeviceGetAttributes,
        pynvml.nvmlDeviceGetGpuInstanceId,
    ):
        assert code_of(function, first()) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, first(), 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetFieldValues(first(), [82])[0].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(first()) == 0


def test_a_buffer_that_is_too_small_is_not_overrun(node: Bench):
    buffer = ctypes.create_string_buffer(8)
    assert node.nvml.nvmlDeviceGetUUID(first(), buffer, 8) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert buffer.value == b""


def test_a_missing_function_is_not_found(bench: Put):
    missing = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"]
    node = bench(made(missing_functions=missing, pods=[pod("p", BUSY | {"device": "{gpu:0}", "pid": 42})]))
    not_found = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, first(), pynvml.nvmlMemory_v2) == not_found
    assert pynvml.nvmlDeviceGetMemoryInfo(first()).total == 16384 * MIB
    # The newer bindings have an error of their own for this.
    with pytest.raises(getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError)):
        pynvml.nvmlDeviceGetComputeRunningProcesses(first())
    assert listed(node, "nvmlDeviceGetComputeRunningProcesses_v2", first()) == [42]


def test_full_load_draws_the_power_limit_which_limits_the_clocks(bench: Put):
    bench(made(pods=[pod("p", {"device": "{gpu:0}", "load": {"high": 100}})]))
    assert pynvml.nvmlDeviceGetPowerUsage(first()) == 120_000
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(first()) == 4
