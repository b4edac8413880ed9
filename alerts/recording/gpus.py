"""Records of what is offered, held and used by GPU, with its names; other levels are sums of these."""

from collections.abc import Iterator

from alerts.model import Record
from alerts.promql import DEVICE, GPU_NAMES, indented
from alerts.recording.sums import HOLDERS, Sum, container_sums

PARTS = "node_model"
"""The level between single GPUs and all others: the GPUs of one model in a node."""
PART_LABELS = "cluster, node, model"

OF_GPUS = {
    "gpuslice_up:max": ("gpuslice_gpu_up", "1 if the last read of the GPU succeeded, else 0."),
    "gpuslice_memory_total_bytes:max": ("gpuslice_gpu_memory_total_bytes", "Memory of the GPU."),
    "gpuslice_slices:max": ("gpuslice_gpu_slices", "Offered slices of the GPU, by `resource`."),
    "gpuslice_slices_allocated:max": (
        "gpuslice_gpu_slices_allocated",
        "Held slices of the GPU, by `resource`.",
    ),
}
"""Records of single series of GPUs: name to series and meaning."""

BY_RESOURCE = frozenset({"gpuslice_slices:max", "gpuslice_slices_allocated:max"})
"""Records with the label ``resource``."""


def gpu_records() -> tuple[Record, ...]:
    """Return the records by GPU, and by the GPUs of one model in a node."""
    gpu_sums = (_gpu_sum(total) for total in container_sums() if total.by_gpu)
    part_sums = (_part_sum(total) for total in container_sums())
    return (*_gpu_series(), *gpu_sums, *part_sums)


def named(by_device: str, names: str = GPU_NAMES) -> str:
    """Return rows by DEVICE with the names of GPUs; rows on devices of other vendors are left out."""
    return f"(\n{indented(by_device)}\n)\n* on ({DEVICE}) group_left (node, gpu, model) {names}"


def of_part(by_device: str, names: str = GPU_NAMES) -> str:
    """Return rows by DEVICE added up by node and model."""
    return f"sum by ({PART_LABELS}) (\n{indented(named(by_device, names))}\n)"


def _gpu_series() -> Iterator[Record]:
    for name, (series, why) in OF_GPUS.items():
        labels = f"{DEVICE}, resource" if name in BY_RESOURCE else DEVICE
        yield Record(name=f"gpu:{name}", expr=named(f"max by ({labels}) ({series})"), why=why)


def _gpu_sum(total: Sum) -> Record:
    rows = f"{total.function} by ({DEVICE}) ({total.rows})"
    if total.name == HOLDERS:
        rows += f"\nor\nmax by ({DEVICE}) (gpuslice_gpu_holders == 0)"
    return Record(name=f"gpu:{total.name}", expr=named(rows), why=total.why)


def _part_sum(total: Sum) -> Record:
    if total.by_gpu:
        expr = f"sum by ({PART_LABELS}) (gpu:{total.name})"
    else:
        expr = of_part(f"{total.function} by ({DEVICE}) ({total.rows})")
    return Record(name=f"{PARTS}:{total.name}", expr=expr, why=total.why)
