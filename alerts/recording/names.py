"""Records of the names of nodes and GPUs, for joins."""

from alerts.model import Record
from alerts.promql import DEVICE, GPU_NAMES, NODE_NAMES, TARGET


def name_records() -> tuple[Record, ...]:
    """Return the records that every alert about a node or a GPU is joined with.

    A join fails as a whole if one target or GPU has two names, so each has one at most.
    """
    return (
        Record(
            name=NODE_NAMES,
            # Without honor_labels, Prometheus renames our label if the target has a label "node" too.
            expr=f"topk by ({TARGET}) (1,\n"
            f"  max by ({TARGET}, node) (\n"
            '    label_replace(gpuslice_node_info, "node", "$1", "exported_node", "(.+)")\n'
            "  )\n"
            ")",
            why="1 for each target, with its node.",
        ),
        Record(
            name=GPU_NAMES,
            # A GPU that was lost before the exporter read its name has its uuid alone.
            expr=f"(\n"
            f"  topk by ({DEVICE}) (1,\n"
            f"    max by ({DEVICE}, gpu, model) (\n"
            f"      gpuslice_gpu_info and on ({DEVICE}) gpuslice_gpu_up\n"
            f"    )\n"
            f"  )\n"
            f"  or on ({DEVICE})\n"
            f"  max by ({DEVICE}) (gpuslice_gpu_up * 0 + 1)\n"
            f")\n"
            f"* on ({TARGET}) group_left (node) {NODE_NAMES}",
            why="1 for each GPU, with its node, index and model; none for devices of other vendors, which "
            "are not read.",
        ),
    )
