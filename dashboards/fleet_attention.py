"""What somebody should look at: alerts, exporters, GPUs that are sick or of which too much is promised."""

from dashboards import sickness
from dashboards.board import Panel
from dashboards.fleet_rows import LISTED, STALE_SECONDS, silent, with_names
from dashboards.fleet_rows import overcommitted as rows_overcommitted
from dashboards.panels import Query
from dashboards.promql import CLUSTER
from dashboards.tables import Column, leads_to, listing

_NODE = leads_to("gpuslice-node", node="Node")
_GPU = leads_to("gpuslice-hardware", node="Node", uuid="UUID")
# What an alert does not concern is no unknown.
_NOT_CONCERNED = "-"


def alerts() -> Panel:
    """List what fires."""
    firing = f'ALERTS{{{CLUSTER}, alertname=~"GpuSlice.+", alertstate="firing", severity!="info"}}'
    labels = "severity, alertname, cluster, node, namespace"
    return listing(
        "Firing alerts",
        "How many alerts of this exporter's rules fire, by what they concern: critical ones first, then "
        "warnings. Advice (severity info) is left out: the tables below tell of waste and of what is full. "
        "None is listed where the alerting rules are not loaded.",
        [
            Column(name="severity", title="Severity", width=90),
            Column(name="alertname", title="Alert", width=260),
            Column(name="cluster", title="Cluster", empty=_NOT_CONCERNED),
            Column(name="node", title="Node", empty=_NOT_CONCERNED, link=_NODE),
            Column(
                name="namespace",
                title="Namespace",
                empty=_NOT_CONCERNED,
                link=leads_to("gpuslice-tenant", namespace="Namespace"),
            ),
            Column(name="Value #A", title="Alerts", unit="none", width=80),
        ],
        Query(f"topk({2 * LISTED}, count by ({labels}) ({firing}))"),
        sort=("Severity", "Alert"),
        none="none fires",
        span=12,
        height=8,
    )


def exporters() -> Panel:
    """List exporters that tell nothing new."""
    return listing(
        "Silent exporters",
        "Exporters that Prometheus asks in vain, or that answer and have not polled for "
        f"{STALE_SECONDS // 60} minutes, and sources of data that an exporter cannot read. How long ago "
        "they were last read is known at most a day back, and roughly after an hour; of a source that "
        "never could be read it is unknown.",
        [
            Column(name="cluster", title="Cluster", empty=_NOT_CONCERNED),
            Column(name="node", title="Node", link=_NODE),
            Column(name="instance", title="Target"),
            Column(name="state", title="State"),
            Column(name="Value #B", title="Since", unit="s", width=100),
        ],
        *map(Query, silent()),
        sort="Since",
        none="none: all exporters answer, and read their sources",
        span=12,
        height=8,
    )


def sick_gpus() -> Panel:
    """List GPUs with the reasons to look at them."""
    rows = f"{with_names(sickness.reasons(), 'reason')} or {sickness.unnamed_rows()}"
    return listing(
        "GPUs to look at",
        "GPUs that do not answer, ask for a recovery, have uncorrected memory errors or no spare "
        "memory left, had an XID error in the last hour that is not a tenant's own fault, wait for a "
        "reset or reboot, or are slowed down by their hardware: one row for each reason. Those of a node "
        "that were lost before they had a name stand in one. One whose driver was given up on purpose is "
        "not listed.",
        [
            Column(name="cluster", title="Cluster", empty=_NOT_CONCERNED),
            Column(name="node", title="Node", link=_NODE),
            Column(name="gpu", title="GPU", width=60, link=_GPU),
            Column(name="model", title="Model"),
            Column(name="reason", title="Reason", width=340),
            Column(name="uuid", title="UUID", hidden=True),
        ],
        Query(f"topk({4 * LISTED}, {rows})"),
        sort=("Cluster", "Node", "GPU"),
        none="none is sick",
        span=14,
        height=8,
    )


def overcommitted() -> Panel:
    """List GPUs whose holders are entitled to more memory than there is."""
    promised, there = (with_names(rows) for rows in rows_overcommitted())
    return listing(
        "Over-committed GPUs",
        "GPUs whose holders are entitled to more memory than there is: if all of them take what they were "
        "promised, some will fail.",
        [
            Column(name="cluster", title="Cluster", empty=_NOT_CONCERNED),
            Column(name="node", title="Node", link=_NODE),
            Column(name="gpu", title="GPU", width=60, link=_GPU),
            Column(name="Value #A", title="Promised", unit="bytes"),
            Column(name="Value #B", title="There is", unit="bytes"),
            Column(name="uuid", title="UUID", hidden=True),
        ],
        Query(promised),
        Query(there),
        sort="Promised",
        none="none",
        span=10,
        height=8,
    )
