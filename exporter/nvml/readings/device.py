"""Tables of the readings of a physical GPU with a call of their own, by class and group.

ROWS are read in every sweep, ENERGY_ROWS every 15 s and SLOW_ROWS every minute, both also after an event of
the GPU, FIXED_ROWS once while the driver is open. Readings with one call for many of them are in ``fields``,
MIG devices in ``exporter.nvml.mig``.
"""

from typing import Any

from exporter.model import EncoderSessions
from exporter.model.hardware import ComputeMode
from exporter.model.readings import Clock, EccScope, EccSeverity, Threshold, Traffic
from exporter.nvml.readings.answers import (
    BAR1,
    MEMORY,
    Decode,
    Row,
    celsius,
    first_percent,
    flag,
    long_number,
    margin,
    number,
    percent,
    word,
)

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
LOWEST_PERFORMANCE_STATE = 15
FABRIC_STATES = ("not_started", "in_progress", "completed")
# NVML reports throughput in KB/s without a definition; nvidia-smi takes 1024 bytes.
KILOBYTE = 1024


def utilization(answer: Any) -> dict[str, int | None]:
    """Return the shares of GPU and memory."""
    return {"utilization_percent": percent(answer.gpu), "memory_copy_percent": percent(answer.memory)}


def encoder_sessions(answer: tuple[int, int, int]) -> EncoderSessions | None:
    """Return the decoded (sessions, average frames per second, average latency in microseconds)."""
    count, fps, latency = map(number, answer)
    if count is None or fps is None or latency is None:
        return None
    return EncoderSessions(count=count, average_fps=fps, average_latency_microseconds=latency)


def constraints(answer: tuple[int, int]) -> dict[str, int | None]:
    """Return the minimum and the maximum limit that can be configured."""
    return {"min": number(answer[0]), "max": number(answer[1])}


def ecc_mode(answer: tuple[int, int]) -> dict[str, bool | None]:
    """Return the current mode, and the mode after the next reboot."""
    return {"enabled": flag(answer[0]), "pending": flag(answer[1])}


def histogram(answer: Any) -> dict[str, int | None]:
    """Return the memory banks by availability of spare rows."""
    return {level: number(getattr(answer, level)) for level in ("max", "high", "partial", "low", "none")}


def performance_state(answer: int) -> int | None:
    """Return the number of a performance state, P0 to P15."""
    return answer if 0 <= answer <= LOWEST_PERFORMANCE_STATE else None


def throughput(answer: int) -> int | None:
    """Return KB/s in bytes per second."""
    amount = number(answer)
    return None if amount is None else amount * KILOBYTE


def fabric(answer: Any) -> str | None:
    """Return the fabric registration state; None for a GPU without a fabric."""
    # The library fills one byte; the binding also reads the padding behind it.
    state = answer.state & 0xFF
    if state == len(FABRIC_STATES) and answer.status != 0:
        return "failed"
    return dict(enumerate(FABRIC_STATES, start=1)).get(state)


def _row(group: str, into: str, call: str, decode: Decode, *arguments: int) -> Row:
    """Return the row of a reading with one call; the keys of its path are joined by dots."""
    return Row(group, tuple(into.split(".")), ((call, arguments),), decode)


