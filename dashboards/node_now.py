"""Current numbers of a node: capacity, held, used, and health."""

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

_KNOWN_ONLY = "Unknown values are not added; unknown if all are."
# There are no holders if the kubelet answered and listed none.
_HOLDERS_KNOWN = f"0 * sum({of_gpus('gpu_holders')})"
_HOLDING = by_gpu(f"{containers('slices', ON_GPUS)} > 0", *CONTAINER)
_OVERCOMMITTED = (
    f"gpuslice_gpu_memory_entitled_bytes{{{ON_GPUS}}} > bool gpuslice_gpu_memory_total_bytes{{{ON_GPUS}}}"
)
_FREE = f"gpuslice_gpu_slices{{{ON_GPUS}}} - gpuslice_gpu_slices_allocated{{{ON_GPUS}}}"


def now() -> tuple[Panel, ...]:
    """Return the numbers."""
    return (*_there(), *_shares(), *_trust())


def _there() -> tuple[Panel, ...]:
    return (
        _short("GPUs", "none", "Devices of the chosen nodes, all vendors, including lost ones.", GPUS_THERE),
        _short(
            "GPUs not answering",
            "none",
            "GPUs that are lost or unresponsive. Unknown while the driver is released, and for devices of "
            "other vendors, which are not read.",
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
            f"Entitlements of holders; above the capacity: over-committed. {_KNOWN_ONLY}",
            f"sum({MEMORY_HELD}) or {_HOLDERS_KNOWN}",
            {0: HELD},
        ),
        _short(
            "Memory used",
            "bytes",
            f"GPU memory that containers use. {_KNOWN_ONLY}",
            f"sum({MEMORY_USED})",
            {0: USED},
        ),
        _short(
            "Compute held",
            GPUS,
            f"Entitlements of holders; 1 is a whole GPU. {_KNOWN_ONLY}",
            f"sum({COMPUTE_HELD}) or {_HOLDERS_KNOWN}",
            {0: HELD},
        ),
        _short(
            "Compute used",
            GPUS,
            f"Compute that containers use; 1 is a whole GPU. {_KNOWN_ONLY}",
            f"sum({COMPUTE_USED})",
            {0: USED},
        ),
        _short(
            "Memory of the GPUs",
            "bytes",
            "Total memory of the GPUs. GPUs that do not report it are not included.",
            f"sum({MEMORY_TOTAL})",
        ),
        _short(
            "Unattributed memory",
            "bytes",
            f"Memory in use that is not attributed to any container. {_KNOWN_ONLY}",
            f"sum({MEMORY_UNATTRIBUTED})",
            {0: UNATTRIBUTED},
        ),
        _short(
            "Unattributed compute",
            GPUS,
            f"Compute that is not attributed to any container; 1 is a whole GPU. {_KNOWN_ONLY}",
            f"sum({COMPUTE_UNATTRIBUTED})",
            {0: UNATTRIBUTED},
        ),
        _short(
            "Over-committed GPUs",
            "none",
            "GPUs with more entitled memory than they have.",
            f"sum({by_gpu(_OVERCOMMITTED)})",
            {0: NEUTRAL, 1: WARNING},
        ),
    )


def _trust() -> tuple[Panel, ...]:
    return (
        _short(
            "Power",
            "watt",
            "Power of the GPUs. GPUs that do not report it are not included.",
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
            "Sources, such as the driver or the kubelet, with a failed last read.",
            f"sum(1 - {by_node(f'gpuslice_collector_success{{{ON_NODES}}}', 'collector')})",
            {0: GOOD, 1: BAD},
        ),
        _short(
            "XID codes",
            "none",
            "XID codes that GPUs had in the chosen time, counted by GPU. Unknown if the exporter is not "
            "subscribed to events.",
            XID_CODES,
            {0: GOOD, 1: WARNING},
        ),
    )


def _short(
    title: str, unit: str, description: str, expr: str, steps: dict[float, str] | None = None
) -> Panel:
    return number(title, unit, description, Query(expr), steps=steps, span=3)
