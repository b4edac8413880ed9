"""Functions of the fake driver about memory errors and repairs, and about power, temperature and clocks."""

from exporter.demo.machine import MEMORY_HOTTER, GpuState
from exporter.demo.nvml.board import Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import Function, at, known, numbers, record, refuse, require
from exporter.demo.scenario.derive import ADA, AMPERE, TURING, power_limit
from exporter.demo.scenario.gpus import Gpu

# In NVML's order: a constant of NVML is the index of its word.
SEVERITIES = ("corrected", "uncorrected")
SCOPES = ("volatile", "aggregate")
LOCATIONS = (
    *("l1_cache", "l2_cache", "dram", "register_file"),
    *("texture_memory", "shared_memory", "cbu", "sram"),
)
CAUSES = ("single_bit", "double_bit")
BANKS = ("max", "high", "partial", "low", "none")
UNCORRECTED, VOLATILE = 1, 0
DRAM, SRAM = 2, 7

# Clocks are graphics, SM, memory and video, in this order.
VIDEO = 3
TEMPERATURE_V1, MARGIN_V1 = 0x0100000C, 0x01000008
REPAIR_STATUS_V1 = 0x0100000C
SHUTDOWN, SLOWDOWN, MEMORY_MAX, GPU_MAX = range(4)
IDLE, POWER_CAP, HARDWARE, SOFTWARE_THERMAL, HARDWARE_THERMAL = 0x1, 0x4, 0x8, 0x20, 0x40
# Utilization from which the clocks are at their maximum.
FULL_CLOCK_PERCENT = 30
# Part of the maximum clocks that remains at the power limit, and at the two thermal limits.
AT_POWER_CAP, AT_SOFTWARE_LIMIT, AT_HARDWARE_LIMIT = 0.92, 0.8, 0.5
# The lowest power limit that can be set, as a part of the maximum.
LOWEST_LIMIT = 0.4


def ecc_total(state: GpuState, _: int, severity: int, scope: int) -> int:
    """Return the errors in all memories; a GPU with MIG has no volatile counters."""
    _require_counters(state, scope)
    prefix = f"{SEVERITIES[severity]}/{SCOPES[scope]}/"
    return sum(count for name, count in state.gpu.health.errors.items() if name.startswith(prefix))


def rows(state: GpuState, _scope: int, place: int) -> int:
    """Return the rows remapped for corrected or uncorrected errors, or 1 if one is pending or failed."""
    require(state.gpu.architecture >= AMPERE and not state.instances)
    health = state.gpu.health
    corrected, uncorrected = (health.remapped_rows.get(severity, 0) for severity in SEVERITIES)
    return (corrected, uncorrected, health.row_remap_pending, health.row_remap_failure)[place]


def pages(state: GpuState, _scope: int, cause: int) -> int:
    """Return the number of pages retired for a cause; boards before Ampere retire pages, later ones remap."""
    require(state.gpu.architecture < AMPERE)
    return state.gpu.health.retired_pages.get(CAUSES[cause], 0)


def pages_pending(state: GpuState, _scope: int) -> bool:
    """Return whether pages will be retired at the next reboot."""
    require(state.gpu.architecture < AMPERE)
    return state.gpu.health.retired_pages_pending


def _errors(device: Device, severity: int, scope: int, location: int) -> int:
    """Return the errors at one location: caches and so on up to Volta; from Turing on DRAM and SRAM only."""
    name = f"{at(SEVERITIES, severity)}/{at(SCOPES, scope)}/{at(LOCATIONS, location)}"
    gpu = device.gpu.gpu
    require(location == DRAM or (location == SRAM) == (gpu.architecture >= TURING))
    if isinstance(device, MigDevice):
        require((severity, scope) == (UNCORRECTED, VOLATILE) and location != DRAM and gpu.health.ecc)
        return 0
    _require_counters(device.state, scope)
    return gpu.health.errors.get(name, 0)


def _require_counters(state: GpuState, scope: int) -> None:
    require(state.gpu.health.ecc and not (state.gpu.mig_enabled and scope == VOLATILE))


def _banks(device: GpuDevice) -> tuple[int, ...]:
    rows(device.state, 0, 0)  # refuses the same boards
    return tuple(device.spec.health.row_banks.get(rest, 0) for rest in BANKS)


def _repairs(device: GpuDevice) -> tuple[int, int]:
    require(device.spec.architecture >= AMPERE)
    return device.spec.health.channel_repair_pending, device.spec.health.tpc_repair_pending


def _power_limits(device: GpuDevice) -> tuple[int, int]:
    return round(device.spec.power_max_mw * LOWEST_LIMIT), device.spec.power_max_mw


def memory_temperature(state: GpuState, _scope: int) -> int:
    """Return the memory temperature; only large boards have a sensor for it."""
    return state.temperature + MEMORY_HOTTER if state.gpu.memory_temperature else refuse()


