"""Rows of the fleet's tables: idle holders, over-committed GPUs, failing exporters."""

from dashboards.clashes import OF_HOLDERS, RENAMED, unclashed
from dashboards.promql import CLUSTER, DEVICE, FALLBACK, HOLDER, TARGET, either, gpu_names, node_names

LISTED = 50
STALE_SECONDS = 300
"""An exporter whose last poll is older than this has stopped polling."""
_RAW = f"{CLUSTER}, {FALLBACK}"
_NODES = node_names(_RAW)
_NAMES = either(f"gpu:gpuslice_info:names{{{CLUSTER}}}", gpu_names(_RAW, _NODES))
_SNAPSHOT = "gpuslice_snapshot_timestamp_seconds"
# How long ago a silent target is looked up.
_AGO = ("3h", "12h", "1d")


def with_names(rows: str, *labels: str) -> str:
    """Return rows by DEVICE with node, GPU and model; ``labels`` are further labels to keep."""
    kept = ", ".join(("cluster", "node", "gpu", "model", "uuid", *labels))
    named = f"({rows}) * on ({DEVICE}) group_left (node, gpu, model) ({_NAMES})"
    # Only few rows are left here.
    return f"max by ({kept}) ({unclashed(named, *(label for label in OF_HOLDERS if label in labels))})"


def idle() -> str:
    """Return the seconds since the last compute use of the holders that are idle the longest."""
    last = _rows("last_active_timestamp_seconds:max", "last_active_timestamp_seconds")
    used = _rows("compute_used_gpus:avg5m", "compute_used_ratio")
    slices = _rows("slices:max", "slices")
    # Without a measurement of compute no holder is idle; a container without a slice is not a holder.
    return f"topk({LISTED}, (time() - {last} > $idle) and {used} == 0 and {slices} > 0)"


def held_by_idle(quantity: str) -> str:
    """Return the entitlements of those holders to ``memory`` (bytes) or ``compute`` (GPUs)."""
    held = {
        "memory": _rows("memory_held_bytes:max", "memory_entitled_bytes"),
        "compute": _rows("compute_held_gpus:max", "compute_entitled_ratio"),
    }[quantity]
    return f"{held} and {idle()}"


def memory_of_idle() -> str:
    """Return the memory that those holders use, in bytes."""
    return f"{_rows('memory_used_bytes:avg5m', 'memory_used_bytes')} and {idle()}"


def overcommitted() -> tuple[str, str]:
    """Return entitled bytes of memory by GPU, if more than the GPU has, and the bytes that it has."""
    held, capacity = (
        f"({either(f'gpu:gpuslice_memory_{record}{{{CLUSTER}}}', f'gpuslice_gpu_memory_{raw}{{{_RAW}}}')})"
        for record, raw in (("held_bytes:sum", "entitled_bytes"), ("total_bytes:max", "total_bytes"))
    )
    exceeded = f"topk({LISTED}, max by ({DEVICE}) ({held}) > max by ({DEVICE}) ({capacity}))"
    return exceeded, f"max by ({DEVICE}) ({capacity}) and {exceeded}"


def silent() -> tuple[str, str]:
    """Return exporters and sources without new data, by ``node`` and ``state``, and since how many seconds.

    The seconds are absent for a source that was never read.
    """
    at = f"{{{CLUSTER}}}"
    down = f"{_lately(_SNAPSHOT)} and on ({TARGET}) up{at} == 0"
    last = f"gpuslice_collector_last_success_timestamp_seconds{at}"
    failing = f"gpuslice_collector_success{at} == 0"
    unreadable = "cannot read $1"
    states = (
        f'label_replace(time() - ({down}), "state", "does not answer", "", "")',
        f'label_replace(time() - {_SNAPSHOT}{at} > {STALE_SECONDS}, "state", "no longer polls", "", "")',
        f'label_replace(time() - ({last} and {failing}), "state", "{unreadable}", "collector", "(.*)")',
    )
    never = f'label_replace(time() - ({failing} unless {last}), "state", "{unreadable}", "collector", "(.*)")'
    # An address may have belonged to another node before.
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
    """Return a series of each target: the current value, or the last known one if the target is silent."""
    by, selected = ", ".join((TARGET, *labels)), f"{series}{{{CLUSTER}}}"
    earlier = " or ".join(f"{selected} offset {ago}" for ago in _AGO)
    return f"(max by ({by}) (last_over_time({selected}[1h])) or on ({TARGET}) max by ({by}) ({earlier}))"
