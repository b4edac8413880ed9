"""Functions of the fake driver about power, heat, clocks and what holds the clocks back."""

from collections.abc import Mapping

from exporter.demo.boards import ADA
from exporter.demo.machine import MEMORY_HOTTER, GpuState
from exporter.demo.meters import power_limit
from exporter.demo.nvml_board import GpuDevice
from exporter.demo.nvml_call import Function, numbers, record
from exporter.demo.nvml_codes import INVALID_ARGUMENT, NOT_SUPPORTED, refuse
from exporter.demo.schema_gpu import Gpu

GRAPHICS, SM, MEMORY, VIDEO = range(4)
TEMPERATURE_V1, MARGIN_V1 = 0x0100000C, 0x01000008
SHUTDOWN, SLOWDOWN, MEMORY_MAX, GPU_MAX = range(4)
IDLE, POWER_CAP, HARDWARE, SOFTWARE_THERMAL, HARDWARE_THERMAL = 0x1, 0x4, 0x8, 0x20, 0x40
# Clocks are up as soon as there is something to do.
FULL_CLOCK_PERCENT = 30
# How much of its clocks a GPU keeps that runs into the limit of its power or its heat.
KEPT_CAPPED, KEPT_WARM, KEPT_HOT = 0.92, 0.8, 0.5
# How far an administrator can lower the limit of the power.
LOWEST_LIMIT = 0.4


def power_limits(gpu: Gpu) -> tuple[int, int]:
    """Return (lowest, highest) limit of its power that a GPU can be set to, in mW."""
    return round(gpu.power_max_mw * LOWEST_LIMIT), gpu.power_max_mw


def memory_temperature(state: GpuState) -> int:
    """Return the memory's temperature; not every board has a sensor for it."""
    return state.temperature + MEMORY_HOTTER if state.gpu.memory_temperature else refuse(NOT_SUPPORTED)


def threshold(gpu: Gpu, kind: int) -> int:
    """Return the temperature at which something happens; without a sensor nothing does."""
    limits = gpu.thresholds
    if kind == MEMORY_MAX and not gpu.memory_temperature:
        return refuse(NOT_SUPPORTED)
    found = {
        SHUTDOWN: limits.shutdown,
        SLOWDOWN: limits.slowdown,
        MEMORY_MAX: limits.memory,
        GPU_MAX: limits.gpu,
    }
    return found[kind] if kind in found else refuse(NOT_SUPPORTED)


def margin_at(gpu: Gpu, kind: int) -> int:
    """Return the margin at which something happens: later boards count down to their first limit."""
    if gpu.architecture < ADA:
        return refuse(NOT_SUPPORTED)
    return gpu.thresholds.gpu - threshold(gpu, kind)


def _temperature(device: GpuDevice, sensor: int) -> int:
    return refuse(INVALID_ARGUMENT) if sensor else device.state.temperature


def _margin(device: GpuDevice) -> int:
    gpu = device.state.gpu
    return refuse(NOT_SUPPORTED) if gpu.architecture < ADA else gpu.thresholds.gpu - device.state.temperature


def _kept(state: GpuState) -> float:
    if state.flows["hardware_thermal"]:
        return KEPT_HOT
    if state.flows["software_thermal"]:
        return KEPT_WARM
    return KEPT_CAPPED if state.flows["power"] else 1.0


def _clock(device: GpuDevice, kind: int) -> int:
    clocks, busy = device.state.gpu.clocks, min(1, device.state.utilization / FULL_CLOCK_PERCENT)
    sm = round((clocks.sm_idle + (clocks.sm_max - clocks.sm_idle) * busy) * _kept(device.state))
    rates = {GRAPHICS: sm, SM: sm, MEMORY: clocks.memory, VIDEO: sm * clocks.video_max // clocks.sm_max}
    return rates[kind] if kind in rates else refuse(INVALID_ARGUMENT)


def _max_clock(device: GpuDevice, kind: int) -> int:
    clocks = device.state.gpu.clocks
    rates = {GRAPHICS: clocks.sm_max, SM: clocks.sm_max, MEMORY: clocks.memory, VIDEO: clocks.video_max}
    return rates[kind] if kind in rates else refuse(INVALID_ARGUMENT)


def _application_clock(device: GpuDevice, kind: int) -> int:
    return refuse(NOT_SUPPORTED) if kind == VIDEO else _max_clock(device, kind)


def _event_reasons(device: GpuDevice) -> int:
    flows = device.state.flows
    reasons = 0 if device.state.utilization else IDLE
    reasons |= POWER_CAP if flows["power"] else 0
    reasons |= SOFTWARE_THERMAL if flows["software_thermal"] else 0
    return reasons | (HARDWARE | HARDWARE_THERMAL if flows["hardware_thermal"] else 0)


def _fan(device: GpuDevice, fan: int = 0) -> int:
    idle = device.state.gpu.fan
    if idle is None:
        return refuse(NOT_SUPPORTED)
    warmer = max(0, device.state.temperature - device.state.gpu.temperature_base)
    return min(100, idle + warmer) if fan == 0 else refuse(INVALID_ARGUMENT)


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetPowerUsage": numbers("gpu", lambda device: device.state.power_mw),
    "nvmlDeviceGetEnforcedPowerLimit": numbers("gpu", lambda device: power_limit(device.state.gpu)),
    "nvmlDeviceGetPowerManagementLimit": numbers("gpu", lambda device: power_limit(device.state.gpu)),
    "nvmlDeviceGetPowerManagementDefaultLimit": numbers("gpu", lambda device: device.state.gpu.power_max_mw),
    "nvmlDeviceGetPowerManagementLimitConstraints": numbers(
        "gpu", lambda device: power_limits(device.state.gpu)
    ),
    "nvmlDeviceGetTotalEnergyConsumption": numbers("gpu", lambda device: device.state.totals["energy"]),
    "nvmlDeviceGetTemperature": numbers("gpu", _temperature),
    "nvmlDeviceGetTemperatureV": record(
        "gpu", ("temperature",), lambda device: device.state.temperature, TEMPERATURE_V1
    ),
    "nvmlDeviceGetTemperatureThreshold": numbers(
        "gpu", lambda device, kind: threshold(device.state.gpu, kind)
    ),
    "nvmlDeviceGetMarginTemperature": record("gpu", ("marginTemperature",), _margin, MARGIN_V1),
    "nvmlDeviceGetClockInfo": numbers("gpu", _clock),
    "nvmlDeviceGetMaxClockInfo": numbers("gpu", _max_clock),
    "nvmlDeviceGetApplicationsClock": numbers("gpu", _application_clock),
    "nvmlDeviceGetFanSpeed": numbers("gpu", _fan),
    "nvmlDeviceGetFanSpeed_v2": numbers("gpu", _fan),
    "nvmlDeviceGetNumFans": numbers("gpu", lambda device: int(device.state.gpu.fan is not None)),
    "nvmlDeviceGetCurrentClocksEventReasons": numbers("gpu", _event_reasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": numbers("gpu", _event_reasons),
}
