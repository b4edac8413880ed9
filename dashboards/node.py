"""Dashboard Node: holders, entitlements and use of the GPUs of a node."""

from dataclasses import replace

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import Folded, Panel, board
from dashboards.hardware import health
from dashboards.node_more import exporter, load, migs, slices_and_jobs, vgpus
from dashboards.panels import (
    BAD,
    CAPACITY,
    GOOD,
    HELD,
    UNATTRIBUTED,
    USED,
    Query,
    number,
    timeline,
)
from dashboards.selectors import NODES, POD, once_a_gpu, once_a_holder, without_target
from dashboards.tables import CONTAINER, MODEL, NAMESPACE, NODE, Column, listing
from dashboards.tables import GPU as GPUS
from dashboards.tables import POD as PODS
from dashboards.tables import number as value

MAY_BE_EMPTY = {
    "Batch jobs": "only with --job-mapping-dir, while a batch system runs jobs",
}
"""Panels that may be empty on some nodes, by title, with the reason."""

_UP, _USED_GPUS = f"gpuslice_gpu_up{{{NODES}}}", f"gpuslice_container_compute_used_ratio{{{NODES}}}"
_KNOWN_ONLY = "Unknown values are not added; unknown if all are."


def node() -> Dashboard:
    """Return the dashboard."""
    return board(
        "gpuslice-node",
        "GPU slices / Node",
        "Holders of a node's GPUs, their slices, entitlements and use.",
        (variables.datasource(), variables.cluster(), variables.node()),
        (
            ("Now", _now()),
            ("Holders", (_holders(),)),
            ("GPUs", (_gpus(), health("Health of GPUs", NODES, span=7))),
            ("Use over time", (_memory(), _compute())),
            Folded("Load and power", load()),
            Folded("Slices and batch jobs", slices_and_jobs()),
            Folded("MIG devices and partitions", migs()),
            Folded("vGPUs", vgpus()),
            Folded("Exporter", exporter()),
        ),
        marked=True,
    )


def _now() -> tuple[Panel, ...]:
    conditions = f'gpuslice_gpu_condition{{{NODES}, condition!="driver_released"}}'
    return (
        number("GPUs", "none", "GPUs that are read, also lost ones.", f"count({once_a_gpu(_UP)})"),
        number(
            "Unhealthy GPUs",
            "none",
            "GPUs with a condition such as lost or needs_reset (docs/xids.md).",
            f"sum({once_a_gpu(conditions)})",
            steps={0: GOOD, 1: BAD},
        ),
        number(
            "Holders",
            "none",
            "Containers that hold slices, once for each GPU. Unknown without the kubelet's answer.",
            f"sum({once_a_gpu(f'gpuslice_gpu_holders{{{NODES}}}')})",
            steps={0: HELD},
        ),
        number(
            "GPUs used",
            "none",
            f"Compute that containers use, in whole GPUs. {_KNOWN_ONLY}",
            f"sum({once_a_holder(_USED_GPUS)})",
            steps={0: USED},
        ),
        number(
            "Memory used",
            "percentunit",
            "Memory in use, of the memory of all GPUs.",
            f"sum(gpuslice_gpu_memory_used_bytes{{{NODES}}}) / "
            f"sum(gpuslice_gpu_memory_total_bytes{{{NODES}}})",
            steps={0: USED},
        ),
        number(
            "Sources failing",
            "none",
            "Sources, such as the driver or the kubelet, whose last read failed: see the row Exporter.",
            f"sum(1 - max by (cluster, node, collector) (gpuslice_collector_success{{{NODES}}}))",
            steps={0: GOOD, 1: BAD},
        ),
    )


def _holders() -> Panel:
    series = (
        "slices",
        "memory_entitled_bytes",
        "memory_used_bytes",
        "compute_entitled_ratio",
        "compute_used_ratio",
    )
    last = f"time() - gpuslice_container_last_active_timestamp_seconds{{{NODES}}}"
    return listing(
        "Holders",
        "A row for each container and device that it holds or uses; 0 slices: use without holding. Compute "
        "is in GPUs. Resources are in the table Slices.",
        [
            NODE,
            GPUS,
            NAMESPACE,
            replace(PODS, width=None),
            CONTAINER,
            value("B", "Slices"),
            value("C", "Memory held", "bytes"),
            value("D", "Memory used", "bytes"),
            value("E", "GPUs held"),
            value("F", "GPUs used"),
            value("G", "Idle for", "s"),
        ],
        without_target(f"gpuslice_container_info{{{NODES}}}"),
        *(without_target(f"gpuslice_container_{name}{{{NODES}}}") for name in series),
        without_target(last),
        sort="Memory held",
        height=10,
    )


def _gpus() -> Panel:
    series = (
        "holders",
        "memory_used_bytes",
        "utilization_ratio",
    )
    return listing(
        "GPUs",
        "A row for each device. Unknown: not reported, or a device of another vendor; in MIG mode a GPU has "
        "no utilization. Details are in the dashboard Hardware: click the index.",
        [
            NODE,
            GPUS,
            replace(MODEL, width=None),
            Column(name="sharing", title="Sharing", width=110),
            value("B", "Holders"),
            value("C", "Memory used", "bytes"),
            value("D", "Utilization", "percentunit"),
        ],
        without_target(f"gpuslice_gpu_info{{{NODES}}}"),
        *(without_target(f"gpuslice_gpu_{name}{{{NODES}}}") for name in series),
        sort=("Node", "GPU"),
        span=17,
    )


def _memory() -> Panel:
    used = f"gpuslice_container_memory_used_bytes{{{NODES}}}"
    rest, capacity = (
        f"gpuslice_gpu_{name}_bytes{{{NODES}}}" for name in ("unattributed_memory", "memory_total")
    )
    return timeline(
        "Memory by pod",
        "bytes",
        "Memory that containers use, by pod, the unattributed rest, and the capacity. Unknown use is "
        "missing.",
        Query(f"sum by (cluster, namespace, pod) ({once_a_holder(used)})", POD),
        Query(f"sum({once_a_gpu(rest)})", "not attributed", UNATTRIBUTED),
        Query(f"sum({once_a_gpu(capacity)})", "capacity", CAPACITY, limit=True),
        stacked=True,
        height=10,
    )


def _compute() -> Panel:
    rest = f"gpuslice_gpu_unattributed_utilization_ratio{{{NODES}}}"
    return timeline(
        "Compute by pod",
        "none",
        "GPUs that containers use, by pod, the unattributed rest, and the capacity. Unknown use is missing, "
        "as inside MIG on GPUs before Hopper.",
        Query(f"sum by (cluster, namespace, pod) ({once_a_holder(_USED_GPUS)})", POD),
        Query(f"sum({once_a_gpu(rest)})", "not attributed", UNATTRIBUTED),
        Query(f"count({once_a_gpu(_UP)})", "capacity", CAPACITY, limit=True),
        stacked=True,
        height=10,
    )
