"""Fields of health: errors of the memory, its repairs, and NVLink."""

from collections.abc import Iterator

from exporter.metrics import AnyFamily, Family, Labelled, LabelledFamily
from exporter.metrics.dcgm.row import (
    WINDOW_SECONDS,
    DcgmRow,
    Value,
    counter,
    ecc,
    flag,
    gauge,
    nvlink,
    reading,
    repairs,
)
from exporter.model.readings import (
    RECOVERY_ACTIONS,
    ClockEvent,
    EccScope,
    EccSeverity,
    NvlinkError,
    Violation,
)
from exporter.model.xids import explain

_SEVERITIES: tuple[tuple[str, EccSeverity, str], ...] = (
    ("SBE", "corrected", "corrected"),
    ("DBE", "uncorrected", "uncorrected"),
)
_SCOPES: tuple[tuple[str, EccScope, str], ...] = (
    ("VOL", "volatile", "since the driver was loaded"),
    ("AGG", "aggregate", "ever"),
)
_LOCATIONS = (
    ("L1", "l1_cache", "the L1 cache"),
    ("L2", "l2_cache", "the L2 cache"),
    ("DEV", "dram", "the device memory"),
    ("REG", "register_file", "the register file"),
    ("TEX", "texture_memory", "the texture memory"),
    ("SHM", "shared_memory", "the shared memory"),
    ("CBU", "cbu", "the convergence barrier unit"),
    ("SRM", "sram", "the SRAM"),
)
_NVLINK_ERRORS: tuple[tuple[str, NvlinkError, str], ...] = (
    ("CRC_FLIT", "crc_flit", "Flow control digits with a wrong checksum"),
    ("CRC_DATA", "crc_data", "Data with a wrong checksum"),
    ("REPLAY", "replay", "Replays"),
    ("RECOVERY", "recovery", "Recoveries"),
)
_BANKS = (
    ("MAX", "max", "all"),
    ("HIGH", "high", "many"),
    ("PARTIAL", "partial", "some"),
    ("LOW", "low", "few"),
    ("NONE", "none", "none"),
)


def _ecc_errors(severity: EccSeverity, scope: EccScope) -> Value:
    return ecc(lambda found: found.errors.get((severity, scope)))


def _ecc_errors_at(severity: EccSeverity, scope: EccScope, location: str) -> Value:
    return ecc(lambda found: found.by_location.get((severity, scope, location)))


def _nvlink_errors(kind: NvlinkError) -> Value:
    return nvlink(lambda found: found.errors.get(kind))


def _banks(left: str) -> Value:
    return repairs(lambda found: found.row_banks.get(left))


def _nvlink_bandwidth(row: DcgmRow) -> int | None:
    """Give what DCGM makes of the counters: KiB per second, both directions, divided by 1000."""
    if row.gpu is None or row.reading is None:
        return None
    rate = row.gpu.nvlink_bytes_per_second
    if rate is None and row.reading.profiling is not None:
        rates = row.reading.profiling.rates
        if "nvlink_transmit" in rates and "nvlink_receive" in rates:
            rate = rates["nvlink_transmit"] + rates["nvlink_receive"]
    return None if rate is None else int(rate / 1024 / 1000)


ECC: tuple[Family[DcgmRow], ...] = (
    gauge("DEV_ECC_CURRENT", "ecc", "1 if ECC is on.", ecc(lambda found: flag(found.enabled))),
    gauge(
        "DEV_ECC_PENDING",
        "ecc",
        "1 if ECC will be on after the next reboot.",
        ecc(lambda found: flag(found.pending)),
    ),
    *(
        counter(
            f"DEV_ECC_{short}_{when}_TOTAL",
            "ecc",
            f"ECC errors {word}, {since}.",
            _ecc_errors(severity, scope),
        )
        for when, scope, since in _SCOPES
        for short, severity, word in _SEVERITIES
    ),
    *(
        counter(
            f"DEV_ECC_{short}_{when}_{where}",
            "ecc",
            f"ECC errors {word} in {place}, {since}.",
            _ecc_errors_at(severity, scope, location),
        )
        for where, location, place in _LOCATIONS
        for when, scope, since in _SCOPES
        for short, severity, word in _SEVERITIES
    ),
)

REPAIRS: tuple[Family[DcgmRow], ...] = (
    counter(
        "DEV_RETIRED_SBE",
        "repairs",
        "Pages retired after single-bit errors.",
        repairs(lambda found: found.retired_pages.get("single_bit")),
    ),
    counter(
        "DEV_RETIRED_DBE",
        "repairs",
        "Pages retired after double-bit errors.",
        repairs(lambda found: found.retired_pages.get("double_bit")),
    ),
    gauge(
        "DEV_RETIRED_PENDING",
        "repairs",
        "1 if a page will be retired at the next reboot.",
        repairs(lambda found: flag(found.retired_pages_pending)),
    ),
    counter(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "repairs",
        "Rows remapped after uncorrectable errors.",
        repairs(lambda found: found.remapped_rows.get("uncorrected")),
    ),
    counter(
        "DEV_CORRECTABLE_REMAPPED_ROWS",
        "repairs",
        "Rows remapped after correctable errors.",
        repairs(lambda found: found.remapped_rows.get("corrected")),
    ),
    gauge(
        "DEV_ROW_REMAP_FAILURE",
        "repairs",
        "1 if a row could not be remapped.",
        repairs(lambda found: flag(found.row_remap_failure)),
    ),
    gauge(
        "DEV_ROW_REMAP_PENDING",
        "repairs",
        "1 if a row will be remapped when the GPU is reset.",
        repairs(lambda found: flag(found.row_remap_pending)),
    ),
    *(
        gauge(
            f"DEV_BANKS_REMAP_ROWS_AVAIL_{name}",
            "repairs",
            f"Banks of memory with {amount} of their spare rows left.",
            _banks(left),
        )
        for name, left, amount in _BANKS
    ),
    gauge(
        "DEV_GET_GPU_RECOVERY_ACTION",
        "repairs",
        "What the GPU needs: 0 nothing, 1 reset, 2 reboot, 3 draining of peers, 4 draining and reset.",
        reading(lambda r: None if r.recovery_action is None else RECOVERY_ACTIONS.index(r.recovery_action)),
    ),
)

