"""Tables of holders and waste, and of capacity."""

from dashboards import amounts
from dashboards.amounts import by
from dashboards.board import Panel
from dashboards.fleet_rows import LISTED, held_by_idle, idle, memory_of_idle, with_names
from dashboards.panels import IDLE, NEUTRAL, Query
from dashboards.promql import CLUSTER
from dashboards.tables import Column, Nothing, leads_to, listing

_NODES_LISTED = 200
_CLUSTER = Column(name="cluster", title="Cluster", empty="-")
_TENANT = leads_to("gpuslice-tenant", namespace="Namespace")
_NODE = leads_to("gpuslice-node", node="Node")


def namespaces() -> Panel:
    """Return the table of held and used by namespace."""
    return listing(
        "By namespace",
        "Held and used by the holders of each namespace; unknown values are not added. Efficiency is of "
        "the last hour, of holders with both known. GPU-hours are of the time shown, including pods and "
        "nodes that have ended. With the recording rules they are sums of records of each minute: use of "
        "less than a minute may be missing, and so is the time before the rules were loaded.",
        [
            _CLUSTER,
            Column(name="namespace", title="Namespace", link=_TENANT),
            Column(name="Value #A", title="Holders", unit="none"),
            Column(name="Value #B", title="Idle holders", unit="none", steps={0: NEUTRAL, 1: IDLE}),
            Column(name="Value #C", title="GPUs held", unit="none"),
            Column(name="Value #D", title="GPUs used", unit="none"),
            Column(name="Value #E", title="Efficiency", unit="percentunit"),
            Column(name="Value #F", title="GPU-hours held", unit="none"),
            Column(name="Value #G", title="GPU-hours used", unit="none"),
            Column(name="Value #H", title="Memory held", unit="bytes"),
            Column(name="Value #I", title="Memory used", unit="bytes"),
        ],
        *(
            Query(expr)
            for expr in (
                by("namespace", amounts.HOLDERS),
                by("namespace", amounts.IDLE_HOLDERS),
                by("namespace", amounts.HELD["compute"]),
                by("namespace", amounts.USED["compute"]),
                amounts.efficiency_of_hour("namespace"),
                amounts.gpu_hours("held"),
                amounts.gpu_hours("used"),
                by("namespace", amounts.HELD["memory"]),
                by("namespace", amounts.USED["memory"]),
            )
        ),
        sort="GPUs held",
    )


def idle_holders() -> Panel:
    """Return the table of idle holders."""
    labels = ("namespace", "pod", "container", "mig_uuid")
    measured = f"gpuslice_container_compute_used_ratio{{{CLUSTER}}} or gpuslice_gpu_holders{{{CLUSTER}}} == 0"
    return listing(
        "Longest idle holders",
        f"Holders that have not computed for the time chosen above, the {LISTED} longest. One that was "
        "never seen computing is idle since it was first seen. Without a measurement of compute no holder "
        "is idle.",
        [
            _CLUSTER,
            Column(name="namespace", title="Namespace", link=_TENANT),
            Column(
                name="pod",
                title="Pod",
                link=leads_to("gpuslice-tenant", namespace="Namespace", pod="Pod"),
            ),
            Column(name="container", title="Container"),
            Column(name="node", title="Node", link=_NODE),
            Column(name="gpu", title="GPU", width=60),
            Column(name="model", title="Model"),
            Column(name="Value #A", title="Idle for", unit="s"),
            Column(name="Value #B", title="GPUs held", unit="none"),
            Column(name="Value #C", title="Memory held", unit="bytes"),
            Column(name="Value #D", title="Memory used", unit="bytes"),
        ],
        *(
            Query(with_names(rows, *labels))
            for rows in (idle(), held_by_idle("compute"), held_by_idle("memory"), memory_of_idle())
        ),
        sort="Idle for",
        nothing=Nothing("container", measured),
    )


def free_slices() -> Panel:
    """Return the table of slices by resource."""
    offered, held = amounts.slices(), amounts.slices("_allocated")
    return listing(
        "Slices by resource",
        "Slices that device plugins offer, and those that containers hold, by resource. Not held includes "
        "unhealthy slices and slices of a GPU that is down.",
        [
            _CLUSTER,
            Column(name="resource", title="Resource"),
            Column(name="Value #A", title="Not held", unit="none", width=80),
            Column(name="Value #B", title="Held", unit="none", width=70),
            Column(name="Value #C", title="Offered", unit="none", width=80),
        ],
        Query(f"{offered} - {held}"),
        Query(held),
        Query(offered),
        nothing=Nothing("resource", f"gpuslice_allocations_timestamp_seconds{{{CLUSTER}}}"),
        sort="Not held",
        span=10,
        height=8,
    )


def models() -> Panel:
    """Return the table of GPUs by model."""
    return listing(
        "By model",
        "GPUs of each model: number, held, used, and the efficiency of the last hour. Unknown values are "
        "not added.",
        [
            _CLUSTER,
            Column(name="model", title="Model"),
            *_held_and_used(),
        ],
        *_amounts("model"),
        sort="GPUs",
        span=14,
        height=8,
    )


def nodes() -> Panel:
    """Return the table of capacity, held and used by node."""
    there, held = by("node", amounts.GPUS_THERE), by("node", amounts.HELD["compute"])
    # If the held part is unknown, the whole GPU may be held.
    most = f"topk({_NODES_LISTED}, {there} - {held} or {there} * 0)"
    return listing(
        "By node",
        f"GPUs and memory of each node: capacity, held, used and free; the {_NODES_LISTED} nodes with the "
        "most free GPUs. Unknown values are not added.",
        [
            _CLUSTER,
            Column(name="node", title="Node", link=_NODE),
            *_held_and_used(),
            Column(name="Value #F", title="GPUs free", unit="none"),
            Column(name="Value #G", title="Memory", unit="bytes"),
            Column(name="Value #H", title="Memory held", unit="bytes"),
            Column(name="Value #I", title="Memory used", unit="bytes"),
        ],
        *(
            Query(f"({query.expr}) and {most}")
            for query in (
                *_amounts("node"),
                Query(f"{there} - {held}"),
                Query(by("node", amounts.MEMORY)),
                Query(by("node", amounts.HELD["memory"])),
                Query(by("node", amounts.USED["memory"])),
            )
        ),
        sort="GPUs free",
    )


def _held_and_used() -> list[Column]:
    return [
        Column(name="Value #A", title="GPUs", unit="none"),
        Column(name="Value #B", title="GPUs up", unit="none"),
        Column(name="Value #C", title="GPUs held", unit="none"),
        Column(name="Value #D", title="GPUs used", unit="none"),
        Column(name="Value #E", title="Efficiency", unit="percentunit"),
    ]


def _amounts(level: str) -> list[Query]:
    return [
        Query(by(level, amounts.GPUS_THERE)),
        Query(by(level, amounts.GPUS_UP)),
        Query(by(level, amounts.HELD["compute"])),
        Query(by(level, amounts.USED["compute"])),
        Query(amounts.efficiency_of_hour(level)),
    ]
