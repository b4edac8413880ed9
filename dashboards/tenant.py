"""Dashboard Tenant: held, used and cost of namespaces."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import Folded, Panel, board
from dashboards.panels import ENERGY_STEP, HELD, IDLE, NEUTRAL, USED, Query, number, timeline
from dashboards.selectors import CLUSTER, POD, PODS
from dashboards.tenant_rows import (
    AND_HELD,
    AND_USED,
    AT_LEAST,
    HELD_BYTES,
    HELD_GPUS,
    HELD_SECONDS,
    HOUR,
    IDLE_HOLDER,
    USED_BYTES,
    USED_GPUS,
    USED_SECONDS,
    counted,
    hours_of_last_day,
    increase,
)
from dashboards.tenant_tables import advice_inputs, holders, hours, idle, over_share, xids

_NO_DAY = "records of full days are there after 29 hours"
MAY_BE_EMPTY = {"GPU-hours held by day": _NO_DAY, "GPU-hours used by day": _NO_DAY}
"""Panels that may be empty, by title, with the reason."""

_RANGE = "For the time shown, including pods that have ended."
_LARGEST = 10
_HOLDER = f"{POD} {{{{container}}}} · {{{{node}}}} GPU {{{{gpu}}}} {{{{mig_uuid}}}}"


def tenant() -> Dashboard:
    """Return the dashboard."""
    return board(
        "gpuslice-tenant",
        "GPU slices / Tenant",
        "GPUs held and used by the chosen namespaces and pods, and their cost. Needs the recording rules.",
        (variables.datasource(), variables.cluster(), *variables.tenants(), variables.price()),
        (
            ("Now", _now()),
            ("In the time shown", _totals()),
            ("Over time", _sums()),
            ("Holders", (holders(),)),
            Folded("Largest holders", _largest()),
            Folded("GPU-hours by day", _days()),
            Folded("GPU-hours by pod", (hours(),)),
            Folded("Idle, and over their share", (idle(), over_share())),
            Folded("Advice inputs", (advice_inputs(),)),
            Folded("XID errors", (xids(),)),
        ),
    )


def _now() -> tuple[Panel, ...]:
    return (
        _stat(
            "GPUs held",
            f"Compute that holders are entitled to; a quarter of a GPU is 0.25. {AT_LEAST}",
            f"sum({HELD_GPUS})",
            HELD,
        ),
        _stat(
            "GPUs used",
            f"Compute in use, in whole GPUs. {AT_LEAST} It is unknown inside MIG on GPUs before Hopper.",
            f"sum({USED_GPUS})",
            USED,
        ),
        _stat(
            "Memory held",
            f"Memory that holders are entitled to. {AT_LEAST}",
            f"sum({HELD_BYTES})",
            HELD,
            "bytes",
        ),
        _stat("Memory used", f"Memory in use. {AT_LEAST}", f"sum({USED_BYTES})", USED, "bytes"),
        _stat(
            "Idle holders",
            "Holders that have not computed for an hour (idle_after of the rules); unknown if compute is not "
            "measured.",
            f"sum({IDLE_HOLDER})",
            IDLE,
        ),
        number(
            "Recording rules",
            "none",
            "Whether the recording rules are loaded (docs/prometheus.md): without them this dashboard is "
            "empty.",
            f"count(node:gpuslice_total_gpus:count{{{CLUSTER}}}) > bool 0 or vector(0)",
            words={1: ("loaded", USED), 0: ("missing", "red")},
        ),
    )


def _totals() -> tuple[Panel, ...]:
    held = f"sum({counted(HELD_SECONDS)})"
    return (
        _stat("GPU-hours held", f"Compute held over time. {_RANGE}", f"{held} / {HOUR}", HELD),
        _stat(
            "GPU-hours used",
            f"Compute used over time, if measured. {_RANGE}",
            f"sum({counted(USED_SECONDS)}) / {HOUR}",
            USED,
        ),
        _stat(
            "GPU-hours unknown",
            f"GPU-hours held by containers whose use is not measured. {_RANGE}",
            f"(sum({counted(f'{HELD_SECONDS} unless {AND_USED}')}) or sum({HELD_SECONDS}) * 0) / {HOUR}",
        ),
        _stat(
            "Used, of held",
            f"GPU-hours used by GPU-hours held, of containers with both known. {_RANGE}",
            f"sum({USED_SECONDS} and {AND_HELD}) / (sum({HELD_SECONDS} and {AND_USED}) > 0)",
            unit="percentunit",
        ),
        _stat(
            "Cost of GPU-hours",
            f"GPU-hours held, times the price above, which must be a number, in its currency. {_RANGE}",
            f"{held} / {HOUR} * $price",
            HELD,
        ),
        _stat(
            "Energy",
            "The containers' part of the energy of their GPUs: by use while they compute, by entitlement "
            f"while they idle. {_RANGE}",
            f"sum({increase('energy_joules')}) / {HOUR}",
            unit="watth",
        ),
    )


def _stat(title: str, description: str, expr: str, colour: str = NEUTRAL, unit: str = "none") -> Panel:
    return number(title, unit, description, expr, steps={0: colour})


def _sums() -> tuple[Panel, ...]:
    compute, memory = (
        timeline(
            title,
            unit,
            f"Entitlements of holders, and use. {AT_LEAST} A gap is unknown.",
            Query(f"sum({held})", "held", HELD),
            Query(f"sum({used})", "used", USED),
            span=8,
        )
        for title, unit, held, used in (
            ("Compute in GPUs", "none", HELD_GPUS, USED_GPUS),
            ("GPU memory", "bytes", HELD_BYTES, USED_BYTES),
        )
    )
    energy = f"gpuslice_container_energy_joules_total{{{PODS}}}"
    power = timeline(
        "Power",
        "watt",
        "The containers' part of the power of their GPUs, for GPUs with an energy counter.",
        Query(f"sum(rate({energy}[$__rate_interval]))", "power", USED),
        span=8,
    ).interval(ENERGY_STEP)
    return compute, memory, power


def _days() -> tuple[Panel, ...]:
    parts = (("held", "GPU-hours held by day"), ("used", "GPU-hours used by day"))
    return tuple(
        timeline(
            title,
            "none",
            "GPU-hours of the last full day of UTC at each point, of all pods of the chosen namespaces, also "
            "of those that have ended. For sums of months: kubectl gpuslice usage.",
            Query(hours_of_last_day(value), "{{namespace}}"),
        )
        for value, title in parts
    )


def _largest() -> tuple[Panel, ...]:
    parts = (
        ("GPUs held by holder", "none", HELD_GPUS, "Compute that holders are entitled to"),
        ("GPUs used by holder", "none", USED_GPUS, "Compute in use, if measured"),
        ("Memory held by holder", "bytes", HELD_BYTES, "Memory that holders are entitled to"),
        ("Memory used by holder", "bytes", USED_BYTES, "Memory in use, if known"),
    )
    return tuple(
        timeline(
            title,
            unit,
            f"{what}: the {_LARGEST} containers with the most at the end of the time shown, by device.",
            Query(f"{rows} and topk({_LARGEST}, {rows} @ end())", _HOLDER),
        )
        for title, unit, rows, what in parts
    )
