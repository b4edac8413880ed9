"""Tables of the readings of a physical GPU with a call of their own, by class and group.

ROWS are read in every sweep, ENERGY_ROWS every 15 s and SLOW_ROWS every minute, both also after an event of
the GPU, FIXED_ROWS once while the driver is open. Readings with one call for many of them are in ``fields``,
MIG devices in ``exporter.nvml.mig``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from exporter.model import EncoderSessions
from exporter.model.bounds import (
    BYTES,
    CELSIUS,
    CELSIUS_MARGIN,
    COUNT,
    FAN_PERCENT,
    MEGAHERTZ,
    MEMORY_ERRORS,
    MILLIJOULES,
    MILLIWATTS,
    NUMBER,
    PARTS,
    PCIE_GENERATION,
    PCIE_LANES,
    PCIE_RATE,
    PERCENT,
    SMALL,
    Bound,
)
from exporter.model.hardware import ComputeMode
from exporter.model.readings import Clock, EccScope, EccSeverity, PowerLimit, Threshold, Traffic
from exporter.nvml.driver.records import Call
from exporter.nvml.readings.answers import (
    BAR1,
    MEMORY,
    CallRow,
    Decode,
    celsius,
    first_of_two,
    flag,
    known,
    margin,
    memory,
    positive,
)
from exporter.nvml.readings.fabric import decode_fabric
from exporter.nvml.readings.paths import C2C, ECC, GPU, PCIE_LINK, REPAIRS, name_of, path_of

# In the order of NVML's numbers.
CLOCKS: tuple[Clock, ...] = ("graphics", "sm", "memory", "video")
THRESHOLDS: tuple[Threshold, ...] = ("shutdown", "slowdown", "memory", "gpu")
COMPUTE_MODES: tuple[ComputeMode, ...] = ("default", "exclusive_thread", "prohibited", "exclusive_process")
SEVERITIES: tuple[EccSeverity, ...] = ("corrected", "uncorrected")
SCOPES: tuple[EccScope, ...] = ("volatile", "aggregate")
DIRECTIONS: tuple[Traffic, ...] = ("pcie_transmit", "pcie_receive")
# Caches, registers and so on up to Volta; DRAM and SRAM since Turing.
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
NO_PERFORMANCE_STATE = 32
# Sessions, frames per second, and a latency of up to ten seconds in microseconds.
ENCODER_SESSIONS = Bound(0, 10_000_000)
# NVML reports throughput in KB/s without a definition; nvidia-smi takes 1024 bytes.
KILOBYTE = 1024


def utilization(answer: Any) -> dict[str, int | None]:
    """Return the shares of GPU and memory."""
    return {
        name_of(GPU.utilization_percent): known(answer.gpu),
        name_of(GPU.memory_copy_percent): known(answer.memory),
    }


def encoder_sessions(answer: tuple[int, int, int]) -> EncoderSessions | None:
    """Return the decoded (sessions, average frames per second, average latency in microseconds)."""
    count, fps, latency = map(known, answer)
    if count is None or fps is None or latency is None:
        return None
    return EncoderSessions(count=count, average_fps=fps, average_latency_microseconds=latency)


def constraints(answer: tuple[int, int]) -> dict[PowerLimit, int | None]:
    """Return the minimum and the maximum limit that can be configured."""
    return {"min": known(answer[0]), "max": known(answer[1])}


def ecc_mode(answer: tuple[int, int]) -> dict[str, bool | None]:
    """Return the current mode, and the mode after the next reboot."""
    return {name_of(ECC.enabled): flag(answer[0]), name_of(ECC.pending): flag(answer[1])}


def histogram(answer: Any) -> dict[str, int | None]:
    """Return the memory banks by availability of spare rows."""
    return {level: known(getattr(answer, level)) for level in ("max", "high", "partial", "low", "none")}


def performance_state(answer: int) -> int | None:
    """Return the number of a performance state, P0 to P15."""
    return None if answer == NO_PERFORMANCE_STATE else known(answer)


def throughput(answer: int) -> int | None:
    """Return KB/s in bytes per second."""
    amount = known(answer)
    return None if amount is None else amount * KILOBYTE


def repair_status(answer: tuple[int, int]) -> dict[str, bool | None]:
    """Return whether a repair of a memory channel, and of a texture processing cluster, is pending."""
    return {
        name_of(REPAIRS.channel_repair_pending): flag(answer[0]),
        name_of(REPAIRS.tpc_repair_pending): flag(answer[1]),
    }


def _row(
    group: str, into: Any, call: str | tuple[Call, ...], bound: Bound | None, decode: Decode = known
) -> CallRow:
    """Return the row of a reading: its place, such as ``GPU.fan_percent``, and the forms of its call."""
    calls = ((call, ()),) if isinstance(call, str) else call
    return CallRow(group, path_of(into), calls, bound, decode)


def _by_key(row: CallRow, keys: Iterable[str]) -> Iterator[CallRow]:
    """Yield a row below another one for each key; the argument of its call is its place."""
    ((call, _),) = row.calls
    for kind, key in enumerate(keys):
        yield replace(row, into=(*row.into, key), calls=((call, (kind,)),))


# Read in every sweep: load, memory, power, heat and clocks.
ROWS = (
    MEMORY,
    BAR1,
    CallRow("utilization", (), (("nvmlDeviceGetUtilizationRates", ()),), PERCENT, utilization),
    _row("engines", GPU.engine_percent["encoder"], "nvmlDeviceGetEncoderUtilization", PERCENT, first_of_two),
    _row("engines", GPU.engine_percent["decoder"], "nvmlDeviceGetDecoderUtilization", PERCENT, first_of_two),
    _row("engines", GPU.engine_percent["jpeg"], "nvmlDeviceGetJpgUtilization", PERCENT, first_of_two),
    _row("engines", GPU.engine_percent["ofa"], "nvmlDeviceGetOfaUtilization", PERCENT, first_of_two),
    _row("power", GPU.power_milliwatts, "nvmlDeviceGetPowerUsage", MILLIWATTS),
    _row(
        "thermal",
        GPU.temperature_celsius,
        (("nvmlDeviceGetTemperatureV", (0,)), ("nvmlDeviceGetTemperature", (0,))),
        CELSIUS,
        celsius,
    ),
    _row("thermal", GPU.temperature_margin_celsius, "nvmlDeviceGetMarginTemperature", CELSIUS_MARGIN, margin),
    *_by_key(_row("clocks", GPU.clocks_megahertz, "nvmlDeviceGetClockInfo", MEGAHERTZ), CLOCKS),
    _row(
        "throttling",
        GPU.clock_events,
        (("nvmlDeviceGetCurrentClocksEventReasons", ()), ("nvmlDeviceGetCurrentClocksThrottleReasons", ())),
        NUMBER,
    ),
    # Not slow as the width is: it is lower on an idle GPU, and a job with a period of a minute would be seen
    # idle at each reading.
    _row("pcie", PCIE_LINK.generation, "nvmlDeviceGetCurrPcieLinkGeneration", PCIE_GENERATION, positive),
    _row("modes", GPU.performance_state, "nvmlDeviceGetPerformanceState", SMALL, performance_state),
)
# Read in every sweep on request only: each of these calls takes 20 ms.
THROUGHPUT_ROWS = tuple(
    _by_key(
        _row("pcie_throughput", GPU.pcie_throughput, "nvmlDeviceGetPcieThroughput", PCIE_RATE, throughput),
        DIRECTIONS,
    )
)
# The most expensive call of all: a real driver takes 3 to 18 ms of CPU time for it, as a field too.
ENERGY_ROWS = (_row("power", GPU.energy_millijoules, "nvmlDeviceGetTotalEnergyConsumption", MILLIJOULES),)
# Health, links, modes and limits: they change by an event or by an administrator, and are most of the calls.
SLOW_ROWS = (
    _row("engines", GPU.encoder_sessions, "nvmlDeviceGetEncoderStats", ENCODER_SESSIONS, encoder_sessions),
    _row("power", GPU.power_limits_milliwatts["enforced"], "nvmlDeviceGetEnforcedPowerLimit", MILLIWATTS),
    _row("power", GPU.power_limits_milliwatts["configured"], "nvmlDeviceGetPowerManagementLimit", MILLIWATTS),
    _row("thermal", GPU.fan_percent, "nvmlDeviceGetFanSpeed", FAN_PERCENT),
    *_by_key(
        _row("clocks", GPU.clocks_application_megahertz, "nvmlDeviceGetApplicationsClock", MEGAHERTZ), CLOCKS
    ),
    _row("pcie", PCIE_LINK.width, "nvmlDeviceGetCurrPcieLinkWidth", PCIE_LANES, positive),
    _row("pcie", GPU.pcie_replays, "nvmlDeviceGetPcieReplayCounter", COUNT),
    _row("nvlink", GPU.fabric, "nvmlDeviceGetGpuFabricInfoV", NUMBER, decode_fabric),
    _row("ecc", GPU.ecc, "nvmlDeviceGetEccMode", None, ecc_mode),
    *(
        CallRow(
            "ecc",
            path_of(ECC.by_location[severity, scope, location]),
            (("nvmlDeviceGetMemoryErrorCounter", (kind, counter, place)),),
            MEMORY_ERRORS,
            known,
        )
        for kind, severity in enumerate(SEVERITIES)
        for counter, scope in enumerate(SCOPES)
        for place, location in enumerate(LOCATIONS)
    ),
    _row("repairs", REPAIRS.row_banks, "nvmlDeviceGetRowRemapperHistogram", PARTS, histogram),
    _row("repairs", GPU.repairs, "nvmlDeviceGetRepairStatus", None, repair_status),
    _row("confidential", GPU.protected_memory, "nvmlDeviceGetConfComputeProtectedMemoryUsage", BYTES, memory),
    _row("modes", GPU.persistence, "nvmlDeviceGetPersistenceMode", None, flag),
    _row("modes", GPU.accounting, "nvmlDeviceGetAccountingMode", None, flag),
    _row("modes", GPU.display_active, "nvmlDeviceGetDisplayActive", None, flag),
    _row("modes", GPU.compute_mode, "nvmlDeviceGetComputeMode", None, dict(enumerate(COMPUTE_MODES)).get),
)
# Read once: they do not change while the driver is open.
FIXED_ROWS = (
    _row(
        "power",
        GPU.power_limits_milliwatts["default"],
        "nvmlDeviceGetPowerManagementDefaultLimit",
        MILLIWATTS,
    ),
    _row(
        "power",
        GPU.power_limits_milliwatts,
        "nvmlDeviceGetPowerManagementLimitConstraints",
        MILLIWATTS,
        constraints,
    ),
    *_by_key(
        _row(
            "thermal",
            GPU.temperature_thresholds_celsius,
            "nvmlDeviceGetTemperatureThreshold",
            CELSIUS,
            celsius,
        ),
        THRESHOLDS,
    ),
    *_by_key(_row("clocks", GPU.clocks_max_megahertz, "nvmlDeviceGetMaxClockInfo", MEGAHERTZ), CLOCKS),
    _row("pcie", PCIE_LINK.max_generation, "nvmlDeviceGetMaxPcieLinkGeneration", PCIE_GENERATION, positive),
    _row("pcie", PCIE_LINK.max_width, "nvmlDeviceGetMaxPcieLinkWidth", PCIE_LANES, positive),
    _row("c2c", C2C.enabled, "nvmlDeviceGetC2cModeInfoV1", None, lambda answer: flag(answer.isC2cEnabled)),
)
