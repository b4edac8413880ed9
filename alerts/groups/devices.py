"""Names for rows about devices, with or without a known name."""

from alerts.promql import DEVICE, GPU_NAMES, on_gpu, on_node

OF_DEVICE = (
    "{{ with $labels.gpu }}GPU {{ . }} ({{ $labels.uuid }}) of {{ else }}"
    "{{ with $labels.uuid }}device {{ . }} of {{ end }}{{ end }}node {{ $labels.node }}"
)
"""A device as far as it can be named, else its node."""


def on_device(expr: str, *more: str) -> str:
    """Return rows with names, also without a device or its driver; ``more`` labels distinguish rows."""
    labels = ", ".join((DEVICE, *more))
    return f"{on_gpu(expr)}\nor on ({labels})\n{on_node(expr)}"


def on_any_target(expr: str, *more: str) -> str:
    """Return rows with GPU names from any target, so that an alert outlives a pod; ``more`` is kept."""
    labels = ", ".join(("cluster", "uuid", *more))
    # Two targets may report one GPU. If one of them has its name, the other does not count.
    names = (
        f"topk by (cluster, uuid) (1,\n"
        f'  max by (cluster, uuid, node, gpu, model) ({GPU_NAMES}{{model!=""}})\n'
        f"  or on (cluster, uuid)\n"
        f"  max by (cluster, uuid, node, gpu, model) ({GPU_NAMES})\n"
        f")"
    )
    return f"max by ({labels}) (\n  {expr}\n)\n* on (cluster, uuid) group_left (node, gpu, model)\n{names}"
