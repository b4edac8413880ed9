"""Dashboard Tenant: held, used and cost of namespaces."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import tenant_rows as rows
from dashboards import variables
from dashboards.amounts import GPU_HOURS, GPUS
from dashboards.board import Panel, board
from dashboards.panels import HELD, IDLE, NEUTRAL, USED, Query, number, timeline
from dashboards.tenant_tables import gpu_hours_by_pod, holders, idle_holders, over_share, xids

MAY_BE_EMPTY: dict[str, str] = {}
"""Panels that may be empty, by title, with the reason: none."""

LARGEST = 20
_AT_LEAST = "Unknown values are not added, so the sum is a lower bound."
_RANGE = "For the time shown, including pods that have ended."


def tenant() -> Dashboard:
    """Return the dashboard."""
    return board(
        "gpuslice-tenant",
        "GPU slices / Tenant",
        "GPUs held and used by the chosen namespaces and pods, and their cost.",
        (
            variables.datasource(),
            variables.cluster(),
            *variables.tenants(),
            variables.idle(),
            variables.price(),
        ),
        (
            ("Now", _now()),
            ("In the time shown", _totals()),
            ("Held and used", (*_sums(), *_by_pod())),
            ("Holders", (holders(), idle_holders(), over_share())),
            ("Cost and errors", (gpu_hours_by_pod(), xids())),
        ),
    )


def _now() -> tuple[Panel, ...]:
    holders = f"{rows.series('slices')} > 0"
    return (
        _stat(
            "GPUs held",
            GPUS,
            f"Entitlements of holders; a quarter of a GPU is 0.25. {_AT_LEAST}",
            f"sum({rows.held('compute')})",
            HELD,
        ),
        _stat(
            "GPUs used",
            GPUS,
            f"The compute used, in whole GPUs. {_AT_LEAST} It is unknown inside MIG on GPUs before Hopper.",
            f"sum({rows.used('compute')})",
            USED,
        ),
        _stat(
            "Compute efficiency",
            "percentunit",
            "Compute used by compute held, of holders with both known.",
            rows.efficiency("compute"),
        ),
        _stat(
            "Memory held",
            "bytes",
            f"Entitlements of holders. {_AT_LEAST}",
            f"sum({rows.held('memory')})",
            HELD,
        ),
        _stat(
            "Memory used",
            "bytes",
            f"Memory in use. {_AT_LEAST}",
            f"sum({rows.used('memory')})",
            USED,
        ),
        _stat(
            "Memory efficiency",
            "percentunit",
            "Memory used by memory held, of holders with both known.",
            rows.efficiency("memory"),
        ),
        _stat(
            "Holders",
            "none",
            "Containers that hold a slice of a device, once for each device that they hold.",
            f"count({holders})",
        ),
        _stat(
            "Idle holders",
            "none",
            "Holders that have not computed for the time chosen above; unknown if compute is not measured.",
            f"count({rows.idle()}) or sum({rows.known_idle()})",
            IDLE,
        ),
    )


def _totals() -> tuple[Panel, ...]:
    held, used = (f"sum({rows.gpu_seconds(what)}) / {rows.SECONDS_OF_HOUR}" for what in ("held", "used"))
    unused = f"sum({rows.unused_gpu_seconds()}) / {rows.SECONDS_OF_HOUR}"
    measured = f"sum({rows.gpu_seconds('held')} and {rows.gpu_seconds('used')}) / {rows.SECONDS_OF_HOUR}"
    return (
        _total("GPU-hours held", GPU_HOURS, f"Entitled share of compute over time. {_RANGE}", held, HELD),
        _total(
            "GPU-hours used",
            GPU_HOURS,
            f"Compute used over time, if measured. {_RANGE}",
            used,
            USED,
        ),
        _total(
            "Unused part",
            "percentunit",
            "GPU-hours held and not used, by GPU-hours held, added up by holder, of holders with both "
            f"known. {_RANGE}",
            f"{unused} / ({measured} > 0)",
            IDLE,
        ),
        _total(
            "Cost",
            "none",
            "GPU-hours held, times the price above, in its currency. Unknown if that is not a number. "
            f"{_RANGE}",
            rows.cost(held),
            HELD,
        ),
        _total(
            "Cost of unused GPU-hours",
            "none",
            "GPU-hours held and not used, times the price above. Without a measurement of compute nothing "
            f"counts as unused. {_RANGE}",
            rows.cost(unused),
            IDLE,
        ),
        _total(
            "Energy",
            "kwatth",
            "The containers' part of the energy of their GPUs: by use while they compute, by entitlement "
            f"while they idle. Unknown on GPUs without an energy counter. {_RANGE}",
            f"sum({rows.joules()}) / {rows.JOULES_OF_KWH:g}",
        ),
    )


def _sums() -> tuple[Panel, ...]:
    compute, memory = (
        timeline(
            title,
            unit,
            f"Entitlements of holders, and use. {_AT_LEAST} A gap is unknown.",
            Query(f"sum({rows.held(quantity)})", "held", HELD),
            Query(f"sum({rows.used(quantity)})", "used", USED),
            span=8,
        )
        for title, unit, quantity in (("Compute", GPUS, "compute"), ("Memory", "bytes", "memory"))
    )
    power = timeline(
        "Power",
        "watt",
        "The containers' part of the power of their GPUs, for GPUs with an energy counter.",
        Query(f"sum({rows.watts()})", "power", USED),
        span=8,
    )
    return compute, memory, power


def _by_pod() -> tuple[Panel, ...]:
    parts = (
        ("GPUs held by pod", GPUS, rows.held("compute"), "Entitlements of holders"),
        ("GPUs used by pod", GPUS, rows.used("compute"), "Compute used, if measured"),
        ("Memory held by pod", "bytes", rows.held("memory"), "Entitlements of holders"),
        ("Memory used by pod", "bytes", rows.used("memory"), "Memory used, if known"),
    )
    return tuple(
        timeline(
            title,
            unit,
            f"{what}: the {LARGEST} pods with the most at each time.",
            Query(
                f"topk({LARGEST}, sum by (cluster, namespace, pod) ({each}))",
                "{{cluster}} {{namespace}} · {{pod}}",
            ),
            stacked=True,
        )
        for title, unit, each, what in parts
    )


def _stat(title: str, unit: str, description: str, expr: str, colour: str = NEUTRAL) -> Panel:
    return number(title, unit, description, Query(expr), steps={0: colour}, span=3)


def _total(title: str, unit: str, description: str, expr: str, colour: str = NEUTRAL) -> Panel:
    return number(title, unit, description, Query(expr), steps={0: colour}, span=4)
