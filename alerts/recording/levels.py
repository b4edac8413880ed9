"""Records of what is offered, held, used and wasted by node, model, namespace and cluster."""

from collections.abc import Iterator

from alerts.model import Record
from alerts.promql import DEVICE, GPU_NAMES, indented
from alerts.recording.gpus import BY_RESOURCE, PARTS
from alerts.recording.sums import RATIOS, Sum, container_sums
from alerts.windows import LONG, SHORT

LEVELS = {"node": "cluster, node", "model": "cluster, model", "cluster": "cluster"}
"""The levels that are sums of GPUs, and their labels."""
NAMESPACE = "cluster, namespace"
_TOTALS = {
    "gpuslice_up:max": ("gpuslice_gpus_up:sum", "GPUs with a successful last read."),
    "gpuslice_memory_total_bytes:max": (
        "gpuslice_memory_total_bytes:sum",
        "Memory of all GPUs with known memory.",
    ),
    "gpuslice_slices:max": ("gpuslice_slices:sum", "Offered slices, by `resource`."),
    "gpuslice_slices_allocated:max": ("gpuslice_slices_allocated:sum", "Held slices, by `resource`."),
}


def level_records() -> tuple[Record, ...]:
    """Return sums and efficiency by node, model and cluster."""
    return tuple(record for level, labels in LEVELS.items() for record in _level(level, labels))


def namespace_records() -> tuple[Record, ...]:
    """Return sums and efficiency by namespace."""
    sums = (
        _sum("namespace", total, f"{total.function} by ({NAMESPACE}) (\n{indented(own(total.rows))}\n)")
        for total in container_sums()
    )
    return (*sums, *_ratios("namespace"))


def own(rows: str, names: str = GPU_NAMES) -> str:
    """Return the rows of containers on GPUs that are read, without those on devices of other vendors."""
    return f"{rows}\nand on ({DEVICE}) {names}"


def _level(level: str, labels: str) -> Iterator[Record]:
    yield Record(
        name=f"{level}:gpuslice_gpus:count",
        expr=f"count by ({labels}) ({GPU_NAMES})",
        why="GPUs that are read, including lost ones.",
    )
    for name, (total_name, why) in _TOTALS.items():
        by = f"{labels}, resource" if name in BY_RESOURCE else labels
        yield Record(name=f"{level}:{total_name}", expr=f"sum by ({by}) (gpu:{name})", why=why)
    for total in container_sums():
        yield _sum(level, total, f"sum by ({labels}) ({PARTS}:{total.name})")
    yield from _ratios(level)


def _sum(level: str, total: Sum, expr: str) -> Record:
    if total.zero is not None:
        zero = "* 0" if total.function == "count" else "== 0"
        expr += f"\nor\n({level}:{total.zero} {zero})"
    return Record(name=f"{level}:{total.name}", expr=expr, why=total.why)


def _ratios(level: str) -> Iterator[Record]:
    for ratio in RATIOS:
        used, held = f"{level}:{ratio.used}", f"{level}:{ratio.held}"
        yield Record(
            name=f"{level}:{ratio.name}:ratio5m",
            expr=f"{used} / ({held} > 0)",
            why=f"Used by held {ratio.quantity} over {SHORT}, of containers with both known.",
        )
        yield Record(
            name=f"{level}:{ratio.name}:ratio1h",
            # The mean of ratios would give a quiet minute with one holder the weight of a busy one.
            expr=f"(\n"
            f"  sum_over_time({used}[{LONG}])\n"
            f"  / (sum_over_time({held}[{LONG}]) > 0)\n"
            f")\n"
            f"and {held}",
            why=f"The same over {LONG}; absent if no holder is measured now.",
        )
