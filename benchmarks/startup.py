"""Time from the start of the process to the first scrape that shows GPUs."""

from typing import Any

from benchmarks.markdown import Results, per_node, seconds
from benchmarks.processes import subject

GPUS_SHOWN = "\ngpuslice_gpu_info{"
"""A page that contains this shows GPUs."""


def measure(node: str, *, quick: bool) -> dict[str, Any]:
    """Start the program several times; return seconds, less what making the fake driver took.

    ``wall`` and ``cpu`` are the least of all starts, ``wall_median`` is the median.
    """
    walls, cpus = [], []
    for _ in range(1 if quick else 5):
        with subject("live", node) as program:
            wall = program.wait_for(GPUS_SHOWN)
            fake = program.ask("usage")
            walls.append(wall - fake["fake_wall"])
            cpus.append(program.cpu() - fake["fake_cpu"])
    return {"wall": min(walls), "wall_median": sorted(walls)[len(walls) // 2], "cpu": min(cpus)}


def table(results: Results) -> str:
    """Return the table of starts."""
    columns = {"best": seconds("wall"), "middle": seconds("wall_median"), "processor": seconds("cpu")}
    return per_node(results, "startup", columns)
