"""Fields of health: XID errors, reasons that limit the clocks, ECC errors, memory repair, and NVLink."""

from collections.abc import Iterator

from exporter.metrics.dcgm.entities import DCGM_ROWS, EXPERIMENTAL, READING, WINDOW_SECONDS, DcgmRow
from exporter.metrics.family import AnyFamily, Family, Labelled, entry
from exporter.model.readings import (
    RECOVERY_ACTIONS,
    ClockEvent,
    EccScope,
    EccSeverity,
    NvlinkError,
    Violation,
)
from exporter.model.xids import explain

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
    ("POWER_VIOLATION", "power", "reduced by the power limit"),
    ("THERMAL_VIOLATION", "thermal", "reduced by the thermal limit"),
    ("SYNC_BOOST_VIOLATION", "sync_boost", "reduced by sync boost"),
    ("BOARD_LIMIT_VIOLATION", "board_limit", "reduced by the board limit"),
    ("LOW_UTIL_VIOLATION", "low_utilization", "reduced by low utilization"),
    ("RELIABILITY_VIOLATION", "reliability", "reduced by the board reliability limit"),
    ("TOTAL_APP_CLOCKS_VIOLATION", "application_clocks", "below the applications clocks"),
    ("TOTAL_BASE_CLOCKS_VIOLATION", "base_clocks", "below the base clocks"),
    ("CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", "power", "reduced by the software power cap"),
    ("CLOCKS_EVENT_REASON_SYNC_BOOST_NS", "sync_boost", "reduced by a sync boost group"),
    ("CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", "software_thermal", "reduced by software thermal slowdown"),
    ("CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", "hardware_thermal", "reduced by hardware thermal slowdown"),
    ("CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", "power_brake", "reduced by the hardware power brake"),
)

_THROTTLING = READING.grouped("throttling")
_EVENTS = EXPERIMENTAL.grouped("events")


def _last_xid(row: DcgmRow) -> Iterator[Labelled]:
    code = row.xids.last
    if code is not None:
        yield (str(code), explain(code).meaning if code else "No Error"), code


def _recent_xids(row: DcgmRow) -> Iterator[Labelled]:
    """Yield the count of each code, or one 0 without a code if there were none, as dcgm-exporter does."""
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
    _THROTTLING.gauge(
        "DEV_CLOCK_THROTTLE_REASONS",
        "Bitmask of the reasons that currently limit the clocks.",
        lambda gpu: gpu.clock_events,
    ),
    _THROTTLING.gauge(
        "DEV_CLOCKS_EVENT_REASONS",
        "Bitmask of the reasons that currently limit the clocks; the newer name of "
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS.",
        lambda gpu: gpu.clock_events,
    ),
    *(
        _THROTTLING.counter(
            f"DEV_{name}",
            f"Time for which the clocks were {state} (ns).",
            entry("violations_nanoseconds", kind),
        )
        for name, kind, state in _VIOLATIONS
    ),
    EXPERIMENTAL.grouped("throttling").counter_by(
        "CLOCK_EVENTS_TOTAL{clock_event}",
        "Times that a reason started to limit the clocks, as observed from poll to poll, by reason.",
        _clock_events,
    ),
)

XIDS: tuple[AnyFamily, ...] = (
    DCGM_ROWS.grouped("events").gauge_by(
        "DEV_XID_ERRORS{err_code, err_msg}",
        "Code of the last XID error; 0 before the first error.",
        _last_xid,
    ),
    _EVENTS.counter_by(
        "XID_ERRORS_TOTAL{xid}",
        "XID errors since the exporter started, by code.",
        lambda row: (((str(xid),), count) for xid, count in row.xids.totals.items()),
    ),
    _EVENTS.gauge_by(
        "XID_ERRORS_COUNT{window_size_in_ms, xid}",
        "XID errors in the last five minutes, by code.",
        _recent_xids,
    ),
)


_ECC = READING.of(lambda gpu: gpu.ecc, "ecc")
_REPAIRS = READING.of(lambda gpu: gpu.repairs, "repairs")
_NVLINK = READING.of(lambda gpu: gpu.nvlink, "nvlink")

