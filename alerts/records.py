"""The recording rules: rows of containers, and their sums by node and by namespace.

Every row has the labels of its subject and ``cluster``, and none of the target: what two targets report is
one row. Unknown values are in no sum; a sum is 0 if there is nothing to add, absent if nothing is known.
"""

from collections.abc import Callable, Iterator

from alerts.model import Group, Record
from alerts.record_counts import HOLDERS, KNOWN_GPUS, NO_HOLDERS, all_containers, valued
from alerts.windows import Windows, seconds

GPU = "cluster, node, gpu, uuid"
HOLDER = f"{GPU}, mig_uuid, namespace, pod, container"
_NODE, _NAMESPACE = "cluster, node, model", "cluster, namespace"

MODEL = "gpu:gpuslice_model:info"
SLICES = "container:gpuslice_held_slices:max"
HELD_GPUS, HELD_BYTES = "container:gpuslice_held_gpus:max", "container:gpuslice_held_bytes:max"
USED_GPUS, USED_BYTES = "container:gpuslice_used_gpus:avg5m", "container:gpuslice_used_bytes:avg5m"
IDLE_SECONDS, IDLE = "container:gpuslice_idle_seconds:max", "container:gpuslice_idle_holder:bool"
LIMITED = "container:gpuslice_limit_enforced:bool"
DEVICE = f"{GPU}, mig_uuid"
SHARED = f"count by ({DEVICE}) ({SLICES} > 0) > 1"
"""The devices that several containers hold."""
FILLED, CONTENDED = "gpu:gpuslice_filled_memory:ratio", "gpu:gpuslice_contending_holders:count"
HELD_SECONDS, USED_SECONDS = (
    f"container:gpuslice_{what}_gpu_seconds:increase1h" for what in ("held", "used")
)

_SUMS = {
    "holders": (f"{SLICES} > bool 0", "Containers that hold slices, once for each device."),
    "idle_holders": (IDLE, "Idle holders, of those with measured compute."),
    "held_gpus": (HELD_GPUS, "Compute that holders are entitled to."),
    "used_gpus": (USED_GPUS, "Compute used by containers, mean of 5 minutes."),
    "idle_gpus": (f"{HELD_GPUS} * {IDLE}", "Compute that idle holders are entitled to."),
    "held_bytes": (HELD_BYTES, "Memory that holders are entitled to."),
    "used_bytes": (USED_BYTES, "Memory used by containers, mean of 5 minutes."),
    "unused_gpus": (
        f"clamp_min({HELD_GPUS} - {USED_GPUS}, 0)",
        "Compute held and not used, holder by holder.",
    ),
    "unused_bytes": (
        f"clamp_min({HELD_BYTES} - {USED_BYTES}, 0)",
        "Memory held and not used, holder by holder.",
    ),
}
"""Sums over containers: rows, and the meaning."""
_ZERO = frozenset({"idle_holders", "held_gpus", "idle_gpus", "held_bytes", "unused_gpus", "unused_bytes"})
"""Sums that are 0 if there are no holders."""

_OF_GPUS = {
    "up_gpus:sum": ("gpu_up", "", "GPUs with a successful last read."),
    "total_bytes:sum": ("gpu_memory_total_bytes", "", "Memory of the GPUs that report it."),
    "offered_slices:sum": ("gpu_slices", "resource", "Slices offered by device plugins, by `resource`."),
    "held_slices:sum": ("gpu_slices_allocated", "resource", "Slices allocated to pods, by `resource`."),
    "unhealthy_slices:sum": ("gpu_slices_unhealthy", "resource", "Unhealthy slices, by `resource`."),
}
"""Sums over series of GPUs: the series, a further label, and the meaning."""

_HOURS = {
    "held": (HELD_SECONDS, "GPU-seconds held within the hour."),
    "measured": (f"{HELD_SECONDS} and {USED_SECONDS}", "GPU-seconds held while use was measured."),
    "used": (f"{USED_SECONDS} and {HELD_SECONDS}", "GPU-seconds used, of those."),
}


def recording_groups(windows: Windows) -> tuple[Group, ...]:
    """Return the groups, each after those that it uses."""
    often, seldom = windows.interval, windows.slow_interval
    return (
        Group(name="gpuslice-containers", interval=often, rules=tuple(_containers(windows))),
        Group(
            name="gpuslice-nodes",
            interval=often,
            rules=(*_nodes(), *_gpus(), *_sums("node", _by_node, _of_node)),
        ),
        Group(
            name="gpuslice-namespaces",
            interval=often,
            rules=tuple(_sums("namespace", _by_namespace, str)),
        ),
        Group(name="gpuslice-hours", interval=seldom, rules=tuple(_hours())),
    )


