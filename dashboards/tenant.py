"""Tenant: what a namespace holds, what it uses of it, and what that costs."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import tenant_rows as rows
from dashboards import variables
from dashboards.amounts import GPU_HOURS, GPUS
from dashboards.board import Panel, board
from dashboards.panels import HELD, IDLE, NEUTRAL, USED, Query, number, timeline
from dashboards.tenant_tables import gpu_hours_by_pod, holders, idle_holders, over_share, xids

MAY_BE_EMPTY: dict[str, str] = {}
"""Panels that show nothing whatever a node may be like, and why: none."""

LARGEST = 20
_AT_LEAST = "What is not known is not added: the sum is what there is at least."
_RANGE = "Of the time shown, of pods that are gone by now as well."


def tenant() -> Dashboard:
    """Make the dashboard."""
    return board(
        "gpuslice-tenant",
        "GPU slices / Tenant",
        "What the chosen namespaces and pods hold of GPUs, what they use of it, and what that costs.",
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
            f"What holders are entitled to; who holds a quarter of a GPU holds 0.25. {_AT_LEAST}",
            f"sum({rows.held('compute')})",
            HELD,
        ),
        _stat(
            "GPUs used",
            GPUS,
            f"The compute that is used, in whole GPUs. {_AT_LEAST} Inside MIG on GPUs before Hopper it "
            "is not known.",
            f"sum({rows.used('compute')})",
            USED,
        ),
        _stat(
            "Compute efficiency",
            "percentunit",
            "Compute used, by compute held, of those holders of whom both are known.",
            rows.efficiency("compute"),
        ),
        _stat(
            "Memory held",
            "bytes",
            f"What holders are entitled to. {_AT_LEAST}",
            f"sum({rows.held('memory')})",
            HELD,
        ),
        _stat("Memory used", "bytes", f"What is used. {_AT_LEAST}", f"sum({rows.used('memory')})", USED),
        _stat(
            "Memory efficiency",
            "percentunit",
            "Memory used, by memory held, of those holders of whom both are known.",
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
            "Those of them that have not computed for as long as is chosen above; unknown if nobody's "
            "compute is measured.",
            f"count({rows.idle()}) or sum({rows.known_idle()})",
            IDLE,
        ),
    )


def _totals() -> tuple[Panel, ...]:
    held, used = (f"sum({rows.gpu_seconds(what)}) / {rows.SECONDS_OF_HOUR}" for what in ("held", "used"))
    unused = f"sum({rows.unused_gpu_seconds()}) / {rows.SECONDS_OF_HOUR}"
    measured = f"sum({rows.gpu_seconds('held')} and {rows.gpu_seconds('used')}) / {rows.SECONDS_OF_HOUR}"
    return (
        _total(
            "GPU-hours held", GPU_HOURS, f"The entitled share of compute, over time. {_RANGE}", held, HELD
        ),
        _total(
            "GPU-hours used",
            GPU_HOURS,
            f"The compute used, over time, as far as it is measured. {_RANGE}",
            used,
            USED,
        ),
        _total(
            "Part not used",
            "percentunit",
            "GPU-hours that were held and not used, by GPU-hours held, of holders of whom both are "
            f"known. It is reckoned holder by holder. {_RANGE}",
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
            "Cost of what was not used",
            "none",
            "GPU-hours held and not used, times the price above. Where compute is not measured nothing "
            f"counts as not used. {_RANGE}",
            rows.cost(unused),
            IDLE,
        ),
        _total(
            "Energy",
            "kwatth",
            "The containers' part of the energy of their GPUs: by use while they compute, by "
            f"entitlement while they idle. Unknown on GPUs that do not meter it. {_RANGE}",
            f"sum({rows.joules()}) / {rows.JOULES_OF_KWH:g}",
        ),
    )


def _sums() -> tuple[Panel, ...]:
    compute, memory = (
        timeline(
            title,
            unit,
            f"What holders are entitled to, and what is used. {_AT_LEAST} A gap was not known.",
            Query(f"sum({rows.held(quantity)})", "held", HELD),
            Query(f"sum({rows.used(quantity)})", "used", USED),
            span=8,
        )
        for title, unit, quantity in (("Compute", GPUS, "compute"), ("Memory", "bytes", "memory"))
    )
    power = timeline(
        "Power",
        "watt",
        "The containers' part of the power of their GPUs, as far as these meter their energy.",
        Query(f"sum({rows.watts()})", "power", USED),
        span=8,
    )
    return compute, memory, power


def _by_pod() -> tuple[Panel, ...]:
    parts = (
        ("GPUs held by pod", GPUS, rows.held("compute"), "What holders are entitled to"),
        ("GPUs used by pod", GPUS, rows.used("compute"), "The compute used, where it is measured"),
        ("Memory held by pod", "bytes", rows.held("memory"), "What holders are entitled to"),
        ("Memory used by pod", "bytes", rows.used("memory"), "The memory used, where it is known"),
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