# Read in every sweep: load, memory, power, heat and clocks.
ROWS = (
    MEMORY,
    BAR1,
    Row("utilization", (), (("nvmlDeviceGetUtilizationRates", ()),), utilization),
    _row("engines", "engine_percent.encoder", "nvmlDeviceGetEncoderUtilization", first_percent),
    _row("engines", "engine_percent.decoder", "nvmlDeviceGetDecoderUtilization", first_percent),
    _row("engines", "engine_percent.jpeg", "nvmlDeviceGetJpgUtilization", first_percent),
    _row("engines", "engine_percent.ofa", "nvmlDeviceGetOfaUtilization", first_percent),
    _row("power", "power_milliwatts", "nvmlDeviceGetPowerUsage", number),
    Row(
        "thermal",
        ("temperature_celsius",),
        (("nvmlDeviceGetTemperatureV", (0,)), ("nvmlDeviceGetTemperature", (0,))),
        celsius,
    ),
    _row("thermal", "temperature_margin_celsius", "nvmlDeviceGetMarginTemperature", margin),
    *(
        _row("clocks", f"clocks_megahertz.{clock}", "nvmlDeviceGetClockInfo", number, kind)
        for kind, clock in enumerate(CLOCKS)
    ),
    Row(
        "throttling",
        ("clock_events",),
        (
            ("nvmlDeviceGetCurrentClocksEventReasons", ()),
            ("nvmlDeviceGetCurrentClocksThrottleReasons", ()),
        ),
        long_number,
    ),
    # Not slow as the width is: it is lower on an idle GPU, and a job with a period of a minute would be seen
    # idle at each reading.
    _row("pcie", "pcie_link.generation", "nvmlDeviceGetCurrPcieLinkGeneration", number),
    _row("modes", "performance_state", "nvmlDeviceGetPerformanceState", performance_state),
)
# Read in every sweep on request only: each of these calls takes 20 ms.
THROUGHPUT_ROWS = tuple(
    _row("pcie_throughput", f"pcie_throughput.{traffic}", "nvmlDeviceGetPcieThroughput", throughput, kind)
    for kind, traffic in enumerate(DIRECTIONS)
)
# The most expensive call of all: a real driver takes 3 to 18 ms of CPU time for it, as a field too.
ENERGY_ROWS = (_row("power", "energy_millijoules", "nvmlDeviceGetTotalEnergyConsumption", long_number),)
# Health, links, modes and limits: they change by an event or by an administrator, and are most of the calls.
SLOW_ROWS = (
    _row("engines", "encoder_sessions", "nvmlDeviceGetEncoderStats", encoder_sessions),
    _row("power", "power_limits_milliwatts.enforced", "nvmlDeviceGetEnforcedPowerLimit", number),
    _row("power", "power_limits_milliwatts.configured", "nvmlDeviceGetPowerManagementLimit", number),
    _row("thermal", "fan_percent", "nvmlDeviceGetFanSpeed", number),
    *(
        _row(
            "clocks", f"clocks_application_megahertz.{clock}", "nvmlDeviceGetApplicationsClock", number, kind
        )
        for kind, clock in enumerate(CLOCKS)
    ),
    _row("pcie", "pcie_link.width", "nvmlDeviceGetCurrPcieLinkWidth", number),
    _row("pcie", "pcie_replays", "nvmlDeviceGetPcieReplayCounter", number),
    _row("nvlink", "fabric", "nvmlDeviceGetGpuFabricInfoV", fabric),
    _row("ecc", "ecc", "nvmlDeviceGetEccMode", ecc_mode),
    *(
        Row(
            "ecc",
            ("ecc", "by_location", (severity, scope, location)),
            (("nvmlDeviceGetMemoryErrorCounter", (kind, counter, place)),),
            long_number,
        )
        for kind, severity in enumerate(SEVERITIES)
        for counter, scope in enumerate(SCOPES)
        for place, location in enumerate(LOCATIONS)
    ),
    _row("repairs", "repairs.row_banks", "nvmlDeviceGetRowRemapperHistogram", histogram),
    _row("modes", "persistence", "nvmlDeviceGetPersistenceMode", flag),
    _row("modes", "accounting", "nvmlDeviceGetAccountingMode", flag),
    _row("modes", "display_active", "nvmlDeviceGetDisplayActive", flag),
    _row("modes", "compute_mode", "nvmlDeviceGetComputeMode", word(dict(enumerate(COMPUTE_MODES)))),
)
# Read once: they do not change while the driver is open.
FIXED_ROWS = (
    _row("power", "power_limits_milliwatts.default", "nvmlDeviceGetPowerManagementDefaultLimit", number),
    _row("power", "power_limits_milliwatts", "nvmlDeviceGetPowerManagementLimitConstraints", constraints),
    *(
        _row(
            "thermal",
            f"temperature_thresholds_celsius.{threshold}",
            "nvmlDeviceGetTemperatureThreshold",
            celsius,
            kind,
        )
        for kind, threshold in enumerate(THRESHOLDS)
    ),
    *(
        _row("clocks", f"clocks_max_megahertz.{clock}", "nvmlDeviceGetMaxClockInfo", number, kind)
        for kind, clock in enumerate(CLOCKS)
    ),
    _row("pcie", "pcie_link.max_generation", "nvmlDeviceGetMaxPcieLinkGeneration", number),
    _row("pcie", "pcie_link.max_width", "nvmlDeviceGetMaxPcieLinkWidth", number),
)
