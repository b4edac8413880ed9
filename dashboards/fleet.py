"""Dashboard Fleet: GPUs of all clusters, held, used and idle."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import Folded, Panel, board
from dashboards.fleet_tables import AT_LEAST, IDLE_MEANS, idle_holders, models, namespaces, nodes, slices
from dashboards.panels import (
    BAD,
    CAPACITY,
    GOOD,
    HELD,
    IDLE,
    NEUTRAL,
    USED,
    WARNING,
    Query,
    number,
    timeline,
)
from dashboards.selectors import CLUSTER, or_none
from dashboards.tables import (
    CLUSTER as CLUSTERS,
)
from dashboards.tables import (
    GPU,
    NAMESPACE,
    NODE,
    Column,
    listing,
)
from dashboards.tables import number as value

RUNBOOKS = "https://github.com/gpuslice/gpuslice-exporter/blob/main/alerts/runbooks"
"""URL of the folder of the runbooks, as in alerts/thresholds.toml."""
MAY_BE_EMPTY = {"Sources that fail": "there is a row only while one fails"}
"""Panels that may be empty, by title, with the reason."""


def fleet() -> Dashboard:
    """Return the dashboard."""
    return board(
        "gpuslice-fleet",
        "GPU slices / Fleet",
        "GPUs of all clusters: capacity, held, used and idle; alerts, unhealthy GPUs and waste. Needs the "
        "recording rules.",
        (variables.datasource(), variables.cluster()),
        (
            ("Now", (*_compute(), *_memory())),
            ("Needs attention", (_alerts(), _unhealthy())),
            ("Over time", _timelines()),
            ("Namespaces", (namespaces(),)),
            Folded("Idle holders", (idle_holders(),)),
            Folded("Nodes", (nodes(),)),
            Folded("Models and slices", (models(), slices())),
            Folded("Exporters", (_down(), _failing())),
        ),
    )


def _node(name: str) -> str:
    return f"sum(node:gpuslice_{name}{{{CLUSTER}}})"


def _compute() -> tuple[Panel, ...]:
    used, measured = (_node(f"{what}_gpu_seconds:increase1h") for what in ("used", "measured"))
    return (
        _stat("GPUs", "GPUs that are read, also lost ones.", _node("total_gpus:count")),
        _stat(
            "GPUs held",
            f"Compute that holders are entitled to; a quarter of a GPU is 0.25. {AT_LEAST}",
            _node("held_gpus:sum"),
            HELD,
        ),
        _stat(
            "GPUs used",
            f"Compute that containers use, in whole GPUs. {AT_LEAST}",
            _node("used_gpus:sum"),
            USED,
        ),
        _stat("GPUs held and idle", f"Held by idle holders. {IDLE_MEANS}", _node("idle_gpus:sum"), IDLE),
        number(
            "Used, of held, 1 h",
            "percentunit",
            "GPU-seconds used by GPU-seconds held within the hour, of holders with measured compute.",
            f"{used} / ({measured} > 0)",
            trend=True,
        ),
        number(
            "Unhealthy GPUs",
            "none",
            "GPUs with a condition such as lost or needs_reset: see the table below.",
            _node("unhealthy_gpus:sum"),
            steps={0: NEUTRAL, 1: BAD},
        ),
    )


def _memory() -> tuple[Panel, ...]:
    loaded = f"count(node:gpuslice_total_gpus:count{{{CLUSTER}}}) > bool 0 or vector(0)"
    return (
        _stat(
            "Memory held",
            f"Memory that holders are entitled to. {AT_LEAST}",
            _node("held_bytes:sum"),
            HELD,
            unit="bytes",
            span=6,
        ),
        _stat(
            "Memory used",
            f"Memory that containers use. {AT_LEAST}",
            _node("used_bytes:sum"),
            USED,
            unit="bytes",
            span=6,
        ),
        _stat("Idle holders", IDLE_MEANS, _node("idle_holders:sum"), IDLE, span=6),
        number(
            "Recording rules",
            "none",
            "Whether the recording rules are loaded (docs/prometheus.md): without them this dashboard is "
            "empty.",
            loaded,
            words={1: ("loaded", GOOD), 0: ("missing", BAD)},
            span=6,
        ),
    )


def _stat(
    title: str,
    description: str,
    expr: str,
    colour: str = NEUTRAL,
    *,
    unit: str = "none",
    span: int = 4,
) -> Panel:
    return number(title, unit, description, expr, steps={0: colour}, trend=True, span=span)


def _alerts() -> Panel:
    firing = f'ALERTS{{{CLUSTER}, alertname=~"GpuSlice.+", alertstate="firing", severity!="info"}}'
    rows = f"count by (severity, alertname, cluster, node, namespace) ({firing})"
    runbook = f"{RUNBOOKS}/${{__data.fields.Alert}}.md"
    return listing(
        "Firing alerts",
        "Firing alerts of this exporter's rules, by subject, without advice (severity info). A click on an "
        "alert opens its runbook.",
        [
            Column(
                name="severity",
                title="Severity",
                width=80,
                empty="",
                colours={"critical": BAD, "warning": WARNING},
            ),
            Column(name="alertname", title="Alert", link=runbook),
            CLUSTERS,
            NODE,
            NAMESPACE,
            value("A", "Alerts", width=60),
        ],
        or_none(rows, "alertname", f"node:gpuslice_total_gpus:count{{{CLUSTER}}}"),
        sort=("Severity", "Alert"),
        span=14,
    )


def _unhealthy() -> Panel:
    conditions = f'gpuslice_gpu_condition{{{CLUSTER}, condition!="driver_released"}}'
    rows = f"max by (cluster, node, gpu, uuid, condition) ({conditions}) == 1"
    return listing(
        "Unhealthy GPUs",
        "GPUs and their conditions; docs/xids.md has what raises and clears each.",
        [
            CLUSTERS,
            NODE,
            GPU,
            Column(name="condition", title="Condition"),
        ],
        or_none(rows, "condition", f"gpuslice_gpu_up{{{CLUSTER}}}"),
        sort=("Cluster", "Node", "GPU"),
        span=10,
    )


def _timelines() -> tuple[Panel, ...]:
    return tuple(
        timeline(
            title,
            unit,
            f"Capacity, entitlements of holders and of idle ones, and use. {AT_LEAST} A gap is unknown.",
            *(
                Query(_node(name), legend, colour, limit=legend == "capacity")
                for name, legend, colour in lines
            ),
        )
        for title, unit, lines in (
            (
                "Compute in GPUs",
                "none",
                (
                    ("total_gpus:count", "capacity", CAPACITY),
                    ("held_gpus:sum", "held", HELD),
                    ("idle_gpus:sum", "held and idle", IDLE),
                    ("used_gpus:sum", "used", USED),
                ),
            ),
            (
                "GPU memory",
                "bytes",
                (
                    ("total_bytes:sum", "capacity", CAPACITY),
                    ("held_bytes:sum", "held", HELD),
                    ("used_bytes:sum", "used", USED),
                ),
            ),
        )
    )


def _down() -> Panel:
    down = f"up{{{CLUSTER}}} == 0 and on (cluster, job) gpuslice_build_info"
    return listing(
        "Exporters that do not answer",
        "Targets of the exporter's job that Prometheus cannot scrape.",
        [CLUSTERS, Column(name="job", title="Job", width=180), Column(name="instance", title="Target")],
        or_none(f"max by (cluster, job, instance) ({down})", "instance", f"gpuslice_build_info{{{CLUSTER}}}"),
        span=12,
    )


def _failing() -> Panel:
    rows = f"max by (cluster, node, collector) (gpuslice_collector_success{{{CLUSTER}}}) == 0"
    return listing(
        "Sources that fail",
        "Sources, such as the driver or the kubelet, whose last read failed.",
        [CLUSTERS, NODE, Column(name="collector", title="Source")],
        or_none(rows, "collector", f"gpuslice_collector_success{{{CLUSTER}}}"),
        span=12,
    )
