"""Functions of the fake driver about one device: identity, memory, activity, power, heat and clocks."""

from collections.abc import Mapping
from typing import Any

from exporter.demo.machine import COPY_RATIO, MEMORY_HOTTER, GpuState
from exporter.demo.nvml_board import Device, GpuDevice, MigDevice
from exporter.demo.nvml_call import Function, number, numbers, target, text
from exporter.demo.nvml_codes import INVALID_ARGUMENT, NOT_SUPPORTED, VERSION_MISMATCH, refuse
from exporter.demo.schema_gpu import MIB

COMPUTE_MODES = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}
GRAPHICS, SM, MEMORY, VIDEO = range(4)
MEMORY_V2 = 0x02000028
TEMPERATURE_V1 = 0x0100000C
SAMPLING_MICROSECONDS = 167_000
# At this much power the board's limit holds the clocks back.
CAPPED = 0.95
IDLE, POWER_CAP = 0x1, 0x4
# Clocks are up as soon as there is something to do.
FULL_CLOCK_PERCENT = 30


def memory(device: Device) -> tuple[int, int, int]:
    """Return (total, reserved, used) of a GPU or of a MIG device's GPU instance, in bytes."""
    if isinstance(device, MigDevice):
        cut = device.state.instance
        return cut.memory_bytes, cut.reserved, device.state.used
    return device.state.gpu.memory_total, device.state.reserved, device.state.used


def _memory_v1(device: Device, reference: Any) -> None:
    total, reserved, used = memory(device)
    answer = target(reference)
    # The old call counts what the driver keeps for itself as used.
    answer.total, answer.used, answer.free = total, used + reserved, total - used - reserved


def _memory_v2(device: Device, reference: Any) -> int | None:
    answer = target(reference)
    if answer.version != MEMORY_V2:
        return VERSION_MISMATCH
    total, reserved, used = memory(device)
    answer.total, answer.reserved, answer.used = total, reserved, used
    answer.free = total - used - reserved
    return None


def _bar1(device: Device, reference: Any) -> int | None:
    state = device.gpu if isinstance(device, MigDevice) else device.state
    total = state.gpu.bar1_total
    if total is None:
        return NOT_SUPPORTED
    answer = target(reference)
    used = min(total, (1 + 2 * len(device.state.processes)) * MIB)
    answer.bar1Total, answer.bar1Used, answer.bar1Free = total, used, total - used
    return None


def _utilization(device: GpuDevice, reference: Any) -> int | None:
    if device.state.is_cut:
        return NOT_SUPPORTED
    answer = target(reference)
    answer.gpu = device.state.utilization
    answer.memory = round(device.state.utilization * COPY_RATIO)
    return None


def _engine(device: GpuDevice) -> tuple[int, int]:
    return refuse(NOT_SUPPORTED) if device.state.is_cut else (0, SAMPLING_MICROSECONDS)


def _compute_mode(device: Device) -> int:
    if isinstance(device, MigDevice):
        return COMPUTE_MODES["default"]
    return refuse(NOT_SUPPORTED) if device.state.is_cut else COMPUTE_MODES[device.state.gpu.compute_mode]


def _architecture(device: Device) -> int:
    return refuse(INVALID_ARGUMENT) if isinstance(device, MigDevice) else device.state.gpu.architecture


def _temperature(device: GpuDevice, sensor: int) -> int:
    return refuse(INVALID_ARGUMENT) if sensor else device.state.temperature


def _temperature_v(device: GpuDevice, reference: Any) -> int | None:
    answer = target(reference)
    if answer.version != TEMPERATURE_V1:
        return VERSION_MISMATCH
    answer.temperature = _temperature(device, number(answer.sensorType))
    return None


def memory_temperature(state: GpuState) -> int | None:
    """Return the memory's temperature, None where the board has no sensor for it."""
    return state.temperature + MEMORY_HOTTER if state.gpu.memory_temperature else None


