"""What somebody should look at: alerts, exporters, GPUs that are sick or of which too much is promised."""

from dashboards import sickness
from dashboards.board import Panel
from dashboards.fleet_rows import LISTED, STALE_SECONDS, silent, with_names
from dashboards.fleet_rows import overcommitted as rows_overcommitted
from dashboards.panels import Query
from dashboards.promql import CLUSTER
from dashboards.tables import HIDDEN_UUID, Column, Nothing, leads_to, listing, setting

_NODE = leads_to("gpuslice-node", node="Node")
_GPU = leads_to("gpuslice-hardware", node="Node", uuid="UUID")
# What an alert does not concern is no unknown.
_NOT_CONCERNED = "-"


def alerts() -> Panel:
    """List what fires."""
    firing = f'ALERTS{{{CLUSTER}, alertname=~"GpuSlice.+", alertstate="firing", severity!="info"}}'
    labels = "severity, alertname, cluster, node, namespace"
    rows = f"topk({2 * LISTED}, count by ({labels}) ({firing}))"
    # Cells without a node or namespace show "-", which must not become a variable's value.
    query, node = setting(Query(rows), "node", "node")
    query, namespace = setting(query, "namespace", "namespace")
    return listing(
        "Firing alerts",
        "How many alerts of this exporter's rules fire, by what they concern: critical ones first, then "
        "warnings. Advice (severity info) is left out: the tables below tell of waste and of what is full. "
        "Unknown where the rules are not loaded.",
        [
            Column(name="severity", title="Severity", width=90),
            Column(name="alertname", title="Alert", width=260),
            Column(name="cluster", title="Cluster", empty=_NOT_CONCERNED),
            Column(
                name="node", title="Node", empty=_NOT_CONCERNED, link=leads_to("gpuslice-node", node.title)
            ),
            Column(
                name="namespace",
                title="Namespace",
                empty=_NOT_CONCERNED,
                link=leads_to("gpuslice-tenant", namespace.title),
            ),
            Column(name="Value #A", title="Alerts", unit="none", width=80),
            node,
            namespace,
        ],
        query,
        sort=("Severity", "Alert"),
        nothing=Nothing("alertname", f"cluster:gpuslice_gpus:count{{{CLUSTER}}}"),
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
        nothing=Nothing("state", f"gpuslice_node_info{{{CLUSTER}}}"),
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
            HIDDEN_UUID,
        ],
        Query(f"topk({4 * LISTED}, {rows})"),
        sort=("Cluster", "Node", "GPU"),
        nothing=Nothing("reason", f"gpuslice_gpu_up{{{CLUSTER}}}"),
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
            Column(name="model", title="Model"),
            Column(name="Value #A", title="Promised", unit="bytes"),
            Column(name="Value #B", title="There is", unit="bytes"),
            HIDDEN_UUID,
        ],
        Query(promised),
        Query(there),
        sort="Promised",
        nothing=Nothing("model", f"gpuslice_gpu_memory_entitled_bytes{{{CLUSTER}}}"),
        span=10,
        height=8,
    )
