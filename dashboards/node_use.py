"""What the holders of a node use over time, beside what they are entitled to."""

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
    """Make the timelines of all chosen GPUs together."""
    return (
        _memory("Memory by holder", "the chosen GPUs"),
        _compute("Compute by holder", "the chosen GPUs"),
        timeline(
            "Memory used, of what is held",
            "percentunit",
            "On devices of which both are known: without one there is no line. Over 100 %: it uses more than "
            "it is entitled to.",
            Query(of_what_is_held(MEMORY_USED, MEMORY_HELD), HOLDER),
            top=1,
        ),
        timeline(
            "Compute used, of what is held",
            "percentunit",
            "On devices of which both are known: without one there is no line, as on MIG devices without a "
            "profiling meter. Over 100 %: it uses more than it is entitled to, as with time-slicing while "
            "others are quiet.",
            Query(of_what_is_held(COMPUTE_USED, COMPUTE_HELD), HOLDER),
            top=1,
        ),
        timeline(
            "Power by holder",
            "watt",
            "The GPUs' power, shared out by use while containers compute, by entitlement while they idle. "
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
            "What each holder's part of the GPUs' energy adds up to, as far as it was scraped.",
            Query(by_container(grown("energy_joules_total")), HOLDER),
        ),
    )


def use_of_gpu() -> tuple[Panel, ...]:
    """Make the timelines of one GPU, by which the row is repeated."""
    return (
        _memory("Memory of the GPU by holder", "the GPU"),
        _compute("Compute of the GPU by holder", "the GPU"),
    )


_RECENT = f"{{{ON_GPUS}}}[$__rate_interval])"


def _memory(title: str, what: str) -> Panel:
    return timeline(
        title,
        "bytes",
        f"Memory of {what} that containers use, and what belongs to no known container, up to what there is. "
        "A use that is not known is missing from the stack. Devices of other makers do not tell.",
        Query(by_container(MEMORY_USED), HOLDER),
        Query(f"sum({MEMORY_UNATTRIBUTED})", _NOBODY, UNATTRIBUTED),
        Query(f"sum({MEMORY_HELD})", "held", HELD, limit=True),
        Query(f"sum({MEMORY_TOTAL})", "all there is", CAPACITY, limit=True),
        stacked=True,
        height=10,
    )


def _compute(title: str, what: str) -> Panel:
    return timeline(
        title,
        GPUS,
        f"Compute of {what} that containers use, 1 being a whole GPU, and what belongs to no known "
        "container. MIG devices tell it from Hopper on, or by --dcgm-exporter-url; a use that is not known "
        "is missing.",
        Query(by_container(COMPUTE_USED), HOLDER),
        Query(f"sum({COMPUTE_UNATTRIBUTED})", _NOBODY, UNATTRIBUTED),
        Query(f"sum({COMPUTE_HELD})", "held", HELD, limit=True),
        Query(f"count({of_gpus('gpu_up')})", "all there is", CAPACITY, limit=True),
        stacked=True,
        height=10,
    )