def _clock(device: GpuDevice, kind: int) -> int:
    clocks, busy = device.state.gpu.clocks, min(1, device.state.utilization / FULL_CLOCK_PERCENT)
    sm = round(clocks.sm_idle + (clocks.sm_max - clocks.sm_idle) * busy)
    rates = {GRAPHICS: sm, SM: sm, MEMORY: clocks.memory, VIDEO: sm * clocks.video_max // clocks.sm_max}
    return rates[kind] if kind in rates else refuse(INVALID_ARGUMENT)


def _max_clock(device: GpuDevice, kind: int) -> int:
    clocks = device.state.gpu.clocks
    rates = {GRAPHICS: clocks.sm_max, SM: clocks.sm_max, MEMORY: clocks.memory, VIDEO: clocks.video_max}
    return rates[kind] if kind in rates else refuse(INVALID_ARGUMENT)


def _event_reasons(device: GpuDevice) -> int:
    if not device.state.utilization:
        return IDLE
    return POWER_CAP if device.state.power_mw > CAPPED * device.state.gpu.power_max_mw else 0


def _fan(device: GpuDevice, fan: int = 0) -> int:
    idle = device.state.gpu.fan
    if idle is None:
        return refuse(NOT_SUPPORTED)
    warmer = max(0, device.state.temperature - device.state.gpu.temperature_base)
    return min(100, idle + warmer) if fan == 0 else refuse(INVALID_ARGUMENT)


def _serial(device: GpuDevice) -> str:
    serial = device.state.gpu.serial
    return refuse(NOT_SUPPORTED) if serial is None else serial


def _name(device: Device) -> str:
    if isinstance(device, MigDevice):
        return f"{device.gpu.gpu.model} MIG {device.state.instance.profile}"
    return device.state.gpu.model


def _index(device: Device) -> int:
    return device.slot if isinstance(device, MigDevice) else device.state.index


def _pci(device: GpuDevice, reference: Any) -> None:
    answer = target(reference)
    domain, bus, rest = device.state.gpu.pci_bus_id.split(":")
    answer.domain, answer.bus = int(domain, 16), int(bus, 16)
    answer.device = int(rest.split(".")[0], 16)
    short = f"{int(domain, 16):04X}:{bus}:{rest}".encode()
    if hasattr(answer, "busIdLegacy"):
        answer.busIdLegacy, answer.busId = short, device.state.gpu.pci_bus_id.encode()
    else:
        answer.busId = short


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetUUID": text("any", lambda device: device.uuid),
    "nvmlDeviceGetName": text("any", _name),
    "nvmlDeviceGetIndex": numbers("any", _index),
    "nvmlDeviceGetMinorNumber": numbers("gpu", lambda device: device.state.gpu.minor),
    "nvmlDeviceGetSerial": text("gpu", _serial),
    "nvmlDeviceGetPciInfo_v3": Function("gpu", _pci),
    "nvmlDeviceGetPciInfo_v2": Function("gpu", _pci),
    "nvmlDeviceGetArchitecture": numbers("any", _architecture),
    "nvmlDeviceGetComputeMode": numbers("any", _compute_mode),
    "nvmlDeviceGetMemoryInfo": Function("any", _memory_v1),
    "nvmlDeviceGetMemoryInfo_v2": Function("any", _memory_v2),
    "nvmlDeviceGetBAR1MemoryInfo": Function("any", _bar1),
    "nvmlDeviceGetUtilizationRates": Function("gpu", _utilization),
    "nvmlDeviceGetEncoderUtilization": numbers("gpu", _engine),
    "nvmlDeviceGetDecoderUtilization": numbers("gpu", _engine),
    "nvmlDeviceGetPowerUsage": numbers("gpu", lambda device: device.state.power_mw),
    "nvmlDeviceGetEnforcedPowerLimit": numbers("gpu", lambda device: device.state.gpu.power_max_mw),
    "nvmlDeviceGetPowerManagementLimit": numbers("gpu", lambda device: device.state.gpu.power_max_mw),
    "nvmlDeviceGetTotalEnergyConsumption": numbers("gpu", lambda device: device.state.energy_mj),
    "nvmlDeviceGetTemperature": numbers("gpu", _temperature),
    "nvmlDeviceGetTemperatureV": Function("gpu", _temperature_v),
    "nvmlDeviceGetClockInfo": numbers("gpu", _clock),
    "nvmlDeviceGetMaxClockInfo": numbers("gpu", _max_clock),
    "nvmlDeviceGetFanSpeed": numbers("gpu", _fan),
    "nvmlDeviceGetFanSpeed_v2": numbers("gpu", _fan),
    "nvmlDeviceGetNumFans": numbers("gpu", lambda device: int(device.state.gpu.fan is not None)),
    "nvmlDeviceGetPcieReplayCounter": numbers("gpu", lambda device: device.state.gpu.pcie_replays),
    "nvmlDeviceGetCurrentClocksEventReasons": numbers("gpu", _event_reasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": numbers("gpu", _event_reasons),
}
