"""Dashboard Fleet: GPUs of all clusters, held, used and idle."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import amounts, variables
from dashboards.board import Panel, board
from dashboards.fleet_attention import alerts, exporters, overcommitted, sick_gpus
from dashboards.fleet_tables import free_slices, idle_holders, models, namespaces, nodes
from dashboards.panels import BAD, CAPACITY, FREE, HELD, IDLE, NEUTRAL, USED, Query, number, timeline
from dashboards.sickness import count

MAY_BE_EMPTY = {
    "Firing alerts": "no alert may fire, and the alerts may not be loaded",
    "Failing exporters": "all of them may answer",
}
"""Panels that may be empty, by title, with the reason."""

_HOLDING = "Held is what containers are entitled to; used is what they use."
_AT_LEAST = "Unknown values are not added, so the sum is a lower bound."
_UNTIL_IDLE = (
    "A holder is idle if its compute is measured and it has not computed for the time set in the recording "
    "rules (an hour by default); without them, for the time chosen above."
)


def fleet() -> Dashboard:
    """Return the dashboard."""
    return board(
        "gpuslice-fleet",
        "GPU slices / Fleet",
        "GPUs of all clusters: capacity, held, used and idle; alerts, unhealthy GPUs and waste.",
        (variables.datasource(), variables.cluster(), variables.idle(), variables.fallback()),
        (
            ("Now", (*_compute(), *_memory())),
            ("Over time", _timelines()),
            ("Needs attention", (alerts(), exporters(), sick_gpus(), overcommitted())),
            ("Holders and waste", (namespaces(), idle_holders())),
            ("Capacity", (free_slices(), models(), nodes())),
        ),
    )


def _compute() -> tuple[Panel, ...]:
    gpus = amounts.GPUS
    return (
        _stat(
            "GPUs",
            gpus,
            "Physical GPUs that are read. Those that were lost before they had a name are only among the "
            "unhealthy ones.",
            amounts.total(amounts.GPUS_THERE),
        ),
        _stat(
            "GPUs up",
            gpus,
            "GPUs that were read at the last poll. The others are lost or unresponsive, or their driver is "
            "released.",
            amounts.total(amounts.GPUS_UP),
        ),
        _stat(
            "GPUs held",
            gpus,
            f"{_HOLDING} A holder of a quarter of a GPU holds 0.25. {_AT_LEAST}",
            amounts.total(amounts.HELD["compute"]),
            HELD,
        ),
        _stat(
            "GPUs computing",
            gpus,
            f"The compute that containers use, in whole GPUs. {_AT_LEAST} It is unknown inside MIG on GPUs "
            "before Hopper.",
            amounts.total(amounts.USED["compute"]),
            USED,
        ),
        _stat(
            "GPUs held but idle",
            gpus,
            f"What idle holders are entitled to. {_UNTIL_IDLE}",
            amounts.total(amounts.IDLE["compute"]),
            IDLE,
        ),
        _stat(
            "Efficiency now",
            "percentunit",
            "Compute used by compute held, of holders with both known; unknown if there are none.",
            amounts.efficiency(None, "compute"),
        ),
        _stat(
            "Efficiency, last hour",
            "percentunit",
            "GPU-seconds used by GPU-seconds held within the last hour, of holders with both known.",
            amounts.efficiency_of_hour(None),
        ),
        number(
            "Unhealthy GPUs",
            gpus,
            "GPUs in the table of unhealthy GPUs below.",
            Query(count()),
            steps={0: NEUTRAL, 1: BAD},
            span=3,
        ),
    )


def _memory() -> tuple[Panel, ...]:
    return (
        _stat("Memory", "bytes", "Memory of all GPUs.", amounts.total(amounts.MEMORY)),
        _stat(
            "Memory held",
            "bytes",
            f"{_HOLDING} {_AT_LEAST} It can be more than the capacity: see over-committed GPUs.",
            amounts.total(amounts.HELD["memory"]),
            HELD,
        ),
        _stat(
            "Memory used",
            "bytes",
            f"What containers use. {_AT_LEAST}",
            amounts.total(amounts.USED["memory"]),
            USED,
        ),
        _stat(
            "Memory held but idle",
            "bytes",
            f"What idle holders are entitled to. {_UNTIL_IDLE}",
            amounts.total(amounts.IDLE["memory"]),
            IDLE,
        ),
        _stat(
            "Memory efficiency now",
            "percentunit",
            "Memory used by memory held, of holders with both known.",
            amounts.efficiency(None, "memory"),
        ),
        _stat(
            "Holders",
            "none",
            "Containers that hold a slice of a GPU, once for each GPU or MIG device that they hold.",
            amounts.total(amounts.HOLDERS),
        ),
        _stat(
            "Idle holders",
            "none",
            f"Holders that are idle. {_UNTIL_IDLE}",
            amounts.total(amounts.IDLE_HOLDERS),
            IDLE,
        ),
        _stat(
            "GPUs not held",
            amounts.GPUS,
            "GPUs minus GPUs held, in whole GPUs. Not all of it can be scheduled: see the free slices below.",
            f"{amounts.total(amounts.GPUS_THERE)} - {amounts.total(amounts.HELD['compute'])}",
            FREE,
        ),
    )


def _timelines() -> tuple[Panel, ...]:
    return tuple(
        timeline(
            title,
            unit,
            f"{_HOLDING} {_AT_LEAST} A gap is unknown.",
            Query(amounts.total(capacity), "capacity", CAPACITY, limit=True),
            Query(amounts.total(amounts.HELD[quantity]), "held", HELD),
            Query(amounts.total(amounts.IDLE[quantity]), "held but idle", IDLE),
            Query(amounts.total(amounts.USED[quantity]), "used", USED),
        )
        for title, unit, quantity, capacity in (
            ("Compute: capacity, held, used", amounts.GPUS, "compute", amounts.GPUS_THERE),
            ("Memory: capacity, held, used", "bytes", "memory", amounts.MEMORY),
        )
    )


def _stat(title: str, unit: str, description: str, expr: str, colour: str = NEUTRAL) -> Panel:
    return number(title, unit, description, Query(expr), steps={0: colour}, span=3)
