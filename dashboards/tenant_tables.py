"""Tables of the dashboard Tenant."""

from dataclasses import replace

from dashboards.board import Panel
from dashboards.selectors import PODS, or_none
from dashboards.tables import CLUSTER as CLUSTERS
from dashboards.tables import CONTAINER, GPU, NODE, Column, leads_to, listing
from dashboards.tables import number as value
from dashboards.tenant_rows import (
    AT_LEAST,
    HELD_BYTES,
    HELD_GPUS,
    HELD_SECONDS,
    HOUR,
    IDLE_SECONDS,
    SLICES,
    USED_BYTES,
    USED_GPUS,
    USED_SECONDS,
    counted,
    increase,
)

_NAMESPACE = Column(name="namespace", title="Namespace", width=130)
_POD = Column(name="pod", title="Pod", link=leads_to("gpuslice-tenant", namespace="Namespace", pod="Pod"))


def holders() -> Panel:
    """Return the table of all holders."""
    # A sum without labels removed drops the names of the records alone, by which rows could not be merged.
    records = (SLICES, HELD_GPUS, USED_GPUS, HELD_BYTES, USED_BYTES, IDLE_SECONDS)
    return listing(
        "All holders",
        "Each container and device that it holds or uses; 0 slices: use without holding. Unknown: not "
        "reported by the driver or the sharing system. Devices of other vendors are not listed.",
        [
            CLUSTERS,
            _NAMESPACE,
            _POD,
            CONTAINER,
            NODE,
            GPU,
            value("A", "Slices"),
            value("B", "GPUs held"),
            value("C", "GPUs used"),
            value("D", "Memory held", "bytes"),
            value("E", "Memory used", "bytes"),
            value("F", "Idle for", "s"),
        ],
        *(f"sum without () ({record})" for record in records),
        sort="GPUs held",
        height=12,
    )


def hours() -> Panel:
    """Return the table of GPU-hours and energy by pod."""
    by = "sum by (cluster, namespace, pod)"
    return listing(
        "GPU-hours by pod",
        f"GPU-hours and energy of each pod, for the time shown, including pods that have ended. {AT_LEAST}",
        [
            CLUSTERS,
            _NAMESPACE,
            _POD,
            value("A", "GPU-hours held"),
            value("B", "GPU-hours used"),
            value("C", "Energy", "watth"),
        ],
        f"{by} ({counted(HELD_SECONDS)}) / {HOUR}",
        f"{by} ({counted(USED_SECONDS)}) / {HOUR}",
        f"{by} ({counted(increase('energy_joules'))}) / {HOUR}",
        sort="GPU-hours held",
        height=14,
    )


def idle() -> Panel:
    """Return the table of idle holders."""
    idle = "(container:gpuslice_idle_holder:bool == 1)"
    return listing(
        "Idle holders",
        "Holders that have not computed for an hour (idle_after of the rules). One that was never seen "
        "computing is idle since it was first seen.",
        [
            CLUSTERS,
            _NAMESPACE,
            _POD,
            CONTAINER,
            NODE,
            GPU,
            value("A", "Idle for", "s"),
            value("B", "Memory held", "bytes"),
        ],
        or_none(f"{IDLE_SECONDS} * {idle}", "pod", "container:gpuslice_idle_holder:bool"),
        f"{HELD_BYTES} * {idle}",
        sort="Idle for",
    )


def over_share() -> Panel:
    """Return the table of containers over their share of memory."""
    return listing(
        "Memory over the share",
        "Containers that use more memory than they hold, and how much of it.",
        [
            CLUSTERS,
            _NAMESPACE,
            _POD,
            CONTAINER,
            NODE,
            GPU,
            value("A", "Used, of held", "percentunit"),
        ],
        or_none(
            f"{USED_BYTES} / container:gpuslice_held_bytes:max > 1",
            "pod",
            "container:gpuslice_held_bytes:max",
        ),
        sort="Used, of held",
    )


def xids() -> Panel:
    """Return the table of XID errors on held GPUs."""
    errors = "increase(gpuslice_gpu_xid_errors_total[$__range])"
    return listing(
        "XID errors on held GPUs",
        "XID errors in the time shown, of GPUs that the chosen pods hold or use now. The index leads to "
        "their codes.",
        [CLUSTERS, NODE, GPU, value("A", "XID errors"), Column(name="uuid", title="UUID")],
        f"max by (cluster, node, gpu, uuid) ({errors}) and on (cluster, uuid) {SLICES}",
        sort="XID errors",
    )


def advice_inputs() -> Panel:
    """Return the table of what advice goes by, for each container and device."""
    peak = f"gpuslice_container_memory_peak_bytes{{{PODS}}}"
    return listing(
        "Advice inputs",
        "What advice goes by (docs/advice.md), for the time shown: choose 7 days. Measured: the share of the "
        "time held in which the use was known; below 80 % there is no advice.",
        [
            CLUSTERS,
            _NAMESPACE,
            _POD,
            CONTAINER,
            replace(GPU, link=None),
            value("A", "Memory peak", "bytes"),
            value("B", "GPUs used, p95"),
            value("C", "Memory measured", "percentunit"),
            value("D", "Compute measured", "percentunit"),
            value("E", "Held for", "s"),
        ],
        f"max {_NO_TARGET} (max_over_time({peak}[$__range]))",
        # VictoriaMetrics keeps the name of the record, by which rows could not be merged.
        f"sum without () (quantile_over_time(0.95, {USED_GPUS}[$__range]))",
        _measured("memory_measured_seconds", "held_seconds"),
        _measured("compute_measured_gpu_seconds", "entitled_gpu_seconds"),
        f"sum {_NO_TARGET} ({increase('held_seconds')})",
        sort="Held for",
        height=12,
    )


_NO_TARGET = "without (job, instance)"


def _measured(known: str, held: str) -> str:
    """Return the measured share, the smallest if the exporter of a node was replaced."""
    # On the right, the pod alone keeps the query short.
    of_pods = increase(held).replace(PODS, 'pod=~"$pod"')
    return f"min {_NO_TARGET} ({increase(known)} / {of_pods})"