NVLINK: tuple[Family[DcgmRow], ...] = (
    *(
        counter(
            f"DEV_NVLINK_{name}_ERROR_COUNT_TOTAL", "nvlink", f"{what} over NVLink.", _nvlink_errors(kind)
        )
        for name, kind, what in _NVLINK_ERRORS
    ),
    gauge(
        "DEV_NVLINK_BANDWIDTH_TOTAL",
        "nvlink",
        "Rate of traffic over all NVLinks, both directions (MB/s).",
        _nvlink_bandwidth,
    ),
)


_CLOCK_EVENTS: dict[ClockEvent, str] = {
    "idle": "gpu_idle",
    "application_clocks": "clocks_setting",
    "power_cap": "power_cap",
    "hardware_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "software_thermal": "sw_thermal",
    "hardware_thermal": "hw_thermal",
    "power_brake": "hw_power_brake",
    "display": "display_clocks",
}
_VIOLATIONS: tuple[tuple[str, Violation, str], ...] = (
    ("POWER_VIOLATION", "power", "power"),
    ("THERMAL_VIOLATION", "thermal", "heat"),
    ("SYNC_BOOST_VIOLATION", "sync_boost", "sync boost"),
    ("BOARD_LIMIT_VIOLATION", "board_limit", "the board's limit"),
    ("LOW_UTIL_VIOLATION", "low_utilization", "low utilization"),
    ("RELIABILITY_VIOLATION", "reliability", "reliability"),
    ("TOTAL_APP_CLOCKS_VIOLATION", "application_clocks", "anything, below the applications' clocks"),
    ("TOTAL_BASE_CLOCKS_VIOLATION", "base_clocks", "anything, below the base clocks"),
    ("CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", "power", "the driver's power cap"),
    ("CLOCKS_EVENT_REASON_SYNC_BOOST_NS", "sync_boost", "the clocks of a group"),
    ("CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", "software_thermal", "heat, by the driver"),
    ("CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", "hardware_thermal", "heat, by the hardware"),
    ("CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", "power_brake", "the board's power brake"),
)


def _violation(name: str, kind: Violation, cause: str) -> Family[DcgmRow]:
    text = f"Time for which {cause} held the clocks down (ns)."
    return counter(f"DEV_{name}", "throttling", text, reading(lambda r: r.violations_nanoseconds.get(kind)))


def _last_xid(row: DcgmRow) -> Iterator[Labelled]:
    code = row.xids.last
    if code is not None:
        yield (str(code), explain(code).meaning if code else "No Error"), code


def _xid_totals(row: DcgmRow) -> Iterator[Labelled]:
    for xid, count in row.xids.totals.items():
        yield (str(xid),), count


def _recent_xids(row: DcgmRow) -> Iterator[Labelled]:
    """Count by code, or give one 0 without a code: that is how dcgm-exporter says that there were none."""
    if row.xids.recent is not None:
        window = str(WINDOW_SECONDS * 1000)
        for xid, count in row.xids.recent.items():
            yield (window, str(xid)), count
        if not row.xids.recent:
            yield (window, ""), 0


def _clock_events(row: DcgmRow) -> Iterator[Labelled]:
    if row.gpu is not None:
        for reason, count in row.gpu.clock_events.items():
            if reason in _CLOCK_EVENTS:
                yield (_CLOCK_EVENTS[reason],), count


THROTTLING: tuple[AnyFamily, ...] = (
    gauge(
        "DEV_CLOCK_THROTTLE_REASONS",
        "throttling",
        "What holds the clocks down now, as a sum of the driver's bits.",
        reading(lambda r: r.clock_events),
    ),
    gauge(
        "DEV_CLOCKS_EVENT_REASONS",
        "throttling",
        "What holds the clocks down now, as a sum of the driver's bits; the newer name of the two.",
        reading(lambda r: r.clock_events),
    ),
    *(_violation(*row) for row in _VIOLATIONS),
    LabelledFamily(
        "DCGM_EXP_CLOCK_EVENTS_TOTAL",
        "counter",
        "dcgm",
        "How often something began to hold the clocks down, as seen from poll to poll.",
        ("clock_event",),
        _clock_events,
        group="throttling",
    ),
)

XIDS: tuple[AnyFamily, ...] = (
    LabelledFamily(
        "DCGM_FI_DEV_XID_ERRORS",
        "gauge",
        "dcgm",
        "Code of the last XID error, 0 until there is one.",
        ("err_code", "err_msg"),
        _last_xid,
        group="events",
    ),
    LabelledFamily(
        "DCGM_EXP_XID_ERRORS_TOTAL",
        "counter",
        "dcgm",
        "XID errors since the exporter was started, by code.",
        ("xid",),
        _xid_totals,
        group="events",
    ),
    LabelledFamily(
        "DCGM_EXP_XID_ERRORS_COUNT",
        "gauge",
        "dcgm",
        "XID errors of the last five minutes, by code.",
        ("window_size_in_ms", "xid"),
        _recent_xids,
        group="events",
    ),
)
