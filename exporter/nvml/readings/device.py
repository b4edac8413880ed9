"""What one physical GPU says: the tables of its readings, in the order of their groups.

Many counters come together in one call: they are in ``fields``. What belongs to MIG devices is in ``mig``.
"""

from collections.abc import Mapping
from typing import Any

from exporter.model import Ecc, EncoderSessions, Nvlink, PcieLink, Repairs
from exporter.model.hardware import ComputeMode
from exporter.model.readings import Clock, EccScope, EccSeverity, Threshold, Traffic
from exporter.nvml.driver.calls import FIELDS, Calls
from exporter.nvml.readings.answers import (
    Found,
    Row,
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
from exporter.nvml.readings.memory import BAR1, MEMORY

GROUP, ACTIVE = "nvlink", 1


def active_links(calls: Calls, uuid: str, handle: Any, found: Found) -> frozenset[int] | None:
    """Count the active links into what was found and return their numbers; None where one is not told.

    Drivers that have no field for the state of a link have a call for it.
    """
    states = found.pop("link_states", {})
    links = found.get("nvlink", {}).get("links")
    if links is None:
        return None
    calls.group = GROUP
    for link in range(links):
        if link not in states and not calls.supports(uuid, FIELDS, LINK_STATE, link):
            states[link] = calls.ask(uuid, "nvmlDeviceGetNvLinkState", handle, link)
    if any(states.get(link) is None for link in range(links)):
        return None
    active = frozenset(link for link, state in states.items() if state == ACTIVE)
    found["nvlink"]["active"] = len(active)
    return active


# These are in the order of the driver's numbers.
CLOCKS: tuple[Clock, ...] = ("graphics", "sm", "memory", "video")
THRESHOLDS: tuple[Threshold, ...] = ("shutdown", "slowdown", "memory", "gpu")
COMPUTE_MODES: tuple[ComputeMode, ...] = ("default", "exclusive_thread", "prohibited", "exclusive_process")
SEVERITIES: tuple[EccSeverity, ...] = ("corrected", "uncorrected")
SCOPES: tuple[EccScope, ...] = ("volatile", "aggregate")
DIRECTIONS: tuple[Traffic, ...] = ("pcie_transmit", "pcie_receive")
# Caches and the like up to Volta; since Turing the driver tells DRAM and SRAM.
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
DEEPEST_STATE = 15
FABRIC_STATES = ("not_started", "in_progress", "completed")
# Throughput is told in KB/s. NVML does not say what a KB is; the tools that show it take 1024 bytes.
KILOBYTE = 1024
RECORDS = {"pcie_link": PcieLink, "nvlink": Nvlink, "ecc": Ecc, "repairs": Repairs}


def utilization(answer: Any) -> dict[str, int | None]:
    """Take both shares of one answer."""
    return {"utilization_percent": percent(answer.gpu), "memory_copy_percent": percent(answer.memory)}


def encoder_sessions(answer: tuple[int, int, int]) -> EncoderSessions | None:
    """Decode (sessions, mean frames per second, mean latency in microseconds)."""
    count, fps, latency = map(number, answer)
    if count is None or fps is None or latency is None:
        return None
    return EncoderSessions(count=count, average_fps=fps, average_latency_microseconds=latency)


def constraints(answer: tuple[int, int]) -> dict[str, int | None]:
    """Take the lowest and the highest limit that could be set."""
    return {"min": number(answer[0]), "max": number(answer[1])}


def ecc_mode(answer: tuple[int, int]) -> dict[str, bool | None]:
    """Take the mode now and after the next reboot."""
    return {"enabled": flag(answer[0]), "pending": flag(answer[1])}


def histogram(answer: Any) -> dict[str, int | None]:
    """Count memory banks by how many spare rows they have left."""
    return {left: number(getattr(answer, left)) for left in ("max", "high", "partial", "low", "none")}


def performance_state(answer: int) -> int | None:
    """Keep P0 to P15; another number says that it is not known."""
    return answer if 0 <= answer <= DEEPEST_STATE else None


def throughput(answer: int) -> int | None:
    """Turn the driver's KB/s into bytes per second."""
    amount = number(answer)
    return None if amount is None else amount * KILOBYTE


def fabric(answer: Any) -> str | None:
    """Name how far a GPU has been joined to its fabric; one that is in no fabric says so, and has no word."""
    # The library has one byte for it; the binding reads what is unused behind that along with it.
    state = answer.state & 0xFF
    if state == len(FABRIC_STATES) and answer.status != 0:
        return "failed"
    return dict(enumerate(FABRIC_STATES, start=1)).get(state)


# Asked at every sweep.
ROWS = (
    MEMORY,
    BAR1,
    Row("utilization", (), (("nvmlDeviceGetUtilizationRates", ()),), utilization),
    Row("engines", ("engine_percent", "encoder"), (("nvmlDeviceGetEncoderUtilization", ()),), first_percent),
    Row("engines", ("engine_percent", "decoder"), (("nvmlDeviceGetDecoderUtilization", ()),), first_percent),
    Row("engines", ("engine_percent", "jpeg"), (("nvmlDeviceGetJpgUtilization", ()),), first_percent),
    Row("engines", ("engine_percent", "ofa"), (("nvmlDeviceGetOfaUtilization", ()),), first_percent),
    Row("engines", ("encoder_sessions",), (("nvmlDeviceGetEncoderStats", ()),), encoder_sessions),
    Row("power", ("power_milliwatts",), (("nvmlDeviceGetPowerUsage", ()),), number),
    Row("power", ("energy_millijoules",), (("nvmlDeviceGetTotalEnergyConsumption", ()),), long_number),
    Row(
        "power",
        ("power_limits_milliwatts", "enforced"),
        (("nvmlDeviceGetEnforcedPowerLimit", ()),),
        number,
    ),
    Row(
        "power",
        ("power_limits_milliwatts", "configured"),
        (("nvmlDeviceGetPowerManagementLimit", ()),),
        number,
    ),
    Row(
        "thermal",
        ("temperature_celsius",),
        (("nvmlDeviceGetTemperatureV", (0,)), ("nvmlDeviceGetTemperature", (0,))),
        celsius,
    ),
    Row("thermal", ("temperature_margin_celsius",), (("nvmlDeviceGetMarginTemperature", ()),), margin),
    Row("thermal", ("fan_percent",), (("nvmlDeviceGetFanSpeed", ()),), number),
    *(
        Row("clocks", ("clocks_megahertz", clock), (("nvmlDeviceGetClockInfo", (kind,)),), number)
        for kind, clock in enumerate(CLOCKS)
    ),
    *(
        Row(
            "clocks",
            ("clocks_application_megahertz", clock),
            (("nvmlDeviceGetApplicationsClock", (kind,)),),
            number,
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
    Row("pcie", ("pcie_link", "generation"), (("nvmlDeviceGetCurrPcieLinkGeneration", ()),), number),
    Row("pcie", ("pcie_link", "width"), (("nvmlDeviceGetCurrPcieLinkWidth", ()),), number),
    Row("pcie", ("pcie_replays",), (("nvmlDeviceGetPcieReplayCounter", ()),), number),
    Row("nvlink", ("fabric",), (("nvmlDeviceGetGpuFabricInfoV", ()),), fabric),
    Row("ecc", ("ecc",), (("nvmlDeviceGetEccMode", ()),), ecc_mode),
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
    Row("repairs", ("repairs", "row_banks"), (("nvmlDeviceGetRowRemapperHistogram", ()),), histogram),
    Row("modes", ("performance_state",), (("nvmlDeviceGetPerformanceState", ()),), performance_state),
    Row("modes", ("persistence",), (("nvmlDeviceGetPersistenceMode", ()),), flag),
    Row("modes", ("accounting",), (("nvmlDeviceGetAccountingMode", ()),), flag),
    Row("modes", ("display_active",), (("nvmlDeviceGetDisplayActive", ()),), flag),
    Row(
        "modes",
        ("compute_mode",),
        (("nvmlDeviceGetComputeMode", ()),),
        word(dict(enumerate(COMPUTE_MODES))),
    ),
)
# Each of these keeps the sweep waiting for 20 ms.
SLOW_ROWS = tuple(
    Row(
        "pcie_throughput",
        ("pcie_throughput", direction),
        (("nvmlDeviceGetPcieThroughput", (kind,)),),
        throughput,
    )
    for kind, direction in enumerate(DIRECTIONS)
)
# What cannot change while the driver is open is asked once.
FIXED_ROWS = (
    Row(
        "power",
        ("power_limits_milliwatts", "default"),
        (("nvmlDeviceGetPowerManagementDefaultLimit", ()),),
        number,
    ),
    Row(
        "power",
        ("power_limits_milliwatts",),
        (("nvmlDeviceGetPowerManagementLimitConstraints", ()),),
        constraints,
    ),
    *(
        Row(
            "thermal",
            ("temperature_thresholds_celsius", threshold),
            (("nvmlDeviceGetTemperatureThreshold", (kind,)),),
            celsius,
        )
        for kind, threshold in enumerate(THRESHOLDS)
    ),
    *(
        Row("clocks", ("clocks_max_megahertz", clock), (("nvmlDeviceGetMaxClockInfo", (kind,)),), number)
        for kind, clock in enumerate(CLOCKS)
    ),
    Row("pcie", ("pcie_link", "max_generation"), (("nvmlDeviceGetMaxPcieLinkGeneration", ()),), number),
    Row("pcie", ("pcie_link", "max_width"), (("nvmlDeviceGetMaxPcieLinkWidth", ()),), number),
)


class DeviceReader:
    """Reads what GPUs say, and keeps what is asked once. ``pcie_throughput`` asks for the slow rows too."""

    def __init__(self, *, pcie_throughput: bool = False) -> None:
        self._rows = (*ROWS, *(SLOW_ROWS if pcie_throughput else ()))
        self._fields = FieldReader()
        self._fixed: dict[str, dict[Row, Any]] = {}

    def read(self, calls: Calls, uuid: str, handle: Any) -> tuple[dict[str, Any], frozenset[int] | None]:
        """Return the fields of GpuReading that this GPU tells, and its active NVLinks.

        The fields are empty where it told nothing now, whatever was known of it before.
        """
        found: Found = {}
        for row in self._rows:
            set_path(found, row.into, ask_row(calls, uuid, handle, row))
        self._fields.read(calls, uuid, handle, found)
        active = active_links(calls, uuid, handle, found)
        if found:
            self._add_fixed(calls, uuid, handle, found)
        return _records(found), active

    def forget(self, uuid: str | None = None) -> None:
        """Ask again what was asked once: of one GPU that was cut differently, of all of another driver."""
        if uuid is None:
            self._fixed.clear()
            self._fields.forget()
        else:
            self._fixed.pop(uuid, None)
            self._fields.forget(uuid)

    def _add_fixed(self, calls: Calls, uuid: str, handle: Any, found: Found) -> None:
        known = self._fixed.setdefault(uuid, {})
        for row in FIXED_ROWS:
            if row not in known:
                failures = calls.failures()
                value = ask_row(calls, uuid, handle, row)
                if calls.failures() == failures:
                    known[row] = value
            set_path(found, row.into, known.get(row))


def _records(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the records of the model of what was found for them."""
    return {field: RECORDS[field](**value) if field in RECORDS else value for field, value in found.items()}
