"""Timelines of use and entitlement of a node's holders."""

from dashboards.amounts import GPUS
from dashboards.board import Panel
from dashboards.panels import CAPACITY, HELD, UNATTRIBUTED, Query, bars, timeline
from dashboards.promql import ON_GPUS, by_gpu
from dashboards.shares import (
    COMPUTE_HELD,
    COMPUTE_UNATTRIBUTED,
    COMPUTE_USED,
    HOLDER,
    MEMORY_HELD,
    MEMORY_TOTAL,
    MEMORY_UNATTRIBUTED,
    MEMORY_USED,
    by_container,
    grown,
    of_gpus,
    of_what_is_held,
    rate,
)

_NOBODY = "unattributed"


def use() -> tuple[Panel, ...]:
    """Return the timelines of all chosen GPUs together."""
    return (
        _memory("Memory by holder", "the chosen GPUs"),
        _compute("Compute by holder", "the chosen GPUs"),
        timeline(
            "Memory used by held",
            "percentunit",
            "On devices with both known; else there is no line. Over 100 %: use above the entitlement.",
            Query(of_what_is_held(MEMORY_USED, MEMORY_HELD), HOLDER),
            top=1,
        ),
        timeline(
            "Compute used by held",
            "percentunit",
            "On devices with both known; else there is no line, as on MIG devices without a profiling "
            "meter. Over 100 %: use above the entitlement, as with time-slicing while others are quiet.",
            Query(of_what_is_held(COMPUTE_USED, COMPUTE_HELD), HOLDER),
            top=1,
        ),
        timeline(
            "Power by holder",
            "watt",
            "Power of the GPUs, split by use while containers compute, and by entitlement while they idle. "
            "From Volta on, without vGPU guests.",
            Query(by_container(rate("energy_joules_total")), HOLDER),
            Query(
                f"sum({by_gpu(f'rate(gpuslice_gpu_unattributed_energy_joules_total{_RECENT}')})",
                _NOBODY,
                UNATTRIBUTED,
            ),
            stacked=True,
        ),
        bars(
            "Energy in the chosen time",
            "joule",
            "Sum of each holder's part of the GPUs' energy, for the scraped time.",
            Query(by_container(grown("energy_joules_total")), HOLDER),
        ),
    )


def use_of_gpu() -> tuple[Panel, ...]:
    """Return the timelines of one GPU, for which the row is repeated."""
    return (
        _memory("Memory of the GPU by holder", "the GPU"),
        _compute("Compute of the GPU by holder", "the GPU"),
    )


_RECENT = f"{{{ON_GPUS}}}[$__rate_interval])"


def _memory(title: str, what: str) -> Panel:
    return timeline(
        title,
        "bytes",
        f"Memory of {what} that containers use, the unattributed rest, and the capacity. Unknown use is "
        "missing from the stack. Not for devices of other vendors.",
        Query(by_container(MEMORY_USED), HOLDER),
        Query(f"sum({MEMORY_UNATTRIBUTED})", _NOBODY, UNATTRIBUTED),
        Query(f"sum({MEMORY_HELD})", "held", HELD, limit=True),
        Query(f"sum({MEMORY_TOTAL})", "capacity", CAPACITY, limit=True),
        stacked=True,
        height=10,
    )


def _compute(title: str, what: str) -> Panel:
    return timeline(
        title,
        GPUS,
        f"Compute of {what} that containers use, and the unattributed rest; 1 is a whole GPU. MIG devices "
        "have it from Hopper on, or with --dcgm-exporter-url; unknown use is missing.",
        Query(by_container(COMPUTE_USED), HOLDER),
        Query(f"sum({COMPUTE_UNATTRIBUTED})", _NOBODY, UNATTRIBUTED),
        Query(f"sum({COMPUTE_HELD})", "held", HELD, limit=True),
        Query(f"count({of_gpus('gpu_up')})", "capacity", CAPACITY, limit=True),
        stacked=True,
        height=10,
    )
