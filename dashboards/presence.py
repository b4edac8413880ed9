"""Queries of existing GPUs, and of those that answer.

A GPU that was lost before the exporter read it has no uuid, so no series of its own: it is only in the number
of GPUs that the driver counts.
"""

from dashboards.panels import BAD, GOOD, Query, Words
from dashboards.promql import ON_GPUS, ON_NODES, TARGET, by_gpu, by_gpu_lately, by_node, gpu_names
from dashboards.shares import of_gpus

ANSWERS: Words = {1: ("answers", GOOD), 0: ("does not answer", BAD)}
UNNAMED = "lost before it had a name"


def unnamed(selector: str) -> str:
    """Return the number of GPUs without a name by target; unknown while the driver is released."""
    counted = f"max by ({TARGET}) (gpuslice_node_gpus{{{selector}}})"
    asked = f"count by ({TARGET}) (gpuslice_gpu_up{{{selector}}})"
    released = f"gpuslice_driver_released{{{selector}}} == 1"
    return f"{counted} - ({asked} or {counted} * 0) unless on ({TARGET}) {released}"


_UNNAMED = by_node(unnamed(ON_NODES))
_LOST = by_gpu(f'gpuslice_gpu_condition{{{ON_GPUS}, condition="lost"}}')
# In lists of GPUs, in place of an index.
_UNNAMED_ROWS = f'label_replace({_UNNAMED} > 0, "gpu", "{UNNAMED}", "", "")'

GPUS_THERE = f"sum(group by (cluster, node, uuid) ({gpu_names(ON_GPUS)}) or {_UNNAMED})"
"""Devices of any vendor."""

GPUS_LOST = f"sum({_LOST} or {_UNNAMED})"
"""GPUs that do not answer; unknown while the driver is released."""

# A restarted exporter no longer reports earlier events.
_LAST_XID = f"last_over_time(gpuslice_gpu_xid_last_timestamp_seconds{{{ON_GPUS}}}[$__range])"
_HAD_XID = f"{by_gpu_lately(_LAST_XID, 'mig_uuid', 'xid')} > time() - $__range_s"
_WATCHED = by_gpu(f"gpuslice_gpu_events_watched{{{ON_GPUS}}} == 1")
XID_CODES = f"count({_HAD_XID}) or 0 * sum({_WATCHED})"
"""XID codes in the chosen time, by GPU and MIG device; unknown without a subscription to events."""


def each(*labels: str) -> Query:
    """Return 1 for each GPU with these labels, and a row for each node with GPUs without a name."""
    names = ", ".join(("cluster", "node", "gpu", "uuid", *labels))
    return Query(f"max by ({names}) ({gpu_names(ON_GPUS)}) or {_UNNAMED_ROWS}")


def answering(legend: str = "__auto") -> Query:
    """Return whether each GPU answers; rows as of ``each``."""
    return Query(f"{of_gpus('gpu_up')} or {_UNNAMED_ROWS} * 0", legend)
