"""What containers hold and use of the GPUs of the chosen nodes, as queries."""

from dashboards.promql import DEVICE, ON_GPUS, by_gpu, containers, containers_over

CONTAINER = ("namespace", "pod", "container")
HOLDER = "{{cluster}} {{namespace}}/{{pod}} · {{container}}"
"""How a container is called in legends."""

_ASKED = f"gpuslice_gpu_up{{{ON_GPUS}}}"


def of_containers(name: str, *labels: str, own: bool = True) -> str:
    """Give a series of containers by GPU and container, once for each; a MIG device is told apart too.

    ``own`` leaves out devices of other makers, of which only the holders are known.
    """
    rows = containers(name, ON_GPUS)
    if own:
        rows = f"{rows} and on ({DEVICE}) {_ASKED}"
    return by_gpu(rows, *CONTAINER, "mig_uuid", *labels)


def of_gpus(name: str, *labels: str) -> str:
    """Give a series of GPUs, once for each."""
    return by_gpu(f"gpuslice_{name}{{{ON_GPUS}}}", *labels)


def grown(name: str, function: str, window: str) -> str:
    """Give how a counter of containers grows (``rate``, ``increase``) in a window, by GPU and container."""
    return by_gpu(containers_over(function, name, ON_GPUS, window), *CONTAINER, "mig_uuid")


def by_container(rows: str) -> str:
    """Add up what a container has of several devices."""
    return f"sum by ({', '.join(('cluster', 'node', *CONTAINER))}) ({rows})"


MEMORY_HELD = of_containers("memory_entitled_bytes")
MEMORY_USED = of_containers("memory_used_bytes")
MEMORY_UNATTRIBUTED = of_gpus("gpu_unattributed_memory_bytes")
MEMORY_TOTAL = of_gpus("gpu_memory_total_bytes")
# Of compute, 1 is a whole GPU.
COMPUTE_HELD = of_containers("compute_entitled_ratio")
COMPUTE_USED = of_containers("compute_used_ratio")
COMPUTE_UNATTRIBUTED = of_gpus("gpu_unattributed_utilization_ratio")
