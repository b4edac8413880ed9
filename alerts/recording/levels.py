"""What is there, held, used and wasted by node, model, namespace and cluster."""

from collections.abc import Iterator

from alerts.model import Record
from alerts.promql import DEVICE, GPU_NAMES, indented
from alerts.recording.gpus import BY_RESOURCE, PARTS
from alerts.recording.sums import RATIOS, Sum, container_sums
from alerts.recording.windows import LONG, SHORT

LEVELS = {"node": "cluster, node", "model": "cluster, model", "cluster": "cluster"}
"""The levels that are added up from GPUs, and their labels."""
NAMESPACE = "cluster, namespace"
_TOTALS = {
    "gpuslice_up:max": ("gpuslice_gpus_up:sum", "GPUs that were read."),
    "gpuslice_memory_total_bytes:max": (
        "gpuslice_memory_total_bytes:sum",
        "The memory of all GPUs, as far as it is known.",
    ),
    "gpuslice_slices:max": ("gpuslice_slices:sum", "Slices that are offered, by `resource`."),
    "gpuslice_slices_allocated:max": ("gpuslice_slices_allocated:sum", "Slices held, by `resource`."),
}


def level_records() -> tuple[Record, ...]:
    """Give sums and efficiency by node, model and cluster."""
    return tuple(record for level, labels in LEVELS.items() for record in _level(level, labels))


def namespace_records() -> tuple[Record, ...]:
    """Give sums and efficiency by namespace."""
    sums = (
        _sum("namespace", each, f"{each.function} by ({NAMESPACE}) (\n{indented(own(each.rows))}\n)")
        for each in container_sums()
    )
    return (*sums, *_ratios("namespace"))


def own(rows: str, names: str = GPU_NAMES) -> str:
    """Leave the rows of containers that are on GPUs whose driver is asked, not on devices of other makers."""
    return f"{rows}\nand on ({DEVICE}) {names}"


def _level(level: str, labels: str) -> Iterator[Record]:
    yield Record(
        name=f"{level}:gpuslice_gpus:count",
        expr=f"count by ({labels}) ({GPU_NAMES})",
        why="GPUs whose driver is asked, lost ones included.",
    )
    for name, (total, why) in _TOTALS.items():
        by = f"{labels}, resource" if name in BY_RESOURCE else labels
        yield Record(name=f"{level}:{total}", expr=f"sum by ({by}) (gpu:{name})", why=why)
    for each in container_sums():
        yield _sum(level, each, f"sum by ({labels}) ({PARTS}:{each.name})")
    yield from _ratios(level)


def _sum(level: str, each: Sum, added: str) -> Record:
    if each.zero is not None:
        nothing = "* 0" if each.function == "count" else "== 0"
        added += f"\nor\n({level}:{each.zero} {nothing})"
    return Record(name=f"{level}:{each.name}", expr=added, why=each.why)


def _ratios(level: str) -> Iterator[Record]:
    for ratio in RATIOS:
        used, held = f"{level}:{ratio.used}", f"{level}:{ratio.held}"
        yield Record(
            name=f"{level}:{ratio.name}:ratio5m",
            expr=f"{used} / ({held} > 0)",
            why=f"Used by held {ratio.quantity}, where both are known, over {SHORT}.",
        )
        yield Record(
            name=f"{level}:{ratio.name}:ratio1h",
            # The mean of ratios would give a quiet minute with one holder the weight of a busy one.
            expr=f"(\n"
            f"  sum_over_time({used}[{LONG}])\n"
            f"  / (sum_over_time({held}[{LONG}]) > 0)\n"
            f")\n"
            f"and {held}",
            why=f"The same over {LONG}, of what has holders that are measured now.",
        )