def _containers(windows: Windows) -> Iterator[Record]:
    yield Record(
        name=MODEL,
        # A GPU that was lost before its model was read has none.
        expr=f"max by ({GPU}, model) (gpuslice_gpu_info) and on (cluster, node, uuid) gpuslice_gpu_up\n"
        f"or on (cluster, node, uuid) max by ({GPU}) (gpuslice_gpu_up * 0 + 1)",
        why="1 for each GPU that is read, with its model; other records only count these.",
    )
    for name, series, why in (
        (SLICES, "slices", "Slices that a container holds; 0: it uses the device and holds nothing."),
        (HELD_GPUS, "compute_entitled_ratio", "Compute that a container is entitled to."),
        (HELD_BYTES, "memory_entitled_bytes", "Memory that a container is entitled to."),
    ):
        yield Record(name=name, expr=_rows(f"gpuslice_container_{series}"), why=why)
    for name, series, why in (
        (USED_GPUS, "compute_used_ratio", "Compute used by a container, mean of 5 minutes."),
        (USED_BYTES, "memory_used_bytes", "Memory used by a container, mean of 5 minutes."),
    ):
        # A container that has ended does not count next to its replacement.
        rows = f"avg_over_time(gpuslice_container_{series}[5m]) and gpuslice_container_{series}"
        yield Record(name=name, expr=_rows(rows), why=why)
    rows = all_containers(HOLDER, (SLICES, HELD_GPUS, HELD_BYTES, USED_GPUS, USED_BYTES))
    for level, labels, none in (
        ("node", "cluster, node", f"\nor {NO_HOLDERS}"),
        ("namespace", _NAMESPACE, ""),
    ):
        yield Record(
            name=f"{level}:gpuslice_containers:count",
            expr=f"count by ({labels}) ({rows}){none}",
            why="Containers that hold or use a GPU, once for each device: those that sums have to contain.",
        )
    yield from _states(windows.idle_after)
    yield from _contention()
    yield from _listed()


def _rows(rows: str) -> str:
    """Return rows of containers on GPUs that are read, not on devices of other vendors."""
    return f"max by ({HOLDER}) ({rows} and on (cluster, node, uuid) gpuslice_gpu_up)"


def _states(idle_after: str) -> Iterator[Record]:
    # The state of one that computed at the last poll is that of this poll, however old it is.
    idle = "(gpuslice_container_compute_used_ratio == bool 0)"
    last = "(time() - gpuslice_container_last_active_timestamp_seconds)"
    yield Record(
        name=IDLE_SECONDS,
        expr=_rows(f"{last} * {idle} and gpuslice_container_slices > 0"),
        why="Seconds since the last compute use of a holder, 0 if it computes; absent if compute is not "
        "measured.",
    )
    yield Record(
        name=IDLE,
        expr=f"{IDLE_SECONDS} >= bool {seconds(idle_after):g}",
        why=f"1 if a holder has not computed for {idle_after}, else 0; absent if that is not measured.",
    )
    limited = 'gpuslice_container_info{isolation=~"hard|soft"}'
    yield Record(
        name=LIMITED,
        expr=_rows(f"({limited} or gpuslice_container_info * 0)"),
        why="1 if hardware or a library enforces the share of a container, else 0.",
    )


def _contention() -> Iterator[Record]:
    # Where the driver does not report reserved memory, it is part of the used.
    filled = (
        "gpuslice_{0}_memory_used_bytes / (gpuslice_{0}_memory_total_bytes"
        " - (gpuslice_{0}_memory_reserved_bytes or 0 * gpuslice_{0}_memory_used_bytes))"
    )
    yield Record(
        name=FILLED,
        expr=f"max by ({DEVICE}) ({filled.format('gpu')}\nor {filled.format('mig')})",
        why="Memory in use of a GPU or MIG device, of what is not reserved.",
    )
    # Limits that all fit into the device keep holders apart; a MIG device has its own memory.
    too_much = (
        f'sum by ({GPU}) ({HELD_BYTES}{{mig_uuid=""}}) > max by ({GPU}) (gpuslice_gpu_memory_total_bytes)'
    )
    yield Record(
        name=CONTENDED,
        expr=f"{SHARED}\n"
        f"and on ({DEVICE}) ({LIMITED} == 0 or ({SLICES} > 0 unless {HELD_BYTES}) or {too_much})",
        why="Holders of a device that can take memory from each other; absent if they cannot.",
    )


def _listed() -> Iterator[Record]:
    idle = f"and {IDLE} == 1"
    largest = "\nor ".join(
        f"topk by (cluster) (50, {rows} {idle})" for rows in (IDLE_SECONDS, USED_BYTES, HELD_GPUS)
    )
    yield Record(
        name="container:gpuslice_largest_idle_seconds:topk",
        expr=f"{IDLE_SECONDS} and ({largest})",
        why="Seconds without compute use of idle holders: the 50 longest of a cluster, and the 50 each "
        "with most memory used and most compute held.",
    )
    yield Record(
        name="gpu:gpuslice_raised_condition:bool",
        expr=f'max by ({GPU}, condition) (gpuslice_gpu_condition{{condition!="driver_released"}} == 1)',
        why="1 for each `condition` that a GPU has; a released driver is none.",
    )


