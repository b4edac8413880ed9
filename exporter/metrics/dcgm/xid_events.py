"""Fields of XID errors, and of the reasons that limit the clocks."""

from collections.abc import Iterator

from exporter.metrics.dcgm.row import DCGM_ROWS, EXPERIMENTAL, READING, WINDOW_SECONDS, DcgmRow
from exporter.metrics.family import AnyFamily, Labelled, entry
from exporter.model.readings import ClockEvent, Violation
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
        "CLOCK_EVENTS_TOTAL",
        ("clock_event",),
        "Times that a reason started to limit the clocks, as observed from poll to poll, by reason.",
        _clock_events,
    ),
)

XIDS: tuple[AnyFamily, ...] = (
    DCGM_ROWS.grouped("events").gauge_by(
        "DEV_XID_ERRORS",
        ("err_code", "err_msg"),
        "Code of the last XID error; 0 before the first error.",
        _last_xid,
    ),
    _EVENTS.counter_by(
        "XID_ERRORS_TOTAL",
        ("xid",),
        "XID errors since the exporter started, by code.",
        lambda row: (((str(xid),), count) for xid, count in row.xids.totals.items()),
    ),
    _EVENTS.gauge_by(
        "XID_ERRORS_COUNT",
        ("window_size_in_ms", "xid"),
        "XID errors in the last five minutes, by code.",
        _recent_xids,
    ),
)
