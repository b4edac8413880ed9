"""Selectors and joins that the queries of the dashboards have in common.

Series carry what tells them apart and no more: the node stands on ``gpuslice_node_info``, the index and model
of a GPU on ``gpuslice_gpu_info``. Queries join them by the labels of the target.
"""

from collections.abc import Sequence

from dashboards.clashes import of_holders, of_nodes, unclashed

TARGET = "cluster, job, instance"
DEVICE = f"{TARGET}, uuid"
HOLDER = f"{DEVICE}, mig_uuid, namespace, pod, container"

CLUSTER = 'cluster=~"$cluster"'
# Targets that are chosen nodes. It stands in every selector of dashboards about nodes and their GPUs: so a
# Prometheus of a large fleet reads the series of few of its targets.
ON_NODES = f'{CLUSTER}, instance=~"$instance"'
ON_GPUS = f'{ON_NODES}, uuid=~"$uuid"'

# How a node and a GPU are called in legends: names of nodes may be the same in two clusters.
NODE = "{{cluster}} {{node}}"
GPU = f"{NODE} · GPU {{{{gpu}}}}"

# Where the recording rules are loaded this is the empty string, which no series has as its job; else ".+".
FALLBACK = 'job=~"$fallback"'


def _node_info(selector: str, window: str | None) -> str:
    return _within(f"gpuslice_node_info{{{selector}}}", window)


def _within(series: str, window: str | None) -> str:
    """Give a series as it is now; with a window, what it was last within."""
    return series if window is None else f"last_over_time({series}[{window}])"


def node_names(selector: str, window: str | None = None) -> str:
    """Give 1 for each target that is selected, with ``node``; with a window, for all that told it within."""
    return f"max by ({TARGET}, node) ({unclashed(_node_info(selector, window), 'node')})"


def chosen_nodes(selector: str, window: str | None = None) -> str:
    """Give the like of the chosen nodes."""
    return f"max by ({TARGET}, node) {of_nodes(lambda chosen: _node_info(f'{selector}, {chosen}', window))}"


_NODES = chosen_nodes(ON_NODES)
# An address may have been that of one node and then of another: whose it was when is not told afterwards, so
# of such a target only what it is now counts.
_NODES_BEFORE = (
    f"({chosen_nodes(ON_NODES, '$__range')} "
    f"unless on ({TARGET}) count by ({TARGET}) ({node_names(ON_NODES, '$__range')}) > 1)"
)
NODES_LATELY = f"({_NODES} or on ({TARGET}) {_NODES_BEFORE})"
"""1 for each target that is a chosen node or, where it tells none now, was one in the chosen time."""


def containers(name: str, selector: str) -> str:
    """Give a series of containers of the chosen namespaces and pods, by our labels."""
    return of_holders(lambda matchers: f"gpuslice_container_{name}{{{selector}, {matchers}}}")


def containers_over(function: str, name: str, selector: str, window: str) -> str:
    """Give what a function makes of the like over a window: ``rate``, ``increase``."""
    return of_holders(
        lambda chosen: f"{function}(gpuslice_container_{name}{{{selector}, {chosen}}}[{window}])"
    )


def either(record: str, raw: str) -> str:
    """Take what a recording rule has reckoned; where the rules are not loaded, reckon it from the series.

    ``raw`` has ``FALLBACK`` in each of its selectors, so that it costs nothing where the rules are loaded.
    """
    return f"{record} or ({raw})"


def by_node(expr: str, *labels: str) -> str:
    """Give what is told by chosen targets, by node and perhaps other labels, once for each node."""
    return f"max by ({_by('node', *labels)}) (({expr}) * on ({TARGET}) group_left (node) {_NODES})"


def by_gpu(expr: str, *labels: str, of_gpu: Sequence[str] = ()) -> str:
    """Give what is told by GPU, by node, ``gpu`` (its index), uuid and perhaps other labels.

    ``of_gpu`` are labels that the GPU has and the expression has not: ``model``, ``sharing``. A GPU that was
    lost before it could tell its index is called by its uuid.
    """
    added = ", ".join(("node", "gpu", *of_gpu))
    return (
        f"max by ({_by('node', 'gpu', 'uuid', *of_gpu, *labels)}) "
        f"(({expr}) * on ({DEVICE}) group_left ({added}) {gpu_names(ON_GPUS)})"
    )


def by_gpu_lately(expr: str, *labels: str, adding: bool = False) -> str:
    """Give what was told by GPU in the chosen time as ``by_gpu`` does, by targets that are gone as well.

    An exporter whose pod is replaced is another target, and counts anew: ``adding`` gives the sum of what the
    targets told, else it is the largest. Jobs that scrape the same target tell the same.
    """
    told = f"max by (cluster, instance, uuid{''.join(f', {label}' for label in labels)}) ({expr})"
    names = " or on (cluster, uuid) ".join(
        f"topk by (cluster, uuid) (1, {each})"
        for each in (gpu_names(ON_GPUS), gpu_names(ON_GPUS, _NODES_BEFORE, "$__range"))
    )
    return (
        f"{'sum' if adding else 'max'} by ({_by('node', 'gpu', 'uuid', *labels)}) "
        f"({told} * on (cluster, uuid) group_left (node, gpu) ({names}))"
    )


def by_mig(expr: str, *labels: str) -> str:
    """Give what is told by MIG device as ``by_gpu`` does, with its uuid, ``profile``, ``gi`` and ``ci``."""
    devices = f"gpuslice_mig_info{{{ON_GPUS}}}"
    joined = f"({expr}) * on ({DEVICE}, mig_uuid) group_left (profile, gi, ci) {devices}"
    return by_gpu(joined, "mig_uuid", "profile", "gi", "ci", *labels)


def _by(*labels: str) -> str:
    return ", ".join(("cluster", *labels))


def gpu_names(selector: str, nodes: str = _NODES, window: str | None = None) -> str:
    """Give 1 for each GPU of ``nodes``: by DEVICE, ``node``, ``gpu``, ``model`` and ``sharing``.

    With a window it is for all that were told of within.
    """
    info, up = (_within(f"gpuslice_gpu_{name}{{{selector}}}", window) for name in ("info", "up"))
    told = f"max by ({DEVICE}, gpu, model, sharing) ({info})"
    asked = f"max by ({DEVICE}) ({up} * 0 + 1)"
    untold = f'label_replace({asked}, "gpu", "$1", "uuid", "(.*)")'
    return f"(({told} or on ({DEVICE}) {untold}) * on ({TARGET}) group_left (node) {nodes})"


def own(rows: str, selector: str, window: str | None = None) -> str:
    """Leave out devices of other makers, of which only the holders are known: they add to no sum.

    They are told by uuid alone: what was counted until now may have been told by a target that is gone. With
    a window those count that were seen within it: what was counted then may be of a device that is gone.
    """
    told, asked = (_within(f"gpuslice_gpu_{name}{{{selector}}}", window) for name in ("info", "up"))
    others = f"{told} unless on ({DEVICE}) {asked}"
    return f"({rows} unless on (cluster, uuid) ({others}))"
