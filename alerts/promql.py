"""Pieces of PromQL that the rules have in common.

A target is told apart by ``cluster`` (a label that Prometheus has where it sees several), ``job`` and
``instance``. The labels of series about holders may clash with those of the target, and arrive then as
``exported_…``, unless labels are honoured: the rules work either way, by the records of ``recording/``.
"""

TARGET = "cluster, job, instance"
DEVICE = f"{TARGET}, uuid"
HOLDER = f"{TARGET}, namespace, pod, container, uuid, mig_uuid"
# What a target may have as labels of its own: they name the exporter's pod, not what an alert is about.
OF_TARGET = "namespace, pod, container, endpoint, service"

NODE_NAMES = "node:gpuslice_info:names"
"""1 for each target, with ``node``."""
GPU_NAMES = "gpu:gpuslice_info:names"
"""1 for each GPU whose driver is asked, with ``node``, ``gpu`` (its index) and ``model``."""

CONTAINER_SLICES = "container:gpuslice_slices:max"
"""Slices that a container holds of a device, by HOLDER; 0: it uses the device and holds nothing of it."""


def on_node(expr: str) -> str:
    """Add the label ``node`` to something that is told by target, and take what names the exporter's pod."""
    return _joined(expr, TARGET, "node", NODE_NAMES)


def on_gpu(expr: str) -> str:
    """Add ``node``, ``gpu`` and ``model`` to something that is told by GPU."""
    return _joined(expr, DEVICE, "node, gpu, model", GPU_NAMES)


def of_holder(expr: str) -> str:
    """Add ``node``, ``gpu`` and ``model`` to rows of the records of containers."""
    return f"(\n{indented(expr)}\n)\n* on ({DEVICE}) group_left (node, gpu, model) {GPU_NAMES}"


def _joined(expr: str, labels: str, added: str, names: str) -> str:
    return f"max without ({OF_TARGET}) (\n{indented(expr)}\n)\n* on ({labels}) group_left ({added}) {names}"


def indented(text: str) -> str:
    """Move every line to the right, as what stands in brackets."""
    return "\n".join(f"  {line}" for line in text.splitlines())