def _nodes() -> Iterator[Record]:
    yield Record(
        name="node:gpuslice_exporters:count",
        expr="count by (cluster, node) "
        "(group by (cluster, node, job, instance) (gpuslice_snapshot_timestamp_seconds))",
        why="Targets that report the node.",
    )
    yield Record(
        name="node:gpuslice_sharing:count",
        expr="count by (cluster, node, sharing) (max by (cluster, node, uuid, sharing) "
        "(gpuslice_gpu_info and on (cluster, node, uuid) gpuslice_gpu_up))",
        why="GPUs by their mode of `sharing`.",
    )
    counts = (
        valued(_of_node(rows), f"{_NODE}, resource" if "resource" in rows else _NODE, value)
        for value, rows in KNOWN_GPUS.items()
    )
    yield Record(
        name="node:gpuslice_known_gpus:count",
        expr="\nor ".join(counts),
        why="GPUs of which a `value` is known: `total_bytes`, `conditions`, `holders`, `offers` (slices, or "
        "that it has none), and by `resource` each sum of slices, and those that have such `slices`.",
    )


def _gpus() -> Iterator[Record]:
    yield Record(
        name="node:gpuslice_total_gpus:count",
        expr=f"count by ({_NODE}) ({MODEL})",
        why="GPUs that are read, including lost ones.",
    )
    yield Record(
        name="node:gpuslice_unhealthy_gpus:sum",
        expr=_by_node('max by (cluster, node, uuid) (gpuslice_gpu_condition{condition!="driver_released"})'),
        why="GPUs with a condition other than a released driver.",
    )
    for name, (series, label, why) in _OF_GPUS.items():
        labels = f", {label}" if label else ""
        rows = f"max by (cluster, node, uuid{labels}) (gpuslice_{series})"
        yield Record(name=f"node:gpuslice_{name}", expr=_by_node(rows, labels), why=why)


def _of_node(rows: str) -> str:
    return f"({rows}) * on (cluster, node, uuid) group_left (model) {MODEL}"


def _by_node(rows: str, labels: str = "") -> str:
    return f"sum by ({_NODE}{labels}) ({_of_node(rows)})"


def _by_namespace(rows: str) -> str:
    return f"sum by ({_NAMESPACE}) ({rows})"


def _sums(level: str, total: Callable[[str], str], rows_of: Callable[[str], str]) -> Iterator[Record]:
    counts = []
    for name, (rows, why) in _SUMS.items():
        expr = total(rows)
        if name in _ZERO:
            expr += f"\nor {level}:gpuslice_holders:sum == 0"
        elif name == "holders" and level == "node":
            # Without a row, it is 0 only if no GPU has a holder.
            expr += f"\nor {total(HOLDERS)} == 0"
        yield Record(name=f"{level}:gpuslice_{name}:sum", expr=expr, why=why)
        labels = _NODE if level == "node" else _NAMESPACE
        counts.append(valued(rows_of(rows), labels, name))
    yield Record(
        name=f"{level}:gpuslice_known_containers:count",
        expr="\nor ".join(counts),
        why="Containers that are in a sum, by the name of the sum as `value`.",
    )


def _hours() -> Iterator[Record]:
    for name, series, why in (
        (HELD_SECONDS, "entitled", "GPU-seconds held within the hour, also by containers that have ended."),
        (USED_SECONDS, "used", "GPU-seconds used within the hour."),
    ):
        # The counters of a replaced exporter are another target's, and add up.
        rows = f"increase(gpuslice_container_{series}_gpu_seconds_total[1h])"
        expr = f"sum by ({HOLDER}) (max by ({HOLDER}, instance) ({rows}))"
        yield Record(name=name, expr=expr, why=why)
    for what, (rows, why) in _HOURS.items():
        name = f"gpuslice_{what}_gpu_seconds:increase1h"
        yield Record(name=f"namespace:{name}", expr=_by_namespace_lately(rows), why=why)
        if what != "held":
            yield Record(name=f"node:{name}", expr=_by_node_lately(rows), why=why)


def _by_node_lately(rows: str) -> str:
    # A model that was read late is another series.
    return _by_node(rows).replace(MODEL, f"topk by (cluster, node, uuid) (1, last_over_time({MODEL}[1h]))")


def _by_namespace_lately(rows: str) -> str:
    return _by_namespace(f"({rows}) and on (cluster, node, uuid) last_over_time({MODEL}[1h])")
