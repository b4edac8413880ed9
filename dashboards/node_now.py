"""The first glance at a node: what is there, held and used, and whether it can be believed."""

from dashboards.amounts import GPUS
from dashboards.board import Panel
from dashboards.panels import BAD, GOOD, HELD, NEUTRAL, UNATTRIBUTED, USED, WARNING, Query, number
from dashboards.presence import GPUS_LOST, GPUS_THERE, XID_CODES
from dashboards.promql import ON_GPUS, ON_NODES, by_gpu, by_node, containers
from dashboards.shares import (
    COMPUTE_HELD,
    COMPUTE_UNATTRIBUTED,
    COMPUTE_USED,
    CONTAINER,
    MEMORY_HELD,
    MEMORY_TOTAL,
    MEMORY_UNATTRIBUTED,
    MEMORY_USED,
    of_gpus,
)

_KNOWN_ONLY = "What is not known adds nothing; unknown if nothing is known."
# Nobody holds anything where the kubelet was asked and named no holder.
_HOLDERS_KNOWN = f"0 * sum({of_gpus('gpu_holders')})"
_HOLDING = by_gpu(f"{containers('slices', ON_GPUS)} > 0", *CONTAINER)
_OVERCOMMITTED = (
    f"gpuslice_gpu_memory_entitled_bytes{{{ON_GPUS}}} > bool gpuslice_gpu_memory_total_bytes{{{ON_GPUS}}}"
)
_FREE = f"gpuslice_gpu_slices{{{ON_GPUS}}} - gpuslice_gpu_slices_allocated{{{ON_GPUS}}}"


def now() -> tuple[Panel, ...]:
    """Make the numbers."""
    return (*_there(), *_shares(), *_trust())


def _there() -> tuple[Panel, ...]:
    return (
        _short("GPUs", "none", "Devices of the chosen nodes, of any maker, lost ones included.", GPUS_THERE),
        _short(
            "GPUs not answering",
            "none",
            "GPUs that are lost or failing. Unknown while the driver is given up for a reset, and for "
            "devices of other makers, whose driver is not asked.",
            GPUS_LOST,
            {0: GOOD, 1: BAD},
        ),
        _short(
            "Holders",
            "none",
            "Containers that hold a slice of at least one device. Unknown without the kubelet's answer.",
            f"count(group by (cluster, {', '.join(CONTAINER)}) ({_HOLDING})) or {_HOLDERS_KNOWN}",
            {0: HELD},
        ),
        _short(
            "Slices not held",
            "none",
            "Slices that device plugins offer and no container holds, including unhealthy ones.",
            f"sum({by_gpu(_FREE, 'resource')})",
        ),
    )


def _shares() -> tuple[Panel, ...]:
    return (
        _short(
            "Memory held",
            "bytes",
            f"What holders are entitled to; more than there is: over-committed. {_KNOWN_ONLY}",
            f"sum({MEMORY_HELD}) or {_HOLDERS_KNOWN}",
            {0: HELD},
        ),
        _short(
            "Memory used",
            "bytes",
            f"What containers use of the GPUs' memory. {_KNOWN_ONLY}",
            f"sum({MEMORY_USED})",
            {0: USED},
        ),
        _short(
            "Compute held",
            GPUS,
            f"What holders are entitled to; 1 is a whole GPU. {_KNOWN_ONLY}",
            f"sum({COMPUTE_HELD}) or {_HOLDERS_KNOWN}",
            {0: HELD},
        ),
        _short(
            "Compute used",
            GPUS,
            f"What containers use; 1 is a whole GPU. {_KNOWN_ONLY}",
            f"sum({COMPUTE_USED})",
            {0: USED},
        ),
        _short(
            "Memory of the GPUs",
            "bytes",
            "Memory that the GPUs have. Those that do not tell add nothing.",
            f"sum({MEMORY_TOTAL})",
        ),
        _short(
            "Unattributed memory",
            "bytes",
            f"Memory in use that belongs to no known container. {_KNOWN_ONLY}",
            f"sum({MEMORY_UNATTRIBUTED})",
            {0: UNATTRIBUTED},
        ),
        _short(
            "Unattributed compute",
            GPUS,
            f"Compute that belongs to no known container; 1 is a whole GPU. {_KNOWN_ONLY}",
            f"sum({COMPUTE_UNATTRIBUTED})",
            {0: UNATTRIBUTED},
        ),
        _short(
            "Over-committed GPUs",
            "none",
            "GPUs whose holders are entitled to more memory than there is, as with time-slicing where each "
            "may fill it.",
            f"sum({by_gpu(_OVERCOMMITTED)})",
            {0: NEUTRAL, 1: WARNING},
        ),
    )


def _trust() -> tuple[Panel, ...]:
    return (
        _short(
            "Power",
            "watt",
            "Power that the GPUs draw. Those that do not tell add nothing.",
            f"sum({of_gpus('gpu_power_watts')})",
        ),
        _short(
            "Last poll",
            "s",
            "How long ago the exporter last read its GPUs; of several nodes, the oldest. Unknown: it is not "
            "scraped.",
            f"time() - min({by_node(f'gpuslice_snapshot_timestamp_seconds{{{ON_NODES}}}')})",
            {0: GOOD, 60: WARNING, 300: BAD},
        ),
        _short(
            "Sources failing",
            "none",
            "Sources of data, such as the driver or the kubelet, whose last pass failed.",
            f"sum(1 - {by_node(f'gpuslice_collector_success{{{ON_NODES}}}', 'collector')})",
            {0: GOOD, 1: BAD},
        ),
        _short(
            "Codes of XID errors",
            "none",
            "Codes of XID errors that GPUs had in the chosen time, counted by GPU. Unknown where events are "
            "not waited for.",
            XID_CODES,
            {0: GOOD, 1: WARNING},
        ),
    )


def _short(
    title: str, unit: str, description: str, expr: str, steps: dict[float, str] | None = None
) -> Panel:
    return number(title, unit, description, Query(expr), steps=steps, span=3)
