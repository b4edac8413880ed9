"""Tables of the readings of a physical GPU with a call of their own, by class and group.

ROWS are read in every sweep, ENERGY_ROWS every 15 s and SLOW_ROWS every minute, both also after an event of
the GPU, FIXED_ROWS once while the driver is open. Readings with one call for many of them are in ``fields``,
MIG devices in ``exporter.nvml.mig``.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from exporter.model import EncoderSessions
from exporter.model.hardware import ComputeMode
from exporter.model.readings import Clock, EccScope, EccSeverity, FabricProblem, Threshold, Traffic
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
    memory,
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
# Of the mask of a fabric's health (``NVML_GPU_FABRIC_HEALTH_MASK_*`` of nvml.h), by shift: the problem of two
# bits, the number that stands for it, and the one for its absence. Others are not reported by the driver.
FABRIC_PROBLEMS: Mapping[int, tuple[FabricProblem, int, int]] = {
    0: ("degraded_bandwidth", 1, 2),
    2: ("route_recovery", 1, 2),
    4: ("route_unhealthy", 1, 2),
    6: ("access_timeout_recovery", 1, 2),
    12: ("no_partition", 2, 1),
    14: ("manager_disconnected", 2, 1),
}
# Four bits of the mask from this shift on: a correct configuration is 1, and the words are from 2 on.
MISCONFIGURATION_SHIFT, CORRECT = 8, 1
MISCONFIGURATIONS = (
    "incorrect_system_guid",
    "incorrect_chassis_serial",
    "no_partition",
    "insufficient_nvlinks",
    "incompatible_firmware",
    "invalid_location",
    "invalid_gpu_state",
)
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


def fabric(answer: Any) -> dict[str, Any] | None:
    """Return the registration with the fabric, domain and problems; None for a GPU without a fabric."""
    # The library fills one byte; the binding also reads the padding behind it.
    state = dict(enumerate(FABRIC_STATES, start=1)).get(answer.state & 0xFF)
    if state is None:
        return None
    health = fabric_health(answer.healthMask)
    if state != "completed":
        return {"state": state, **health}
    if answer.status != 0:
        return {"state": "failed", **health}
    # All zeros if the fabric does not leave the node.
    cluster = bytes(answer.clusterUuid)
    domain = {"cluster": str(uuid.UUID(bytes=cluster)), "clique": answer.cliqueId} if any(cluster) else {}
    return {"state": state, **domain, **health}


def fabric_health(mask: int) -> dict[str, Any]:
    """Return the decoded mask of a fabric's health: the problems that the driver reports, True or False.

    Decoded as by ``NVML_GPU_FABRIC_HEALTH_GET`` of nvml.h:
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlFabricDefs.html
    """
    problems: dict[FabricProblem, bool] = {}
    for shift, (problem, raised, cleared) in FABRIC_PROBLEMS.items():
        state = mask >> shift & 0x3
        if state in (raised, cleared):
            problems[problem] = state == raised
    configuration = mask >> MISCONFIGURATION_SHIFT & 0xF
    if configuration:
        problems["incorrect_configuration"] = configuration != CORRECT
    word_of = dict(enumerate(MISCONFIGURATIONS, start=CORRECT + 1)).get(configuration)
    return {"problems": problems, "misconfiguration": word_of}


def repair_status(answer: tuple[int, int]) -> dict[str, bool | None]:
    """Return whether a repair of a memory channel, and of a texture processing cluster, is pending."""
    return {"channel_repair_pending": flag(answer[0]), "tpc_repair_pending": flag(answer[1])}


def c2c_mode(answer: Any) -> bool | None:
    """Return whether C2C mode is on."""
    return flag(answer.isC2cEnabled)


def _row(group: str, into: str, call: str, decode: Decode, *arguments: int) -> Row:
    """Return the row of a reading with one call; the keys of its path are joined by dots."""
    return Row(group, tuple(into.split(".")), ((call, arguments),), decode)


def _rows(group: str, into: str, call: str, decode: Decode, keys: Iterable[str]) -> Iterator[Row]:
    """Yield a row below ``into`` for each key; the argument of its call is its place."""
    for kind, key in enumerate(keys):
        yield _row(group, f"{into}.{key}", call, decode, kind)


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
    *_rows("clocks", "clocks_megahertz", "nvmlDeviceGetClockInfo", number, CLOCKS),
    Row(
        "throttling",
        ("clock_events",),
        (("nvmlDeviceGetCurrentClocksEventReasons", ()), ("nvmlDeviceGetCurrentClocksThrottleReasons", ())),
        long_number,
    ),
    # Not slow as the width is: it is lower on an idle GPU, and a job with a period of a minute would be seen
    # idle at each reading.
    _row("pcie", "pcie_link.generation", "nvmlDeviceGetCurrPcieLinkGeneration", number),
    _row("modes", "performance_state", "nvmlDeviceGetPerformanceState", performance_state),
)
# Read in every sweep on request only: each of these calls takes 20 ms.
THROUGHPUT_ROWS = tuple(
    _rows("pcie_throughput", "pcie_throughput", "nvmlDeviceGetPcieThroughput", throughput, DIRECTIONS)
)
# The most expensive call of all: a real driver takes 3 to 18 ms of CPU time for it, as a field too.
ENERGY_ROWS = (_row("power", "energy_millijoules", "nvmlDeviceGetTotalEnergyConsumption", long_number),)
# Health, links, modes and limits: they change by an event or by an administrator, and are most of the calls.
SLOW_ROWS = (
    _row("engines", "encoder_sessions", "nvmlDeviceGetEncoderStats", encoder_sessions),
    _row("power", "power_limits_milliwatts.enforced", "nvmlDeviceGetEnforcedPowerLimit", number),
    _row("power", "power_limits_milliwatts.configured", "nvmlDeviceGetPowerManagementLimit", number),
    _row("thermal", "fan_percent", "nvmlDeviceGetFanSpeed", number),
    *_rows("clocks", "clocks_application_megahertz", "nvmlDeviceGetApplicationsClock", number, CLOCKS),
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
    _row("repairs", "repairs", "nvmlDeviceGetRepairStatus", repair_status),
    _row("confidential", "protected_memory", "nvmlDeviceGetConfComputeProtectedMemoryUsage", memory),
    _row("modes", "persistence", "nvmlDeviceGetPersistenceMode", flag),
    _row("modes", "accounting", "nvmlDeviceGetAccountingMode", flag),
    _row("modes", "display_active", "nvmlDeviceGetDisplayActive", flag),
    _row("modes", "compute_mode", "nvmlDeviceGetComputeMode", word(dict(enumerate(COMPUTE_MODES)))),
)
# Read once: they do not change while the driver is open.
FIXED_ROWS = (
    _row("power", "power_limits_milliwatts.default", "nvmlDeviceGetPowerManagementDefaultLimit", number),
    _row("power", "power_limits_milliwatts", "nvmlDeviceGetPowerManagementLimitConstraints", constraints),
    *_rows(
        "thermal", "temperature_thresholds_celsius", "nvmlDeviceGetTemperatureThreshold", celsius, THRESHOLDS
    ),
    *_rows("clocks", "clocks_max_megahertz", "nvmlDeviceGetMaxClockInfo", number, CLOCKS),
    _row("pcie", "pcie_link.max_generation", "nvmlDeviceGetMaxPcieLinkGeneration", number),
    _row("pcie", "pcie_link.max_width", "nvmlDeviceGetMaxPcieLinkWidth", number),
    _row("c2c", "c2c.enabled", "nvmlDeviceGetC2cModeInfoV1", c2c_mode),
)