def _threshold(gpu: Gpu, kind: int) -> int:
    limits = gpu.thresholds
    memory = limits.memory if gpu.memory_temperature else None
    values = {SHUTDOWN: limits.shutdown, SLOWDOWN: limits.slowdown, MEMORY_MAX: memory, GPU_MAX: limits.gpu}
    return known(values.get(kind))


def margin_at(state: GpuState, _scope: int, kind: int) -> int:
    """Return a threshold as a margin: from Ada on, boards count down to the first slowdown."""
    require(state.gpu.architecture >= ADA)
    return state.gpu.thresholds.gpu - _threshold(state.gpu, kind)


def _margin(device: GpuDevice) -> int:
    require(device.spec.architecture >= ADA)
    return device.spec.thresholds.gpu - device.state.temperature


def _clock_ratio(state: GpuState) -> float:
    if state.flows["hardware_thermal"]:
        return AT_HARDWARE_LIMIT
    if state.flows["software_thermal"]:
        return AT_SOFTWARE_LIMIT
    return AT_POWER_CAP if state.flows["power"] else 1.0


def _clock(device: GpuDevice, kind: int) -> int:
    clocks, busy = device.spec.clocks, min(1, device.state.utilization / FULL_CLOCK_PERCENT)
    sm = round((clocks.sm_idle + (clocks.sm_max - clocks.sm_idle) * busy) * _clock_ratio(device.state))
    return at((sm, sm, clocks.memory, sm * clocks.video_max // clocks.sm_max), kind)


def _max_clock(device: GpuDevice, kind: int) -> int:
    clocks = device.spec.clocks
    return at((clocks.sm_max, clocks.sm_max, clocks.memory, clocks.video_max), kind)


def _application_clock(device: GpuDevice, kind: int) -> int:
    return refuse() if kind == VIDEO else _max_clock(device, kind)


def _event_reasons(device: GpuDevice) -> int:
    flows = device.state.flows
    reasons = 0 if device.state.utilization else IDLE
    reasons |= POWER_CAP if flows["power"] else 0
    reasons |= SOFTWARE_THERMAL if flows["software_thermal"] else 0
    return reasons | (HARDWARE | HARDWARE_THERMAL if flows["hardware_thermal"] else 0)


def _fan(device: GpuDevice, fan: int = 0) -> int:
    warming = max(0, device.state.temperature - device.spec.temperature_base)
    percent = min(100, known(device.spec.fan) + warming)
    return at((percent,), fan)


FUNCTIONS: dict[str, Function] = {
    # The current mode, and the mode after the next reboot.
    "nvmlDeviceGetEccMode": numbers("gpu", lambda device: [known(device.spec.health.ecc)] * 2),
    "nvmlDeviceGetMemoryErrorCounter": numbers("any", _errors),
    "nvmlDeviceGetRowRemapperHistogram": record("gpu", " ".join(BANKS), _banks),
    "nvmlDeviceGetRepairStatus": record(
        "gpu", "bChannelRepairPending bTpcRepairPending", _repairs, REPAIR_STATUS_V1
    ),
    "nvmlDeviceGetPowerUsage": numbers("gpu", lambda device: device.state.power_mw),
    "nvmlDeviceGetEnforcedPowerLimit": numbers("gpu", lambda device: power_limit(device.spec)),
    "nvmlDeviceGetPowerManagementLimit": numbers("gpu", lambda device: power_limit(device.spec)),
    "nvmlDeviceGetPowerManagementDefaultLimit": numbers("gpu", lambda device: device.spec.power_max_mw),
    "nvmlDeviceGetPowerManagementLimitConstraints": numbers("gpu", _power_limits),
    "nvmlDeviceGetTotalEnergyConsumption": numbers("gpu", lambda device: device.state.totals["energy"]),
    "nvmlDeviceGetTemperature": numbers(
        "gpu", lambda device, sensor: at((device.state.temperature,), sensor)
    ),
    "nvmlDeviceGetTemperatureV": record(
        "gpu", "temperature", lambda device: device.state.temperature, TEMPERATURE_V1
    ),
    "nvmlDeviceGetTemperatureThreshold": numbers("gpu", lambda device, kind: _threshold(device.spec, kind)),
    "nvmlDeviceGetMarginTemperature": record("gpu", "marginTemperature", _margin, MARGIN_V1),
    "nvmlDeviceGetClockInfo": numbers("gpu", _clock),
    "nvmlDeviceGetMaxClockInfo": numbers("gpu", _max_clock),
    "nvmlDeviceGetApplicationsClock": numbers("gpu", _application_clock),
    "nvmlDeviceGetFanSpeed": numbers("gpu", _fan),
    "nvmlDeviceGetFanSpeed_v2": numbers("gpu", _fan),
    "nvmlDeviceGetCurrentClocksEventReasons": numbers("gpu", _event_reasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": numbers("gpu", _event_reasons),
}
