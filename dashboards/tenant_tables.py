"""Tables of tenants: holders, costs, and errors on their GPUs."""

from dashboards import tenant_rows as rows
from dashboards.board import Panel
from dashboards.panels import Query
from dashboards.promql import CLUSTER
from dashboards.tables import HIDDEN_UUID, Column, Nothing, leads_to, listing

_LISTED = 20
_PODS_LISTED = 100
_NODE = leads_to("gpuslice-node", node="Node")
_GPU = leads_to("gpuslice-hardware", node="Node", uuid="UUID")
_CLUSTER = Column(name="cluster", title="Cluster", empty="-")
_POD = (
    Column(name="namespace", title="Namespace"),
    Column(name="pod", title="Pod", link=leads_to("gpuslice-tenant", namespace="Namespace", pod="Pod")),
)
_CONTAINER = Column(name="container", title="Container")
_WHERE = (
    Column(name="node", title="Node", link=_NODE),
    Column(name="gpu", title="GPU", width=60, link=_GPU),
    HIDDEN_UUID,
)
_MIG = Column(name="mig_uuid", title="MIG device", empty="-")


def holders() -> Panel:
    """Return the table of all holders, and of containers that use a device without holding it."""
    compute_held, compute_used = rows.series("compute_entitled_ratio"), rows.series("compute_used_ratio")
    memory_held, memory_used = rows.series("memory_entitled_bytes"), rows.series("memory_used_bytes")
    return listing(
        "All holders",
        "Each container and device that it holds or uses (0 slices: use without holding). Unknown: not "
        "reported by the driver or the sharing system. Isolation: the share is enforced by hardware "
        "(hard), by software (soft), or not at all (none).",
        [
            _CLUSTER,
            *_POD,
            _CONTAINER,
            Column(name="Value #A", title="Slices", unit="none"),
            Column(name="Value #B", title="GPUs held", unit="none"),
            Column(name="Value #C", title="GPUs used", unit="none"),
            Column(name="Value #D", title="Efficiency", unit="percentunit"),
            Column(name="Value #E", title="Memory held", unit="bytes"),
            Column(name="Value #F", title="Memory used", unit="bytes"),
            Column(name="Value #G", title="Idle for", unit="s"),
            *_WHERE,
            Column(name="model", title="Model"),
            Column(name="resource", title="Resource", empty="-"),
            Column(name="sharing", title="Sharing", width=110),
            Column(name="isolation", title="Isolation", width=90),
            _MIG,
        ],
        *(
            Query(rows.described(expr))
            for expr in (
                rows.series("slices"),
                compute_held,
                compute_used,
                f"{compute_used} / ({compute_held} > 0)",
                memory_held,
                memory_used,
                f"time() - {rows.series('last_active_timestamp_seconds')}",
            )
        ),
        nothing=Nothing("container", f"gpuslice_allocations_timestamp_seconds{{{CLUSTER}}}"),
        sort="GPUs held",
        height=12,
    )


def idle_holders() -> Panel:
    """Return the table of the largest idle holders."""
    held, last = rows.series("compute_entitled_ratio"), rows.series("last_active_timestamp_seconds")
    # Holders with an unknown entitlement come last.
    most = f"topk({_LISTED}, ({held} or {last} * 0) and {rows.idle()})"
    return listing(
        "Largest idle holders",
        f"Holders that have not computed for the time chosen above, the {_LISTED} that hold the most "
        "compute. Without a measurement of compute no holder is idle.",
        [
            *_POD,
            _CONTAINER,
            Column(name="Value #A", title="GPUs held", unit="none"),
            Column(name="Value #B", title="Memory held", unit="bytes"),
            Column(name="Value #C", title="Idle for", unit="s"),
            *_WHERE,
            _CLUSTER,
        ],
        *(
            Query(rows.described(expr))
            for expr in (
                f"{held} and {most}",
                f"{rows.series('memory_entitled_bytes')} and {most}",
                f"time() - {last} and {most}",
            )
        ),
        sort="GPUs held",
        span=14,
        height=8,
        nothing=Nothing("container", rows.known_idle()),
    )


def over_share() -> Panel:
    """Return the table of holders that use more than they are entitled to."""
    return listing(
        "Over their share",
        "Holders that use more memory than they are entitled to, or over the last 5 minutes more compute, "
        f"by more than {rows.OVER - 1:.0%}. If shares are not enforced, that is allowed while others leave "
        "capacity unused.",
        [
            *_POD,
            Column(name="quantity", title="Of", width=90),
            Column(name="Value #A", title="Used of its share", unit="percentunit"),
            _CONTAINER,
            *_WHERE,
            _CLUSTER,
        ],
        Query(rows.over_share()),
        sort="Used of its share",
        span=10,
        height=8,
        nothing=Nothing("quantity", rows.series("memory_used_bytes")),
    )


def gpu_hours_by_pod() -> Panel:
    """Return the table of costs by pod."""
    by_pod = "cluster, namespace, pod"
    held, used, unused, joules = (
        f"sum by ({by_pod}) ({each})"
        for each in (
            rows.gpu_seconds("held"),
            rows.gpu_seconds("used"),
            rows.unused_gpu_seconds(),
            rows.joules(),
        )
    )
    most = f"topk({_PODS_LISTED}, {held})"
    hours = rows.SECONDS_OF_HOUR
    return listing(
        "GPU-hours by pod",
        "GPU-hours held and used by pods in the time shown, including pods that have ended: the "
        f"{_PODS_LISTED} that held the most. The cost is that of GPU-hours held.",
        [
            _CLUSTER,
            *_POD,
            Column(name="Value #A", title="GPU-hours held", unit="none"),
            Column(name="Value #B", title="GPU-hours used", unit="none"),
            Column(name="Value #C", title="Not used", unit="none"),
            Column(name="Value #D", title="Cost", unit="none"),
            Column(name="Value #E", title="Energy", unit="kwatth"),
        ],
        Query(f"{most} / {hours}"),
        Query(f"({used} and {most}) / {hours}"),
        Query(f"({unused} and {most}) / {hours}"),
        Query(rows.cost(f"{most} / {hours}")),
        Query(f"({joules} and {most}) / {rows.JOULES_OF_KWH:g}"),
        sort="GPU-hours held",
        span=14,
    )


def xids() -> Panel:
    """Return the table of XID errors on held GPUs."""
    return listing(
        "XID errors on our GPUs",
        "XID errors in the time shown on devices that are held now, with the last time of each code. "
        "Meanings: docs/xids.md.",
        [
            _CLUSTER,
            *_WHERE,
            Column(name="xid", title="XID", width=60),
            Column(name="Value #A", title="Last", unit="dateTimeFromNow"),
            _MIG,
        ],
        Query(rows.xids()),
        sort="Last",
        span=10,
        nothing=Nothing("xid", rows.watched()),
    )
