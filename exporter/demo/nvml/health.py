"""Functions of the fake driver about errors of the memories, and about what was taken out of use for them."""

from collections.abc import Mapping

from exporter.demo.load import power_limit
from exporter.demo.machine import MEMORY_HOTTER, GpuState
from exporter.demo.nvml.board import Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    Function,
    known,
    numbers,
    record,
    refuse,
    require,
)
from exporter.demo.scenario.derive import ADA, AMPERE, TURING
from exporter.demo.scenario.gpus import Gpu

SEVERITIES = ("corrected", "uncorrected")
SCOPES = ("volatile", "aggregate")
LOCATIONS = (
    "l1_cache",
    "l2_cache",
    "dram",
    "register_file",
    "texture_memory",
    "shared_memory",
    "cbu",
    "sram",
)
CAUSES = ("single_bit", "double_bit")
BANKS = ("max", "high", "partial", "low", "none")
UNCORRECTED, VOLATILE = 1, 0
DRAM, SRAM = 2, 7


def ecc_mode(state: GpuState) -> int:
    """Return 1 for a board with its ECC switched on, 0 for off."""
    return int(known(state.gpu.health.ecc))


def ecc_total(state: GpuState, severity: int, scope: int) -> int:
    """Return the errors in all memories. A GPU that is cut counts since the driver's load nowhere."""
    _require_counts(state, scope)
    kind = f"{_word(SEVERITIES, severity)}/{_word(SCOPES, scope)}/"
    return sum(count for place, count in state.gpu.health.errors.items() if place.startswith(kind))


def rows(state: GpuState) -> tuple[int, int, int, int]:
    """Return the rows remapped for corrected and uncorrected errors, and whether more are due or failed."""
    require(state.gpu.architecture >= AMPERE and not state.instances)
    health = state.gpu.health
    corrected, uncorrected = (health.remapped_rows.get(severity, 0) for severity in SEVERITIES)
    return corrected, uncorrected, int(health.row_remap_pending), int(health.row_remap_failure)


def pages(state: GpuState, cause: int) -> int:
    """Return the number of pages retired for this cause, on boards from before rows could be remapped."""
    require(state.gpu.architecture < AMPERE)
    return state.gpu.health.retired_pages.get(_word(CAUSES, cause), 0)


def pages_pending(state: GpuState) -> int:
    """Return 1 if pages wait for a reboot to be retired."""
    require(state.gpu.architecture < AMPERE)
    return int(state.gpu.health.retired_pages_pending)


def _errors(device: Device, severity: int, scope: int, location: int) -> int:
    """Return the errors in one place: caches and the like up to Volta, later all that is no DRAM as one."""
    place = f"{_word(SEVERITIES, severity)}/{_word(SCOPES, scope)}/{_word(LOCATIONS, location)}"
    gpu = device.gpu.gpu if isinstance(device, MigDevice) else device.spec
    require(location == DRAM or (location == SRAM) == (gpu.architecture >= TURING))
    if isinstance(device, MigDevice):
        require((severity, scope) == (UNCORRECTED, VOLATILE) and location != DRAM and gpu.health.ecc)
        return 0
    _require_counts(device.state, scope)
    return gpu.health.errors.get(place, 0)


def _require_counts(state: GpuState, scope: int) -> None:
    require(state.gpu.health.ecc and not (state.is_cut and scope == VOLATILE))


def _banks(device: GpuDevice) -> tuple[int, ...]:
    rows(device.state)
    return tuple(device.spec.health.row_banks.get(left, 0) for left in BANKS)


def _word(words: tuple[str, ...], place: int) -> str:
    return words[place] if 0 <= place < len(words) else refuse(INVALID_ARGUMENT)


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetEccMode": numbers("gpu", lambda device: (ecc_mode(device.state),) * 2),
    "nvmlDeviceGetMemoryErrorCounter": numbers("any", _errors),
    "nvmlDeviceGetRowRemapperHistogram": record("gpu", BANKS, _banks),
}


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
    memory = limits.memory if gpu.memory_temperature else None
    found = {SHUTDOWN: limits.shutdown, SLOWDOWN: limits.slowdown, MEMORY_MAX: memory, GPU_MAX: limits.gpu}
    return known(found.get(kind))


def margin_at(gpu: Gpu, kind: int) -> int:
    """Return the margin at which something happens: later boards count down to their first limit."""
    require(gpu.architecture >= ADA)
    return gpu.thresholds.gpu - threshold(gpu, kind)


def _temperature(device: GpuDevice, sensor: int) -> int:
    return refuse(INVALID_ARGUMENT) if sensor else device.state.temperature


def _margin(device: GpuDevice) -> int:
    require(device.spec.architecture >= ADA)
    return device.spec.thresholds.gpu - device.state.temperature


def _kept(state: GpuState) -> float:
    if state.flows["hardware_thermal"]:
        return KEPT_HOT
    if state.flows["software_thermal"]:
        return KEPT_WARM
    return KEPT_CAPPED if state.flows["power"] else 1.0


def _clock(device: GpuDevice, kind: int) -> int:
    clocks, busy = device.spec.clocks, min(1, device.state.utilization / FULL_CLOCK_PERCENT)
    sm = round((clocks.sm_idle + (clocks.sm_max - clocks.sm_idle) * busy) * _kept(device.state))
    rates = {GRAPHICS: sm, SM: sm, MEMORY: clocks.memory, VIDEO: sm * clocks.video_max // clocks.sm_max}
    return rates[kind] if kind in rates else refuse(INVALID_ARGUMENT)


def _max_clock(device: GpuDevice, kind: int) -> int:
    clocks = device.spec.clocks
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
    idle = known(device.spec.fan)
    warmer = max(0, device.state.temperature - device.spec.temperature_base)
    return min(100, idle + warmer) if fan == 0 else refuse(INVALID_ARGUMENT)


POWER_FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetPowerUsage": numbers("gpu", lambda device: device.state.power_mw),
    "nvmlDeviceGetEnforcedPowerLimit": numbers("gpu", lambda device: power_limit(device.spec)),
    "nvmlDeviceGetPowerManagementLimit": numbers("gpu", lambda device: power_limit(device.spec)),
    "nvmlDeviceGetPowerManagementDefaultLimit": numbers("gpu", lambda device: device.spec.power_max_mw),
    "nvmlDeviceGetPowerManagementLimitConstraints": numbers("gpu", lambda device: power_limits(device.spec)),
    "nvmlDeviceGetTotalEnergyConsumption": numbers("gpu", lambda device: device.state.totals["energy"]),
    "nvmlDeviceGetTemperature": numbers("gpu", _temperature),
    "nvmlDeviceGetTemperatureV": record(
        "gpu", ("temperature",), lambda device: device.state.temperature, TEMPERATURE_V1
    ),
    "nvmlDeviceGetTemperatureThreshold": numbers("gpu", lambda device, kind: threshold(device.spec, kind)),
    "nvmlDeviceGetMarginTemperature": record("gpu", ("marginTemperature",), _margin, MARGIN_V1),
    "nvmlDeviceGetClockInfo": numbers("gpu", _clock),
    "nvmlDeviceGetMaxClockInfo": numbers("gpu", _max_clock),
    "nvmlDeviceGetApplicationsClock": numbers("gpu", _application_clock),
    "nvmlDeviceGetFanSpeed": numbers("gpu", _fan),
    "nvmlDeviceGetFanSpeed_v2": numbers("gpu", _fan),
    "nvmlDeviceGetCurrentClocksEventReasons": numbers("gpu", _event_reasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": numbers("gpu", _event_reasons),
}
