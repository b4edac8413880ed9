"""What the tables of the fleet list: idle holders, over-committed GPUs, exporters that are silent."""

from dashboards.clashes import OF_HOLDERS, RENAMED, unclashed
from dashboards.promql import CLUSTER, DEVICE, FALLBACK, HOLDER, TARGET, either, gpu_names, node_names

LISTED = 50
STALE_SECONDS = 300
"""An exporter whose last poll is older than this has stopped polling."""
_RAW = f"{CLUSTER}, {FALLBACK}"
_NODES = node_names(_RAW)
_NAMES = either(f"gpu:gpuslice_info:names{{{CLUSTER}}}", gpu_names(_RAW, _NODES))
_SNAPSHOT = "gpuslice_snapshot_timestamp_seconds"
# A target that is silent is known by what it said at one of these times ago.
_AGO = ("3h", "12h", "1d")


def with_names(rows: str, *labels: str) -> str:
    """Name the node, GPU and model of rows told by DEVICE; ``labels`` are further ones to keep."""
    kept = ", ".join(("cluster", "node", "gpu", "model", "uuid", *labels))
    named = f"({rows}) * on ({DEVICE}) group_left (node, gpu, model) ({_NAMES})"
    # Here few rows are left of all that there are.
    return f"max by ({kept}) ({unclashed(named, *(label for label in OF_HOLDERS if label in labels))})"


def idle() -> str:
    """Give the seconds since they last computed of those holders that are idle the longest."""
    last = _rows("last_active_timestamp_seconds:max", "last_active_timestamp_seconds")
    used = _rows("compute_used_gpus:avg5m", "compute_used_ratio")
    slices = _rows("slices:max", "slices")
    # Where compute is not measured nobody is idle, and who has no slice keeps nothing from others.
    return f"topk({LISTED}, (time() - {last} > $idle) and {used} == 0 and {slices} > 0)"


def held_by_idle(quantity: str) -> str:
    """Give what those holders are entitled to, of ``memory`` (bytes) or ``compute`` (GPUs)."""
    held = {
        "memory": _rows("memory_held_bytes:max", "memory_entitled_bytes"),
        "compute": _rows("compute_held_gpus:max", "compute_entitled_ratio"),
    }[quantity]
    return f"{held} and {idle()}"


def memory_of_idle() -> str:
    """Give the bytes of memory that those holders use."""
    return f"{_rows('memory_used_bytes:avg5m', 'memory_used_bytes')} and {idle()}"


def overcommitted() -> tuple[str, str]:
    """Give the bytes of memory that the holders of a GPU are entitled to, where that is more than it has.

    And the bytes that it has.
    """
    held, there = (
        f"({either(f'gpu:gpuslice_memory_{record}{{{CLUSTER}}}', f'gpuslice_gpu_memory_{raw}{{{_RAW}}}')})"
        for record, raw in (("held_bytes:sum", "entitled_bytes"), ("total_bytes:max", "total_bytes"))
    )
    found = f"topk({LISTED}, max by ({DEVICE}) ({held}) > max by ({DEVICE}) ({there}))"
    return found, f"max by ({DEVICE}) ({there}) and {found}"


def silent() -> tuple[str, str]:
    """Name exporters and sources that tell nothing new, by ``node`` and ``state``; who never did comes first.

    And give the seconds for which that is so; of a source that was never read they are not known.
    """
    at = f"{{{CLUSTER}}}"
    down = f"{_lately(_SNAPSHOT)} and on ({TARGET}) up{at} == 0"
    last = f"gpuslice_collector_last_success_timestamp_seconds{at}"
    failing = f"gpuslice_collector_success{at} == 0"
    unreadable = "cannot read $1"
    states = (
        f'label_replace(time() - ({down}), "state", "does not answer", "", "")',
        f'label_replace(time() - {_SNAPSHOT}{at} > {STALE_SECONDS}, "state", "polls no more", "", "")',
        f'label_replace(time() - ({last} and {failing}), "state", "{unreadable}", "collector", "(.*)")',
    )
    never = f'label_replace(time() - ({failing} unless {last}), "state", "{unreadable}", "collector", "(.*)")'
    # An address may have been that of another node.
    nodes = unclashed(_lately("gpuslice_node_info", "node", "exported_node"), "node")
    nodes = f"topk by ({TARGET}) (1, {nodes})"
    since, found = (
        f"max by ({TARGET}, node, state) (({' or '.join(rows)}) * on ({TARGET}) group_left (node) {nodes})"
        for rows in (states, (*states, never))
    )
    return f"topk({LISTED}, {found})", f"topk({LISTED}, {since})"


def _rows(record: str, series: str) -> str:
    raw = f"max by ({HOLDER}, {RENAMED}) (gpuslice_container_{series}{{{_RAW}}})"
    return f"({either(f'container:gpuslice_{record}{{{CLUSTER}}}', raw)})"


def _lately(series: str, *labels: str) -> str:
    """Give what a target says or, if it is silent, what it said lately or at one of several times ago."""
    by, selected = ", ".join((TARGET, *labels)), f"{series}{{{CLUSTER}}}"
    earlier = " or ".join(f"{selected} offset {ago}" for ago in _AGO)
    return f"(max by ({by}) (last_over_time({selected}[1h])) or on ({TARGET}) max by ({by}) ({earlier}))"
