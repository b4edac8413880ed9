"""Tables of the readings of a physical GPU with a call of their own, by group.

Readings with one call for many of them are in ``fields``, MIG devices in ``exporter.nvml.mig``.
"""

from typing import Any

from exporter.model import Ecc, EncoderSessions, Nvlink, PcieLink, Repairs
from exporter.model.hardware import ComputeMode
from exporter.model.readings import Clock, EccScope, EccSeverity, Threshold, Traffic
from exporter.nvml.driver.calls import FIELDS, Calls
from exporter.nvml.readings.answers import (
    BAR1,
    MEMORY,
    Decode,
    Row,
    Values,
    ask_row,
    celsius,
    first_percent,
    flag,
    long_number,
    margin,
    number,
    percent,
    set_path,
    word,
)
from exporter.nvml.readings.field_reader import FieldReader
from exporter.nvml.readings.fields import LINK_STATE

ACTIVE = 1


def active_links(calls: Calls, uuid: str, handle: Any, values: Values) -> frozenset[int] | None:
    """Set the number of active NVLinks in ``values``; return the active links, None if one is unknown.

    Drivers without a field for the state of a link have a call for it. Raises as ``Calls.ask`` does.
    """
    states = values.pop("link_states", {})
    links = values.get("nvlink", {}).get("links")
    if links is None:
        return None
    calls.group = "nvlink"
    for link in range(links):
        if link not in states and not calls.supports(uuid, FIELDS, LINK_STATE, link):
            states[link] = calls.ask(uuid, "nvmlDeviceGetNvLinkState", handle, link)
    if any(states.get(link) is None for link in range(links)):
        return None
    active = frozenset(link for link, state in states.items() if state == ACTIVE)
    values["nvlink"]["active"] = len(active)
    return active


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
RECORDS = {"pcie_link": PcieLink, "nvlink": Nvlink, "ecc": Ecc, "repairs": Repairs}


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


# Read in every sweep.
ROWS = (
    MEMORY,
    BAR1,
    Row("utilization", (), (("nvmlDeviceGetUtilizationRates", ()),), utilization),
    _row("engines", "engine_percent.encoder", "nvmlDeviceGetEncoderUtilization", first_percent),
    _row("engines", "engine_percent.decoder", "nvmlDeviceGetDecoderUtilization", first_percent),
    _row("engines", "engine_percent.jpeg", "nvmlDeviceGetJpgUtilization", first_percent),
    _row("engines", "engine_percent.ofa", "nvmlDeviceGetOfaUtilization", first_percent),
    _row("engines", "encoder_sessions", "nvmlDeviceGetEncoderStats", encoder_sessions),
    _row("power", "power_milliwatts", "nvmlDeviceGetPowerUsage", number),
    _row("power", "energy_millijoules", "nvmlDeviceGetTotalEnergyConsumption", long_number),
    _row("power", "power_limits_milliwatts.enforced", "nvmlDeviceGetEnforcedPowerLimit", number),
    _row("power", "power_limits_milliwatts.configured", "nvmlDeviceGetPowerManagementLimit", number),
    Row(
        "thermal",
        ("temperature_celsius",),
        (("nvmlDeviceGetTemperatureV", (0,)), ("nvmlDeviceGetTemperature", (0,))),
        celsius,
    ),
    _row("thermal", "temperature_margin_celsius", "nvmlDeviceGetMarginTemperature", margin),
    _row("thermal", "fan_percent", "nvmlDeviceGetFanSpeed", number),
    *(
        _row("clocks", f"clocks_megahertz.{clock}", "nvmlDeviceGetClockInfo", number, kind)
        for kind, clock in enumerate(CLOCKS)
    ),
    *(
        _row(
            "clocks", f"clocks_application_megahertz.{clock}", "nvmlDeviceGetApplicationsClock", number, kind
        )
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
    _row("pcie", "pcie_link.generation", "nvmlDeviceGetCurrPcieLinkGeneration", number),
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
    _row("modes", "performance_state", "nvmlDeviceGetPerformanceState", performance_state),
    _row("modes", "persistence", "nvmlDeviceGetPersistenceMode", flag),
    _row("modes", "accounting", "nvmlDeviceGetAccountingMode", flag),
    _row("modes", "display_active", "nvmlDeviceGetDisplayActive", flag),
    _row("modes", "compute_mode", "nvmlDeviceGetComputeMode", word(dict(enumerate(COMPUTE_MODES)))),
)
# Each of these calls takes 20 ms.
SLOW_ROWS = tuple(
    _row("pcie_throughput", f"pcie_throughput.{traffic}", "nvmlDeviceGetPcieThroughput", throughput, kind)
    for kind, traffic in enumerate(DIRECTIONS)
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


class DeviceReader:
    """Reads the tables for every GPU, and keeps fixed values. ``pcie_throughput`` adds the slow rows."""

    def __init__(self, *, pcie_throughput: bool = False) -> None:
        self._rows = (*ROWS, *(SLOW_ROWS if pcie_throughput else ()))
        self._fields = FieldReader()
        self._fixed: dict[str, dict[Row, Any]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any) -> tuple[dict[str, Any], frozenset[int] | None]:
        """Return the known fields of GpuReading, and the active NVLinks, None if unknown.

        Without a current value there are no fields. Raises as ``Calls.ask`` does.
        """
        values: Values = {}
        for row in self._rows:
            set_path(values, row.into, ask_row(calls, uuid, handle, row))
        self._fields.read(calls, uuid, handle, values)
        active = active_links(calls, uuid, handle, values)
        if values:
            self._add_fixed(calls, uuid, handle, values)
        return with_records(values), active

    def forget(self, uuid: str | None = None) -> None:
        """Read fixed values again: of a repartitioned GPU, or of all after the driver was opened."""
        if uuid is None:
            self._fixed.clear()
            self._fields.forget()
        else:
            self._fixed.pop(uuid, None)
            self._fields.forget(uuid)

    def _add_fixed(self, calls: Calls, uuid: str, handle: Any, values: Values) -> None:
        known = self._fixed.setdefault(uuid, {})
        for row in FIXED_ROWS:
            if row not in known:
                failures = calls.failures()
                value = ask_row(calls, uuid, handle, row)
                if calls.failures() == failures:
                    known[row] = value
            set_path(values, row.into, known.get(row))


def with_records(values: Values) -> dict[str, Any]:
    """Return the values with records of the model in place of the dictionaries of their fields."""
    return {field: RECORDS[field](**value) if field in RECORDS else value for field, value in values.items()}
