"""Tables of what needs attention: alerts, failing exporters, unhealthy and over-committed GPUs."""

from dashboards import sickness
from dashboards.board import Panel
from dashboards.fleet_rows import LISTED, STALE_SECONDS, silent, with_names
from dashboards.fleet_rows import overcommitted as rows_overcommitted
from dashboards.panels import Query
from dashboards.promql import CLUSTER
from dashboards.tables import HIDDEN_UUID, Column, Nothing, leads_to, listing, setting

_NODE = leads_to("gpuslice-node", node="Node")
_GPU = leads_to("gpuslice-hardware", node="Node", uuid="UUID")
# An alert without a node or namespace: not unknown.
_NONE = "-"


def alerts() -> Panel:
    """Return the table of firing alerts."""
    firing = f'ALERTS{{{CLUSTER}, alertname=~"GpuSlice.+", alertstate="firing", severity!="info"}}'
    labels = "severity, alertname, cluster, node, namespace"
    rows = f"topk({2 * LISTED}, count by ({labels}) ({firing}))"
    # Cells without a node or namespace show "-", which must not become a variable's value.
    query, node = setting(Query(rows), "node", "node")
    query, namespace = setting(query, "namespace", "namespace")
    return listing(
        "Firing alerts",
        "Firing alerts of this exporter's rules, by subject: critical ones first, then warnings. Advice "
        "(severity info) is left out: the tables below show waste. Unknown if the rules are not loaded.",
        [
            Column(name="severity", title="Severity", width=90),
            Column(name="alertname", title="Alert", width=260),
            Column(name="cluster", title="Cluster", empty=_NONE),
            Column(name="node", title="Node", empty=_NONE, link=leads_to("gpuslice-node", node.title)),
            Column(
                name="namespace",
                title="Namespace",
                empty=_NONE,
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
    """Return the table of exporters without new data."""
    return listing(
        "Failing exporters",
        f"Exporters that do not answer, or have not polled for {STALE_SECONDS // 60} minutes, and sources "
        "that an exporter cannot read. The time since the last read is known for a day at most, and only "
        "roughly after an hour; it is unknown for a source that was never read.",
        [
            Column(name="cluster", title="Cluster", empty=_NONE),
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
    """Return the table of unhealthy GPUs, with reasons."""
    rows = f"{with_names(sickness.reasons(), 'reason')} or {sickness.unnamed_rows()}"
    return listing(
        "Unhealthy GPUs, by reason",
        "GPUs with a condition (docs/xids.md says what raises and clears each), or with an XID in the last "
        "hour that was not caused by an application: one row for each reason. GPUs of a node that were lost "
        "before they had a name share one row. GPUs with a released driver are not listed.",
        [
            Column(name="cluster", title="Cluster", empty=_NONE),
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
    """Return the table of GPUs with more entitled memory than they have."""
    entitled, capacity = (with_names(rows) for rows in rows_overcommitted())
    return listing(
        "Over-committed GPUs",
        "GPUs with more entitled memory than they have: if all holders use their entitlement, some will "
        "fail.",
        [
            Column(name="cluster", title="Cluster", empty=_NONE),
            Column(name="node", title="Node", link=_NODE),
            Column(name="gpu", title="GPU", width=60, link=_GPU),
            Column(name="model", title="Model"),
            Column(name="Value #A", title="Entitled", unit="bytes"),
            Column(name="Value #B", title="Memory", unit="bytes"),
            HIDDEN_UUID,
        ],
        Query(entitled),
        Query(capacity),
        sort="Entitled",
        nothing=Nothing("model", f"gpuslice_gpu_memory_entitled_bytes{{{CLUSTER}}}"),
        span=10,
        height=8,
    )
