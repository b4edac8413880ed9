"""Dashboard Hardware: load, power, heat and faults of the GPUs of a node."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import Folded, Panel, board
from dashboards.hardware_devices import identity, topology, vgpus
from dashboards.hardware_errors import errors
from dashboards.hardware_load import clocks, heat, links, memory, profiling, video
from dashboards.panels import (
    BAD,
    GOOD,
    HEALTHY,
    NEUTRAL,
    WARNING,
    Query,
    number,
    states,
    timeline,
)
from dashboards.selectors import GPU, GPUS, once_a_gpu, without_target
from dashboards.tables import MODEL, NODE, Column, listing
from dashboards.tables import number as value

MAY_BE_EMPTY = {
    "Fan": "most server boards have none",
    "Other events": "there is a row only once a GPU has had one",
    "Slowed down": "it is known after some minutes",
}
"""Panels that may be empty on some nodes, by title, with the reason."""


def hardware() -> Dashboard:
    """Return the dashboard."""
    return board(
        "gpuslice-hardware",
        "GPU slices / Hardware",
        "Load, power, heat and faults of the GPUs of a node. Panels that need more than the default series "
        "say so.",
        (variables.datasource(), variables.cluster(), variables.node(), variables.gpu()),
        (
            ("Now", (*_numbers(), _table())),
            ("Over time", (health("Health", GPUS, span=24), *_load())),
            Folded("Clocks", clocks()),
            Folded("Power and heat", heat()),
            Folded("Errors and repairs", errors()),
            Folded("Links", links()),
            Folded("Profiling metrics", profiling()),
            Folded("Memory", memory()),
            Folded("Video engines", video()),
            Folded("Topology", topology()),
            Folded("vGPUs", vgpus()),
            Folded("Identity and settings", identity()),
        ),
        marked=True,
    )


def _conditions(selector: str) -> str:
    return f'gpuslice_gpu_condition{{{selector}, condition!="driver_released"}}'


def _numbers() -> tuple[Panel, ...]:
    watts, limit = (f"sum(gpuslice_gpu_{name}_watts{{{GPUS}}})" for name in ("power", "power_limit"))
    throttled = f'gpuslice_gpu_condition{{{GPUS}, condition="throttled_by_heat_or_power"}}'
    xids = f"increase(gpuslice_gpu_xid_errors_total{{{GPUS}}}[$__range])"
    uncorrected = f'gpuslice_gpu_ecc_errors_total{{{GPUS}, severity="uncorrected", scope="volatile"}}'
    return (
        number(
            "Unhealthy GPUs",
            "none",
            "GPUs with a condition such as lost or needs_reset (docs/xids.md).",
            f"sum({once_a_gpu(_conditions(GPUS))})",
            steps={0: GOOD, 1: BAD},
        ),
        number(
            "Slowed down",
            "none",
            "GPUs whose clocks heat or a power brake limited most of the last minutes.",
            f"sum({once_a_gpu(throttled)})",
            steps={0: GOOD, 1: WARNING},
        ),
        number(
            "Hottest GPU",
            "celsius",
            "Temperature of the hottest core.",
            f"max(gpuslice_gpu_temperature_celsius{{{GPUS}}})",
        ),
        number(
            "Power, of the limit",
            "percentunit",
            "Power of all GPUs by the sum of their limits.",
            f"{watts} / {limit}",
        ),
        number(
            "XID errors",
            "none",
            "XID errors in the time shown.",
            f"round(sum(max by (cluster, node, uuid, instance) ({xids})))",
            steps={0: GOOD, 0.5: WARNING},
        ),
        number(
            "Uncorrected ECC",
            "none",
            "Uncorrected memory errors since the drivers were loaded. Only GPUs with ECC.",
            f"sum({once_a_gpu(uncorrected)})",
            steps={0: GOOD, 1: BAD},
        ),
    )


def _table() -> Panel:
    used, total = (f"gpuslice_gpu_memory_{name}_bytes{{{GPUS}}}" for name in ("used", "total"))
    ecc = f'gpuslice_gpu_ecc_errors_total{{{GPUS}, severity="uncorrected", scope="volatile"}}'
    return listing(
        "GPUs now",
        "A row for each device. Unknown: not reported, or a device of another vendor.",
        [
            NODE,
            Column(name="gpu", title="GPU", numeric=True, width=60),
            MODEL,
            value("B", "Utilization", "percentunit", gauge=True, width=130),
            value("C", "Memory used", "percentunit", gauge=True, width=130),
            value("D", "Power", "watt"),
            value("E", "Temperature", "celsius"),
            value("F", "SM clock", "hertz"),
            value("G", "Uncorrected ECC", steps={0: NEUTRAL, 1: BAD}),
            Column(name="serial", title="Serial number"),
        ],
        without_target(f"gpuslice_gpu_info{{{GPUS}}}"),
        without_target(f"gpuslice_gpu_utilization_ratio{{{GPUS}}}"),
        without_target(f"{used} / {total}"),
        without_target(f"gpuslice_gpu_power_watts{{{GPUS}}}"),
        without_target(f"gpuslice_gpu_temperature_celsius{{{GPUS}}}"),
        f'max without (job, instance, clock) (gpuslice_gpu_clock_hertz{{{GPUS}, clock="sm"}})',
        f"max without (job, instance, severity, scope) ({ecc})",
        sort=("Node", "GPU"),
        height=9,
    )


def health(title: str, selector: str, span: int) -> Panel:
    """Return a panel with the health of each selected GPU over time."""
    return states(
        title,
        "Unhealthy: a GPU has a condition, such as lost or needs_reset. A gap: no data.",
        HEALTHY,
        Query(f"max by (cluster, node, gpu) ({_conditions(selector)})", GPU),
        span=span,
    )


def _load() -> tuple[Panel, ...]:
    used, total = (f"gpuslice_gpu_memory_{name}_bytes{{{GPUS}}}" for name in ("used", "total"))
    return (
        timeline(
            "Utilization",
            "percentunit",
            "Share of time in which a kernel was running. Unknown for GPUs in MIG mode.",
            Query(f"gpuslice_gpu_utilization_ratio{{{GPUS}}}", GPU),
            top=1,
        ),
        timeline(
            "Memory used",
            "percentunit",
            "Used memory by all memory of each GPU.",
            Query(f"{used} / {total}", GPU),
            top=1,
        ),
        timeline(
            "Power",
            "watt",
            "Power of each GPU, and the enforced limit (dashed).",
            Query(f"gpuslice_gpu_power_watts{{{GPUS}}}", GPU),
            Query(f"gpuslice_gpu_power_limit_watts{{{GPUS}}}", f"{GPU} · limit", limit=True),
        ),
        timeline(
            "Temperature",
            "celsius",
            "Temperature of the core.",
            Query(f"gpuslice_gpu_temperature_celsius{{{GPUS}}}", GPU),
        ),
    )
