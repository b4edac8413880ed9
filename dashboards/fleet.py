"""Fleet: what the clusters have, who holds it, and what lies idle."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import amounts, variables
from dashboards.board import Panel, board
from dashboards.fleet_attention import alerts, exporters, overcommitted, sick_gpus
from dashboards.fleet_tables import free_slices, idle_holders, models, namespaces, nodes
from dashboards.panels import BAD, CAPACITY, FREE, HELD, IDLE, NEUTRAL, USED, Query, number, timeline
from dashboards.sickness import count

MAY_BE_EMPTY = {
    "Firing alerts": "nothing may be wrong, and the alerts may not be loaded",
    "Silent exporters": "all of them may answer",
}
"""Panels that show nothing where all is well, and why."""

_HOLDING = "Held is what containers are entitled to; used is what they use."
_AT_LEAST = "What is not known is not added: the sum is what there is at least."
_UNTIL_IDLE = (
    "A holder is idle if its compute is measured and it has not computed for as long as the recording rules "
    "say (an hour, if nobody changed it); without them, for as long as is chosen above."
)


def fleet() -> Dashboard:
    """Make the dashboard."""
    return board(
        "gpuslice-fleet",
        "GPU slices / Fleet",
        "What the clusters have, who holds it, what is used of it, and what lies idle.",
        (variables.datasource(), variables.cluster(), variables.idle(), variables.fallback()),
        (
            ("Now", (*_compute(), *_memory())),
            ("Over time", _timelines()),
            ("What wants attention", (alerts(), exporters(), sick_gpus(), overcommitted())),
            ("Who holds, and who wastes", (namespaces(), idle_holders())),
            ("What there is, and what is free", (free_slices(), models(), nodes())),
        ),
    )


def _compute() -> tuple[Panel, ...]:
    gpus = amounts.GPUS
    return (
        _stat(
            "GPUs",
            gpus,
            "Physical GPUs whose driver is asked. Those that were lost before they had a name are not among "
            "them, but among the sick ones.",
            amounts.total(amounts.GPUS_THERE),
        ),
        _stat(
            "GPUs up",
            gpus,
            "GPUs that were read at the last poll. The others are lost, failing, or their driver is "
            "given up.",
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
            f"The compute that containers use, in whole GPUs. {_AT_LEAST} Inside MIG on GPUs before Hopper "
            "it is not known.",
            amounts.total(amounts.USED["compute"]),
            USED,
        ),
        _stat(
            "GPUs idle though held",
            gpus,
            f"What idle holders are entitled to. {_UNTIL_IDLE}",
            amounts.total(amounts.IDLE["compute"]),
            IDLE,
        ),
        _stat(
            "Efficiency now",
            "percentunit",
            "Compute used, by compute held, of those holders of whom both are known; unknown if there "
            "are none.",
            amounts.efficiency(None, "compute"),
        ),
        _stat(
            "Efficiency, last hour",
            "percentunit",
            "GPU-seconds used within the last hour, by GPU-seconds held, of those of whom both are known.",
            amounts.efficiency_of_hour(None),
        ),
        number(
            "Sick GPUs",
            gpus,
            "GPUs that are listed below as sick.",
            Query(count()),
            steps={0: NEUTRAL, 1: BAD},
            span=3,
        ),
    )


def _memory() -> tuple[Panel, ...]:
    return (
        _stat("Memory", "bytes", "Frame buffer of all GPUs.", amounts.total(amounts.MEMORY)),
        _stat(
            "Memory held",
            "bytes",
            f"{_HOLDING} {_AT_LEAST} It can be more than there is: see over-committed GPUs.",
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
            "Memory idle though held",
            "bytes",
            f"What idle holders are entitled to. {_UNTIL_IDLE}",
            amounts.total(amounts.IDLE["memory"]),
            IDLE,
        ),
        _stat(
            "Memory efficiency now",
            "percentunit",
            "Memory used, by memory held, of those holders of whom both are known.",
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
            f"Those of them that are idle. {_UNTIL_IDLE}",
            amounts.total(amounts.IDLE_HOLDERS),
            IDLE,
        ),
        _stat(
            "GPUs held by nobody",
            amounts.GPUS,
            "GPUs less GPUs held: what could still be promised, in whole GPUs. Not all of it can be "
            "scheduled: see the free slices below.",
            f"{amounts.total(amounts.GPUS_THERE)} - {amounts.total(amounts.HELD['compute'])}",
            FREE,
        ),
    )


def _timelines() -> tuple[Panel, ...]:
    return tuple(
        timeline(
            title,
            unit,
            f"{_HOLDING} {_AT_LEAST} A gap was not known.",
            Query(amounts.total(capacity), "there is", CAPACITY, limit=True),
            Query(amounts.total(amounts.HELD[quantity]), "held", HELD),
            Query(amounts.total(amounts.IDLE[quantity]), "held by idle ones", IDLE),
            Query(amounts.total(amounts.USED[quantity]), "used", USED),
        )
        for title, unit, quantity, capacity in (
            ("Compute: there is, held, used", amounts.GPUS, "compute", amounts.GPUS_THERE),
            ("Memory: there is, held, used", "bytes", "memory", amounts.MEMORY),
        )
    )


def _stat(title: str, unit: str, description: str, expr: str, colour: str = NEUTRAL) -> Panel:
    return number(title, unit, description, Query(expr), steps={0: colour}, span=3)
