"""Selectors of the chosen clusters, nodes, GPUs and pods, and legends.

Every series has the labels of its subject, so that a query is the name of a series and a selector. The
recording rules have no labels of the target; of other series, ``without_target`` removes them.
"""

CLUSTER = 'cluster=~"$cluster"'
NODES = f'{CLUSTER}, node=~"$node"'
GPUS = f'{NODES}, gpu=~"$gpu"'
PODS = f'{CLUSTER}, namespace=~"$namespace", pod=~"$pod"'

_HOLDER = "cluster, node, uuid, mig_uuid, namespace, pod, container"

# Legends. Two clusters may have nodes of the same name.
NODE = "{{cluster}} {{node}}"
GPU = f"{NODE} · GPU {{{{gpu}}}}"
MIG = f"{GPU} · {{{{profile}}}} {{{{mig_uuid}}}}"
POD = "{{cluster}} {{namespace}}/{{pod}}"


def without_target(rows: str) -> str:
    """Return rows without the labels of the target and without the name of the series, as tables need."""
    return f"max without (job, instance) ({rows})"


def once_a_gpu(rows: str) -> str:
    """Return rows of GPUs, each once: replicas of Prometheus may report them several times."""
    return f"max by (cluster, node, uuid) ({rows})"


def once_a_holder(rows: str, *more: str) -> str:
    """Return rows of containers and devices, each once, by ``more`` labels as well.

    Counters are by ``instance``: those of an exporter that was replaced add up.
    """
    return f"max by ({', '.join((_HOLDER, *more))}) ({rows})"


def or_none(rows: str, label: str, known: str) -> str:
    """Return rows, or one with "none" in ``label`` if there are none and ``known`` has a result."""
    return f'{rows} or on () label_replace(count({known}) * NaN, "{label}", "none", "", "")'