_SEVERITIES: tuple[tuple[str, EccSeverity, str], ...] = (
    ("SBE", "corrected", "Single-bit (corrected)"),
    ("DBE", "uncorrected", "Double-bit (uncorrected)"),
)
_SCOPES: tuple[tuple[str, EccScope, str], ...] = (
    ("VOL", "volatile", "since the driver was loaded"),
    ("AGG", "aggregate", "over the lifetime of the GPU"),
)
_LOCATIONS = (
    ("L1", "l1_cache", "the L1 cache"),
    ("L2", "l2_cache", "the L2 cache"),
    ("DEV", "dram", "device memory"),
    ("REG", "register_file", "the register file"),
    ("TEX", "texture_memory", "texture memory"),
    ("SHM", "shared_memory", "shared memory"),
    ("CBU", "cbu", "the convergence barrier unit"),
    ("SRM", "sram", "SRAM"),
)
_NVLINK_ERRORS: tuple[tuple[str, NvlinkError, str], ...] = (
    ("CRC_FLIT", "crc_flit", "flit CRC errors"),
    ("CRC_DATA", "crc_data", "data CRC errors"),
    ("REPLAY", "replay", "replay errors"),
    ("RECOVERY", "recovery", "recovery errors"),
)
_BANKS = (
    ("MAX", "max", "all"),
    ("HIGH", "high", "many"),
    ("PARTIAL", "partial", "some"),
    ("LOW", "low", "few"),
    ("NONE", "none", "no"),
)


def _nvlink_throughput(row: DcgmRow) -> int | None:
    """Return the bytes per second in both directions."""
    if row.gpu is None or row.reading is None:
        return None
    rate = row.gpu.nvlink_bytes_per_second
    if rate is None and row.reading.profiling is not None:
        rates = row.reading.profiling.rates
        if "nvlink_transmit" in rates and "nvlink_receive" in rates:
            rate = rates["nvlink_transmit"] + rates["nvlink_receive"]
    return None if rate is None else int(rate)


ECC: tuple[Family[DcgmRow], ...] = (
    _ECC.flag("DEV_ECC_CURRENT", "1 if ECC is enabled, else 0.", lambda ecc: ecc.enabled),
    _ECC.flag(
        "DEV_ECC_PENDING", "1 if ECC will be enabled after the next reboot, else 0.", lambda ecc: ecc.pending
    ),
    *(
        _ECC.counter(
            f"DEV_ECC_{short}_{when}_TOTAL", f"{bits} ECC errors {since}.", entry("errors", (severity, scope))
        )
        for when, scope, since in _SCOPES
        for short, severity, bits in _SEVERITIES
    ),
    *(
        _ECC.reading("ecc.by_location").counter(
            f"DEV_ECC_{short}_{when}_{where}",
            f"{bits} ECC errors in {place} {since}.",
            entry("by_location", (severity, scope, location)),
        )
        for where, location, place in _LOCATIONS
        for when, scope, since in _SCOPES
        for short, severity, bits in _SEVERITIES
    ),
)

REPAIRS: tuple[Family[DcgmRow], ...] = (
    *(
        _REPAIRS.counter(
            f"DEV_RETIRED_{short}",
            f"Memory pages retired due to {bits}-bit ECC errors.",
            entry("retired_pages", f"{bits}_bit"),
        )
        for short, bits in (("SBE", "single"), ("DBE", "double"))
    ),
    _REPAIRS.flag(
        "DEV_RETIRED_PENDING",
        "1 if a page retirement is pending until the next reboot, else 0.",
        lambda repairs: repairs.retired_pages_pending,
    ),
    _REPAIRS.counter(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Memory rows remapped due to uncorrectable errors.",
        lambda repairs: repairs.remapped_rows.get("uncorrected"),
    ),
    _REPAIRS.counter(
        "DEV_CORRECTABLE_REMAPPED_ROWS",
        "Memory rows remapped due to correctable errors.",
        lambda repairs: repairs.remapped_rows.get("corrected"),
    ),
    _REPAIRS.flag(
        "DEV_ROW_REMAP_FAILURE",
        "1 if a row remapping has failed, else 0.",
        lambda repairs: repairs.row_remap_failure,
    ),
    _REPAIRS.flag(
        "DEV_ROW_REMAP_PENDING",
        "1 if a row remapping is pending until the next GPU reset, else 0.",
        lambda repairs: repairs.row_remap_pending,
    ),
    *(
        _REPAIRS.gauge(
            f"DEV_BANKS_REMAP_ROWS_AVAIL_{name}",
            f"Memory banks with {amount} spare rows available for remapping.",
            entry("row_banks", left),
        )
        for name, left, amount in _BANKS
    ),
    READING.grouped("repairs").gauge(
        "DEV_GET_GPU_RECOVERY_ACTION",
        "Recovery action that the GPU needs: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, "
        "5 recover IMEX domain, 6 bus reset, 7 system reboot.",
        lambda gpu: None if gpu.recovery_action is None else RECOVERY_ACTIONS.index(gpu.recovery_action),
    ),
)

NVLINK: tuple[Family[DcgmRow], ...] = (
    *(
        _NVLINK.counter(
            f"DEV_NVLINK_{name}_ERROR_COUNT_TOTAL",
            f"NVLink {errors}, summed over all links.",
            entry("errors", kind),
        )
        for name, kind, errors in _NVLINK_ERRORS
    ),
    DCGM_ROWS.grouped("nvlink").gauge(
        "DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
        "NVLink bandwidth in use, summed over all links and both directions (bytes/s).",
        _nvlink_throughput,
    ),
)
