"""Counts of what is in a sum, and of what has to be in it.

Each sum has a count of its rows, by the same labels. How many there have to be comes from series, not from
other records: a record that is missing must not look like one of nothing.
"""

from collections.abc import Iterable

_READ = "group by (cluster, node, uuid) (gpuslice_gpu_up or gpuslice_gpu_condition)"
"""GPUs that are read, by either of two series."""
HOLDERS = "max by (cluster, node, uuid) (gpuslice_gpu_holders)"
NO_HOLDERS = (
    f"sum by (cluster, node) ({HOLDERS} and on (cluster, node, uuid) {_READ}) == 0\n"
    "or max by (cluster, node) (gpuslice_node_gpus) == 0"
)
"""0 for a node whose GPUs have no holders."""
_SLICES = "gpuslice_gpu_slices or gpuslice_gpu_slices_allocated"
KNOWN_GPUS = {
    "total_bytes": "max by (cluster, node, uuid) (gpuslice_gpu_memory_total_bytes)",
    "conditions": 'max by (cluster, node, uuid) (gpuslice_gpu_condition{condition!="driver_released"})',
    "holders": HOLDERS,
    # Without slices and holders, there is nothing to offer.
    "offers": "max by (cluster, node, uuid) (gpuslice_gpu_slices or gpuslice_gpu_holders == 0)",
    "offered_slices": "max by (cluster, node, uuid, resource) (gpuslice_gpu_slices)",
    "held_slices": "max by (cluster, node, uuid, resource) (gpuslice_gpu_slices_allocated)",
    "unhealthy_slices": "max by (cluster, node, uuid, resource) (gpuslice_gpu_slices_unhealthy)",
    "slices": f"group by (cluster, node, uuid, resource) ({_SLICES})",
}
"""Rows of GPUs that are counted, by the label ``value`` of their counts."""


def all_containers(labels: str, records: Iterable[str]) -> str:
    """Return the containers on GPUs that are read, by any of their series: one of them may be missing."""
    info = f"gpuslice_container_info and on (cluster, node, uuid) {_READ}"
    return "\nor ".join(f"group by ({labels}) ({rows})" for rows in (info, *records))


def valued(rows: str, labels: str, value: str) -> str:
    """Return a count of rows with ``value`` as a label."""
    return f'label_replace(count by ({labels}) ({rows}), "value", "{value}", "", "")'
