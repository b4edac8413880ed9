"""Names for what is told of devices, some of which have none."""

from alerts.promql import DEVICE, GPU_NAMES, on_gpu, on_node

OF_DEVICE = (
    "{{ with $labels.gpu }}GPU {{ . }} ({{ $labels.uuid }}) of {{ else }}"
    "{{ with $labels.uuid }}device {{ . }} of {{ end }}{{ end }}node {{ $labels.node }}"
)
"""A device as far as it can be named, else its node."""


def on_device(expr: str, *more: str) -> str:
    """Name what may be of a device whose driver is not asked, or of none; ``more`` labels tell rows apart."""
    labels = ", ".join((DEVICE, *more))
    return f"{on_gpu(expr)}\nor on ({labels})\n{on_node(expr)}"


def on_any_target(expr: str, *more: str) -> str:
    """Name GPUs whoever tells of them, so that an alert outlives the exporter's pod; ``more`` is kept."""
    labels = ", ".join(("cluster", "uuid", *more))
    # Two targets may tell of one GPU. As long as one can name it, the one that cannot does not count.
    names = (
        f"topk by (cluster, uuid) (1,\n"
        f'  max by (cluster, uuid, node, gpu, model) ({GPU_NAMES}{{model!=""}})\n'
        f"  or on (cluster, uuid)\n"
        f"  max by (cluster, uuid, node, gpu, model) ({GPU_NAMES})\n"
        f")"
    )
    return f"max by ({labels}) (\n  {expr}\n)\n* on (cluster, uuid) group_left (node, gpu, model)\n{names}"
