"""Selections of the dashboard Tenant: rows of the chosen pods."""

from dashboards.selectors import CLUSTER, PODS, once_a_holder

HOUR = 3600
AT_LEAST = "Unknown values are not added, so the sum is a lower bound."

HELD_GPUS, USED_GPUS, HELD_BYTES, USED_BYTES, SLICES, IDLE_HOLDER, IDLE_SECONDS = (
    f"container:gpuslice_{name}{{{PODS}}}"
    for name in (
        "held_gpus:max",
        "used_gpus:avg5m",
        "held_bytes:max",
        "used_bytes:avg5m",
        "held_slices:max",
        "idle_holder:bool",
        "idle_seconds:max",
    )
)


def increase(counter: str) -> str:
    """Return the increase of a counter of containers in the time shown."""
    return f"increase(gpuslice_container_{counter}_total{{{PODS}}}[$__range])"


def counted(rows: str) -> str:
    """Return increases of counters of containers, each once."""
    return once_a_holder(rows, "instance")


HELD_SECONDS, USED_SECONDS = (increase(f"{what}_gpu_seconds") for what in ("entitled", "used"))
# For the right side of "and": the left one has the cluster.
AND_HELD, AND_USED = (rows.replace(f"{CLUSTER}, ", "") for rows in (HELD_SECONDS, USED_SECONDS))


def hours_of_last_day(value: str) -> str:
    """Return an amount of the last full day of each namespace, once with replicas."""
    record = f'namespace:gpuslice_usage:increase1d{{{CLUSTER}, namespace=~"$namespace", value="{value}"}}'
    # It is recorded every 4 hours.
    rows = f"max by (cluster, namespace, model, profile) (last_over_time({record}[5h]))"
    return f"sum by (namespace) ({rows}) / {HOUR}"
