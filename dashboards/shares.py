"""Queries of held and used amounts of containers on the chosen nodes."""

from dashboards.promql import DEVICE, ON_GPUS, by_gpu, by_gpu_lately, containers, containers_over

CONTAINER = ("namespace", "pod", "container")
HOLDER = "{{cluster}} {{namespace}}/{{pod}} · {{container}}"
"""Name of a container in legends."""

_ASKED = f"gpuslice_gpu_up{{{ON_GPUS}}}"


def of_containers(name: str, *labels: str, own: bool = True) -> str:
    """Return a series of containers by GPU, MIG device and container, once for each.

    ``own`` leaves out devices of other vendors, which have holders and no readings.
    """
    rows = containers(name, ON_GPUS)
    if own:
        rows = f"{rows} and on ({DEVICE}) {_ASKED}"
    return by_gpu(rows, *CONTAINER, "mig_uuid", *labels)


def of_gpus(name: str, *labels: str) -> str:
    """Return a series of GPUs, once for each."""
    return by_gpu(f"gpuslice_{name}{{{ON_GPUS}}}", *labels)


def rate(name: str) -> str:
    """Return the current rate of a counter of containers, by GPU and container."""
    return by_gpu(containers_over("rate", name, ON_GPUS, "$__rate_interval"), *CONTAINER, "mig_uuid")


def grown(name: str) -> str:
    """Return the increase of a counter of containers in the chosen time, over all targets."""
    rows = containers_over("increase", name, ON_GPUS, "$__range")
    return by_gpu_lately(rows, *CONTAINER, "mig_uuid", adding=True)


def by_container(rows: str) -> str:
    """Return rows added up over the devices of a container."""
    return f"sum by ({', '.join(('cluster', 'node', *CONTAINER))}) ({rows})"


def of_what_is_held(used: str, held: str) -> str:
    """Return used by held by container, of devices with both known."""
    return f"{by_container(f'{used} and {held}')} / ({by_container(f'{held} and {used}')} > 0)"


MEMORY_HELD = of_containers("memory_entitled_bytes")
MEMORY_USED = of_containers("memory_used_bytes")
MEMORY_UNATTRIBUTED = of_gpus("gpu_unattributed_memory_bytes")
MEMORY_TOTAL = of_gpus("gpu_memory_total_bytes")
# Of compute, 1 is a whole GPU.
COMPUTE_HELD = of_containers("compute_entitled_ratio")
COMPUTE_USED = of_containers("compute_used_ratio")
COMPUTE_UNATTRIBUTED = of_gpus("gpu_unattributed_utilization_ratio")
