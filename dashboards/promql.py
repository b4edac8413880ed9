"""Common selectors and joins of the queries.

Series only have the labels that identify them: the node is on ``gpuslice_node_info``, the index and model of
a GPU on ``gpuslice_gpu_info``. Queries join them by the labels of the target.
"""

from collections.abc import Sequence

from dashboards.clashes import of_holders, of_nodes, unclashed

TARGET = "cluster, job, instance"
DEVICE = f"{TARGET}, uuid"
HOLDER = f"{DEVICE}, mig_uuid, namespace, pod, container"

CLUSTER = 'cluster=~"$cluster"'
# Targets of the chosen nodes. It is in every selector of dashboards about nodes and their GPUs, so that a
# Prometheus of a large fleet reads the series of few of its targets.
ON_NODES = f'{CLUSTER}, instance=~"$instance"'
ON_GPUS = f'{ON_NODES}, uuid=~"$uuid"'

# Legends of nodes and GPUs. Two clusters may have nodes of the same name.
NODE = "{{cluster}} {{node}}"
GPU = f"{NODE} · GPU {{{{gpu}}}}"

# With the recording rules, $fallback is empty, which matches no job; else ".+".
FALLBACK = 'job=~"$fallback"'


def _node_info(selector: str, window: str | None) -> str:
    return _within(f"gpuslice_node_info{{{selector}}}", window)


def _within(series: str, window: str | None) -> str:
    """Return the current series; with a window, its last values within."""
    return series if window is None else f"last_over_time({series}[{window}])"


def node_names(selector: str, window: str | None = None) -> str:
    """Return 1 for each selected target, with ``node``; with a window, for all that reported it within."""
    return f"max by ({TARGET}, node) ({unclashed(_node_info(selector, window), 'node')})"


def chosen_nodes(selector: str, window: str | None = None) -> str:
    """Return the same for the chosen nodes."""
    return f"max by ({TARGET}, node) {of_nodes(lambda chosen: _node_info(f'{selector}, {chosen}', window))}"


_NODES = chosen_nodes(ON_NODES)
# An address may have belonged to two nodes, one after the other. When is unknown, so such a target only
# counts as its current node.
_NODES_BEFORE = (
    f"({chosen_nodes(ON_NODES, '$__range')} "
    f"unless on ({TARGET}) count by ({TARGET}) ({node_names(ON_NODES, '$__range')}) > 1)"
)
NODES_LATELY = f"({_NODES} or on ({TARGET}) {_NODES_BEFORE})"
"""1 for each target that is a chosen node or, if it reports none now, was one in the chosen time."""


def containers(name: str, selector: str) -> str:
    """Return a series of containers of the chosen namespaces and pods, by our labels."""
    return of_holders(lambda matchers: f"gpuslice_container_{name}{{{selector}, {matchers}}}")


def containers_over(function: str, name: str, selector: str, window: str) -> str:
    """Return the same with a function over a window: ``rate``, ``increase``."""
    return of_holders(
        lambda chosen: f"{function}(gpuslice_container_{name}{{{selector}, {chosen}}}[{window}])"
    )


def either(record: str, raw: str) -> str:
    """Return a record, or the same from raw series if the rules are not loaded.

    ``raw`` has ``FALLBACK`` in each of its selectors, so that it costs nothing if the rules are loaded.
    """
    return f"{record} or ({raw})"


def by_node(expr: str, *labels: str) -> str:
    """Return rows of chosen targets by node and ``labels``, once for each node."""
    return f"max by ({_by('node', *labels)}) (({expr}) * on ({TARGET}) group_left (node) {_NODES})"


def by_gpu(expr: str, *labels: str, of_gpu: Sequence[str] = ()) -> str:
    """Return rows of GPUs by node, ``gpu`` (its index), uuid and ``labels``.

    ``of_gpu`` are labels of the GPU that the expression lacks: ``model``, ``sharing``. A GPU that was lost
    before its index was read has its uuid instead.
    """
    added = ", ".join(("node", "gpu", *of_gpu))
    return (
        f"max by ({_by('node', 'gpu', 'uuid', *of_gpu, *labels)}) "
        f"(({expr}) * on ({DEVICE}) group_left ({added}) {gpu_names(ON_GPUS)})"
    )


def by_gpu_lately(expr: str, *labels: str, adding: bool = False) -> str:
    """Return rows of GPUs in the chosen time as ``by_gpu`` does, also of targets that have ended.

    An exporter with a replaced pod is another target, and its counters restart: ``adding`` returns the sum
    over targets, else the largest. Jobs that scrape the same target count once.
    """
    by_target = f"max by (cluster, instance, uuid{''.join(f', {label}' for label in labels)}) ({expr})"
    names = " or on (cluster, uuid) ".join(
        f"topk by (cluster, uuid) (1, {gpus})"
        for gpus in (gpu_names(ON_GPUS), gpu_names(ON_GPUS, _NODES_BEFORE, "$__range"))
    )
    return (
        f"{'sum' if adding else 'max'} by ({_by('node', 'gpu', 'uuid', *labels)}) "
        f"({by_target} * on (cluster, uuid) group_left (node, gpu) ({names}))"
    )


def by_mig(expr: str, *labels: str) -> str:
    """Return rows of MIG devices as ``by_gpu`` does, with their uuid, ``profile``, ``gi`` and ``ci``."""
    devices = f"gpuslice_mig_info{{{ON_GPUS}}}"
    joined = f"({expr}) * on ({DEVICE}, mig_uuid) group_left (profile, gi, ci) {devices}"
    return by_gpu(joined, "mig_uuid", "profile", "gi", "ci", *labels)


def _by(*labels: str) -> str:
    return ", ".join(("cluster", *labels))


def gpu_names(selector: str, nodes: str = _NODES, window: str | None = None) -> str:
    """Return 1 for each GPU of ``nodes``: by DEVICE, ``node``, ``gpu``, ``model`` and ``sharing``.

    With a window, for all that were reported within.
    """
    info, up = (_within(f"gpuslice_gpu_{name}{{{selector}}}", window) for name in ("info", "up"))
    named = f"max by ({DEVICE}, gpu, model, sharing) ({info})"
    read = f"max by ({DEVICE}) ({up} * 0 + 1)"
    unnamed = f'label_replace({read}, "gpu", "$1", "uuid", "(.*)")'
    return f"(({named} or on ({DEVICE}) {unnamed}) * on ({TARGET}) group_left (node) {nodes})"


def own(rows: str, selector: str, window: str | None = None) -> str:
    """Return rows without devices of other vendors, which have holders and no readings and are in no sum.

    They are identified by uuid alone, since a counter may come from a target that has ended. With a window,
    devices that were reported within count, since a device may have been removed.
    """
    info, up = (_within(f"gpuslice_gpu_{name}{{{selector}}}", window) for name in ("info", "up"))
    others = f"{info} unless on ({DEVICE}) {up}"
    return f"({rows} unless on (cluster, uuid) ({others}))"
