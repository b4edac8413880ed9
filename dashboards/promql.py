"""Selectors and joins that the queries of the dashboards have in common.

Series carry what tells them apart and no more: the node stands on ``gpuslice_node_info``, the index and model
of a GPU on ``gpuslice_gpu_info``. Queries join them by the labels of the target.
"""

TARGET = "cluster, job, instance"
DEVICE = f"{TARGET}, uuid"

CLUSTER = 'cluster=~"$cluster"'
NAMESPACE = f'{CLUSTER}, namespace=~"$namespace"'
POD = f'{NAMESPACE}, pod=~"$pod"'
GPU = f'{CLUSTER}, uuid=~"$uuid"'

NODE_INFO = f'gpuslice_node_info{{{CLUSTER}, node=~"$node"}}'
GPU_INFO = f"gpuslice_gpu_info{{{CLUSTER}}}"
# Where the recording rules are loaded this is the empty string, which no series has as its job; else ".+".
FALLBACK = 'job=~"$fallback"'


def at_nodes(expr: str) -> str:
    """Leave what is told by the chosen nodes, with the label ``node``."""
    return f"({expr}) * on ({TARGET}) group_left (node) {NODE_INFO}"


def named(expr: str) -> str:
    """Add ``gpu`` (the index) and ``model`` to what is told by GPU."""
    return f"({expr}) * on ({DEVICE}) group_left (gpu, model) {GPU_INFO}"


def either(record: str, raw: str) -> str:
    """Take what a recording rule has reckoned; where the rules are not loaded, reckon it from the series.

    ``raw`` has ``FALLBACK`` in each of its selectors, so that it costs nothing where the rules are loaded.
    """
    return f"{record} or ({raw})"
