"""The fake driver on whole GPUs, through the unmodified binding."""

import ctypes

import pynvml
import pytest

from tests.fake.demo.driver import INVALID, MISSING, NOT_SUPPORTED, code_of, gpu_at, listed
from tests.fake.demo.making import MIB, Bench, gpu, made, pod

BUSY = {"memory": "4 GiB", "load": {"high": 50}}


@pytest.fixture
def node(bench) -> Bench:
    """Two GPUs; on the first a busy process of a pod."""
    board = gpu(
        count=2, fan=30, serial="S-{n}", memory_temperature=True, pcie_replays=7, compute_mode="prohibited"
    )
    return bench(made(gpus=[board], pods=[pod("p", BUSY | {"device": "{gpu:0}"})]))


class TemperatureV1(ctypes.Structure):
    """The record of nvmlDeviceGetTemperatureV, which older bindings do not have."""

    _fields_ = (("version", ctypes.c_uint), ("sensorType", ctypes.c_int), ("temperature", ctypes.c_int))


def versioned_temperature(node: Bench, handle: object, version: int) -> tuple[int, int]:
    """Return the code and the temperature of the newer call."""
    record = TemperatureV1(version=version)
    return node.nvml.nvmlDeviceGetTemperatureV(handle, ctypes.byref(record)), record.temperature


def test_nothing_answers_before_init_and_after_the_last_shutdown(bench):
    bench(made(), opened=False)
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    assert pynvml.nvmlDeviceGetCount() == 1
    pynvml.nvmlShutdown()
    assert code_of(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    assert code_of(pynvml.nvmlShutdown) == pynvml.NVML_ERROR_UNINITIALIZED


def test_the_driver_has_versions_and_texts_of_errors(node):
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
    handle, other = (gpu_at(1) for _ in range(2))
    assert pynvml.nvmlDeviceGetCount() == 2
    assert ctypes.cast(other, ctypes.c_void_p).value == ctypes.cast(handle, ctypes.c_void_p).value
    assert code_of(pynvml.nvmlDeviceGetHandleByIndex, 2) == INVALID
    assert code_of(pynvml.nvmlDeviceGetUUID, None) == INVALID


def test_a_gpu_has_its_identity(node):
    board, handle = node.scenario.gpus[1], gpu_at(1)
    assert pynvml.nvmlDeviceGetUUID(handle) == board.uuid
    assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA Test"
    assert pynvml.nvmlDeviceGetMinorNumber(handle) == 1
    assert pynvml.nvmlDeviceGetSerial(handle) == "S-1"
    assert pynvml.nvmlDeviceGetArchitecture(handle) == 7
    assert pynvml.nvmlDeviceGetComputeMode(handle) == pynvml.NVML_COMPUTEMODE_PROHIBITED
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    assert (info.busId, info.busIdLegacy) == ("00000000:0F:00.0", "0000:0F:00.0")
    assert (info.domain, info.bus, info.device) == (0, 0x0F, 0)


@pytest.mark.usefixtures("node")
def test_memory_adds_up_in_both_versions():
    """Used memory excludes reserved memory in the second version and includes it in the first."""
    new = pynvml.nvmlDeviceGetMemoryInfo(gpu_at(), version=pynvml.nvmlMemory_v2)
    old = pynvml.nvmlDeviceGetMemoryInfo(gpu_at())
    assert (new.total, new.reserved, new.used) == (16384 * MIB, 512 * MIB, (4096 + 100) * MIB)
    assert new.total == new.used + new.free + new.reserved
    assert (old.total, old.used, old.free) == (new.total, new.used + new.reserved, new.free)
    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, gpu_at(), 1) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    bar = pynvml.nvmlDeviceGetBAR1MemoryInfo(gpu_at())
    assert bar.bar1Total == bar.bar1Used + bar.bar1Free == 256 * MIB


def test_all_readings_follow_the_load(node):
    handle, idle = gpu_at(), gpu_at(1)
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
    assert code_of(pynvml.nvmlDeviceGetTemperature, handle, 5) == INVALID
    assert pynvml.nvmlDeviceGetFanSpeed(handle) == pynvml.nvmlDeviceGetFanSpeed_v2(handle, 0) == 51
    assert pynvml.nvmlDeviceGetPcieReplayCounter(handle) == 7
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(idle) == 1
    assert pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) == 0


def test_clocks_depend_on_work_and_have_a_maximum(node):
    handle, idle = gpu_at(), gpu_at(1)
    for kind, at_work, at_rest, most in (
        (pynvml.NVML_CLOCK_SM, 1410, 210, 1410),
        (pynvml.NVML_CLOCK_GRAPHICS, 1410, 210, 1410),
        (pynvml.NVML_CLOCK_MEM, 1215, 1215, 1215),
        (pynvml.NVML_CLOCK_VIDEO, 1290, 192, 1290),
    ):
        assert pynvml.nvmlDeviceGetClockInfo(handle, kind) == at_work
        assert pynvml.nvmlDeviceGetClockInfo(idle, kind) == at_rest
        assert pynvml.nvmlDeviceGetMaxClockInfo(handle, kind) == most
    assert code_of(pynvml.nvmlDeviceGetClockInfo, handle, 9) == INVALID
    assert node.gpus[0].utilization == 50


def test_energy_is_the_integral_of_power(node):
    earlier = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu_at())
    node.step(100)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu_at()) - earlier == 7_000_000


def test_each_field_value_has_its_own_code(node):
    node.step(10)
    values = pynvml.nvmlDeviceGetFieldValues(gpu_at(), [82, 74, 186, (138, 0)])
    assert [value.nvmlReturn for value in values] == [0, 0, 0, NOT_SUPPORTED]
    assert values[0].value.uiVal == pynvml.nvmlDeviceGetTemperature(gpu_at(), 0) + 6
    assert values[1].value.ullVal == 0
    assert values[2].value.uiVal == pynvml.nvmlDeviceGetPowerUsage(gpu_at())
    assert values[0].timestamp == 1_700_000_010_000_000


def test_missing_readings_of_a_board_are_not_supported(bench):
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
        assert code_of(function, gpu_at()) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu_at(), 0) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetFieldValues(gpu_at(), [82])[0].nvmlReturn == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu_at()) == 0


def test_a_buffer_that_is_too_small_is_not_overrun(node):
    buffer = ctypes.create_string_buffer(8)
    assert node.nvml.nvmlDeviceGetUUID(gpu_at(), buffer, 8) == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert buffer.value == b""


def test_a_missing_function_is_not_found(bench):
    missing = ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"]
    node = bench(made(missing_functions=missing, pods=[pod("p", BUSY | {"device": "{gpu:0}", "pid": 42})]))
    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, gpu_at(), pynvml.nvmlMemory_v2) == MISSING
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu_at()).total == 16384 * MIB
    # The newer bindings have an error of their own for this.
    with pytest.raises(getattr(pynvml, "NVMLLibraryMismatchError", pynvml.NVMLError)):
        pynvml.nvmlDeviceGetComputeRunningProcesses(gpu_at())
    assert listed(node, "nvmlDeviceGetComputeRunningProcesses_v2", gpu_at()) == [42]


def test_full_load_draws_the_power_limit_which_limits_the_clocks(bench):
    bench(made(pods=[pod("p", {"device": "{gpu:0}", "load": {"high": 100}})]))
    assert pynvml.nvmlDeviceGetPowerUsage(gpu_at()) == 120_000
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu_at()) == 4
