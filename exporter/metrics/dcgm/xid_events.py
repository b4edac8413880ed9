"""Fields of what happens to a GPU: XID errors, and what limits its clocks."""

from collections.abc import Iterator

from exporter.metrics import AnyFamily, Family, Labelled, LabelledFamily
from exporter.metrics.dcgm.row import (
    WINDOW_SECONDS,
    DcgmRow,
    counter,
    gauge,
    reading,
)
from exporter.model.readings import (
    ClockEvent,
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
