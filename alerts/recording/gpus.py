"""What is there, held and used of GPUs, with their names: what other levels are added up from."""

from collections.abc import Iterator

from alerts.model import Record
from alerts.promql import DEVICE, GPU_NAMES, indented
from alerts.recording.sums import HOLDERS, Sum, container_sums

PARTS = "node_model"
"""The level between single GPUs and all others: the GPUs of one model in a node, which are few."""
PART_LABELS = "cluster, node, model"

OF_GPUS = {
    "gpuslice_up:max": ("gpuslice_gpu_up", "1 for a GPU that was read, 0 for one that was not."),
    "gpuslice_memory_total_bytes:max": ("gpuslice_gpu_memory_total_bytes", "The memory of a GPU."),
    "gpuslice_slices:max": ("gpuslice_gpu_slices", "Slices of a GPU that are offered, by `resource`."),
    "gpuslice_slices_allocated:max": (
        "gpuslice_gpu_slices_allocated",
        "Slices of a GPU that are held, by `resource`.",
    ),
}
"""Records of what the exporter tells of GPUs: their series, and what they are for."""

BY_RESOURCE = frozenset({"gpuslice_slices:max", "gpuslice_slices_allocated:max"})
"""Those that are told apart by ``resource`` too."""


def gpu_records() -> tuple[Record, ...]:
    """Give what is held and used of each GPU, and of the GPUs of one model in a node."""
    of_gpus = (_of_gpu(each) for each in container_sums() if each.by_gpu)
    of_parts = (_of_part(each) for each in container_sums())
    return (*_told(), *of_gpus, *of_parts)


def named(by_device: str, names: str = GPU_NAMES) -> str:
    """Add the names to something told by DEVICE; what is on devices of other makers is left out."""
    return f"(\n{indented(by_device)}\n)\n* on ({DEVICE}) group_left (node, gpu, model) {names}"


def of_part(by_device: str, names: str = GPU_NAMES) -> str:
    """Add up by node and model something told by DEVICE."""
    return f"sum by ({PART_LABELS}) (\n{indented(named(by_device, names))}\n)"


def _told() -> Iterator[Record]:
    for name, (series, why) in OF_GPUS.items():
        labels = f"{DEVICE}, resource" if name in BY_RESOURCE else DEVICE
        yield Record(name=f"gpu:{name}", expr=named(f"max by ({labels}) ({series})"), why=why)


def _of_gpu(each: Sum) -> Record:
    rows = f"{each.function} by ({DEVICE}) ({each.rows})"
    if each.name == HOLDERS:
        rows += f"\nor\nmax by ({DEVICE}) (gpuslice_gpu_holders == 0)"
    return Record(name=f"gpu:{each.name}", expr=named(rows), why=each.why)


def _of_part(each: Sum) -> Record:
    if each.by_gpu:
        expr = f"sum by ({PART_LABELS}) (gpu:{each.name})"
    else:
        expr = of_part(f"{each.function} by ({DEVICE}) ({each.rows})")
    return Record(name=f"{PARTS}:{each.name}", expr=expr, why=each.why)
