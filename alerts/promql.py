"""Common pieces of PromQL.

A target is identified by ``cluster`` (a label that exists if Prometheus has several), ``job`` and
``instance``. Labels of series about holders may clash with those of the target and become ``exported_…``
without ``honor_labels``: the rules work either way, through the records of ``recording/``.
"""

TARGET = "cluster, job, instance"
DEVICE = f"{TARGET}, uuid"
HOLDER = f"{TARGET}, namespace, pod, container, uuid, mig_uuid"
# Labels that a target may have: they name the exporter's pod, not the subject of an alert. The last is ours,
# as Prometheus names it without ``honor_labels`` if the target has one too.
OF_TARGET = "namespace, pod, container, endpoint, service, exported_node"

NODE_NAMES = "node:gpuslice_info:names"
"""1 for each target, with ``node``."""
GPU_NAMES = "gpu:gpuslice_info:names"
"""1 for each GPU that is read, with ``node``, ``gpu`` (its index) and ``model``."""

CONTAINER_SLICES = "container:gpuslice_slices:max"
"""Slices that a container holds of a device, by HOLDER; 0: use without holding."""


def on_node(expr: str) -> str:
    """Return rows by target with the label ``node``, without labels that name the exporter's pod."""
    return _joined(expr, TARGET, "node", NODE_NAMES)


def on_gpu(expr: str) -> str:
    """Return rows by GPU with ``node``, ``gpu`` and ``model``."""
    return _joined(expr, DEVICE, "node, gpu, model", GPU_NAMES)


def of_holder(expr: str) -> str:
    """Return rows of the records of containers with ``node``, ``gpu`` and ``model``."""
    return f"(\n{indented(expr)}\n)\n* on ({DEVICE}) group_left (node, gpu, model) {GPU_NAMES}"


def _joined(expr: str, labels: str, added: str, names: str) -> str:
    return f"max without ({OF_TARGET}) (\n{indented(expr)}\n)\n* on ({labels}) group_left ({added}) {names}"


def indented(text: str) -> str:
    """Return a text with every line indented by two spaces."""
    return "\n".join(f"  {line}" for line in text.splitlines())
