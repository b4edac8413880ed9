"""Tables of the dashboard Fleet: namespaces, idle holders, nodes, models and slices."""

from dataclasses import replace

from dashboards.board import Panel
from dashboards.panels import IDLE, NEUTRAL
from dashboards.selectors import CLUSTER
from dashboards.tables import CLUSTER as CLUSTERS
from dashboards.tables import CONTAINER, GPU, MIG_DEVICE, MODEL, NAMESPACE, NODE, POD, Column, listing
from dashboards.tables import number as value

AT_LEAST = "Unknown values are not added, so the sum is a lower bound."
IDLE_MEANS = "Idle: its compute is measured, and it has not computed for an hour (idle_after of the rules)."


def _by(level: str, name: str) -> str:
    """Return a record by its labels without those of the model: ``node``, ``model`` or ``namespace``."""
    of = "namespace" if level == "namespace" else "node"
    return f"sum by (cluster, {level}) ({of}:gpuslice_{name}{{{CLUSTER}}})"


def _efficiency(level: str) -> str:
    used, measured = (_by(level, f"{what}_gpu_seconds:increase1h") for what in ("used", "measured"))
    return f"{used} / ({measured} > 0)"


def namespaces() -> Panel:
    """Return the table of held and used by namespace."""
    held, measured = (_by("namespace", f"{what}_gpu_seconds:increase1h") for what in ("held", "measured"))
    return listing(
        "By namespace",
        "Held and used by the containers of each namespace. Of the last hour: used by held, of holders with "
        f"measured compute, and the part of what is held that is not measured. {AT_LEAST}",
        [
            CLUSTERS,
            Column(name="namespace", title="Namespace", link=NAMESPACE.link),
            value("A", "Holders"),
            value("B", "Idle holders", steps={0: NEUTRAL, 1: IDLE}),
            value("C", "GPUs held"),
            value("D", "GPUs idle"),
            value("E", "GPUs used"),
            value("F", "Used, of held, 1 h", "percentunit"),
            value("G", "Not measured, 1 h", "percentunit"),
            value("H", "Memory held", "bytes"),
            value("I", "Memory used", "bytes"),
        ],
        _by("namespace", "holders:sum"),
        _by("namespace", "idle_holders:sum"),
        _by("namespace", "held_gpus:sum"),
        _by("namespace", "idle_gpus:sum"),
        _by("namespace", "used_gpus:sum"),
        _efficiency("namespace"),
        f"1 - ({measured} or {held} * 0) / ({held} > 0)",
        _by("namespace", "held_bytes:sum"),
        _by("namespace", "used_bytes:sum"),
        sort="GPUs held",
        height=10,
    )


def idle_holders() -> Panel:
    """Return the table of idle holders."""
    idle = f"(container:gpuslice_idle_holder:bool{{{CLUSTER}}} == 1)"
    records = ("idle_seconds:max", "held_gpus:max", "held_bytes:max", "used_bytes:avg5m")
    return listing(
        "Idle holders",
        f"{IDLE_MEANS} One that was never seen computing is idle since it was first seen.",
        [
            CLUSTERS,
            NAMESPACE,
            POD,
            CONTAINER,
            NODE,
            GPU,
            value("A", "Idle for", "s"),
            value("B", "GPUs held"),
            value("C", "Memory held", "bytes"),
            value("D", "Memory used", "bytes"),
            MIG_DEVICE,
        ],
        *(f"container:gpuslice_{record} * {idle}" for record in records),
        sort="Idle for",
        height=14,
    )


def nodes() -> Panel:
    """Return the table of capacity, held and used by node."""
    return listing(
        "By node",
        f"GPUs and memory of each node: capacity, held and used. {AT_LEAST}",
        [
            CLUSTERS,
            Column(name="node", title="Node", link=NODE.link),
            *_amounts(),
            value("F", "GPUs free"),
            value("G", "Memory", "bytes"),
            value("H", "Memory held", "bytes"),
            value("I", "Memory used", "bytes"),
        ],
        *_amounts_of("node"),
        f"{_by('node', 'total_gpus:count')} - {_by('node', 'held_gpus:sum')}",
        _by("node", "total_bytes:sum"),
        _by("node", "held_bytes:sum"),
        _by("node", "used_bytes:sum"),
        sort="GPUs free",
        height=14,
    )


def models() -> Panel:
    """Return the table of GPUs by model."""
    return listing(
        "By model",
        f"GPUs of each model: number, held and used, and use by held of the last hour. {AT_LEAST}",
        [CLUSTERS, replace(MODEL, width=None), *_amounts()],
        *_amounts_of("model"),
        sort="GPUs",
        span=14,
    )


def _amounts() -> tuple[Column, ...]:
    return (
        value("A", "GPUs"),
        value("B", "GPUs up"),
        value("C", "GPUs held"),
        value("D", "GPUs used"),
        value("E", "Used, of held", "percentunit"),
    )


def _amounts_of(level: str) -> tuple[str, ...]:
    names = ("total_gpus:count", "up_gpus:sum", "held_gpus:sum", "used_gpus:sum")
    return (*(_by(level, name) for name in names), _efficiency(level))


def slices() -> Panel:
    """Return the table of offered and held slices by resource."""
    offered, held = (_by("resource", f"{what}_slices:sum") for what in ("offered", "held"))
    return listing(
        "Slices by resource",
        "Slices that device plugins offer, and those that containers hold. Not held includes unhealthy "
        "slices and slices of a GPU that is down.",
        [
            CLUSTERS,
            Column(name="resource", title="Resource"),
            value("A", "Offered"),
            value("B", "Held"),
            value("C", "Not held"),
        ],
        offered,
        held,
        f"{offered} - {held}",
        sort="Not held",
        span=10,
    )
