"""The collapsed rows of the dashboard Node."""

from dashboards.board import Panel
from dashboards.panels import ENERGY_STEP, SUCCESS, Query, states, timeline
from dashboards.selectors import GPU, NODE, NODES, POD, once_a_holder, or_none, without_target
from dashboards.tables import GPU as GPUS
from dashboards.tables import NAMESPACE, Column, listing
from dashboards.tables import NODE as NODE_COLUMN
from dashboards.tables import POD as PODS
from dashboards.tables import number as value

_RATE = "[$__rate_interval]"


def load() -> tuple[Panel, ...]:
    """Return the row of load and power."""
    watts = once_a_holder(f"rate(gpuslice_container_energy_joules_total{{{NODES}}}{_RATE})", "instance")
    return (
        timeline(
            "Utilization",
            "percentunit",
            "Share of time in which a kernel was running. Unknown for GPUs in MIG mode.",
            Query(f"gpuslice_gpu_utilization_ratio{{{NODES}}}", GPU),
            top=1,
            span=8,
        ),
        timeline(
            "Power", "watt", "Power of each GPU.", Query(f"gpuslice_gpu_power_watts{{{NODES}}}", GPU), span=8
        ),
        timeline(
            "Power by pod",
            "watt",
            "Power of the GPUs, split by use while containers compute, and by entitlement while they idle.",
            Query(f"sum by (cluster, namespace, pod) ({watts})", POD),
            stacked=True,
            span=8,
        ).interval(ENERGY_STEP),
    )


def slices_and_jobs() -> tuple[Panel, ...]:
    """Return the row of slices, and of jobs of a batch system."""
    offered, held = (without_target(f"gpuslice_gpu_slices{what}{{{NODES}}}") for what in ("", "_allocated"))
    jobs = f"gpuslice_gpu_job_info{{{NODES}}} or gpuslice_mig_job_info{{{NODES}}}"
    return (
        listing(
            "Slices",
            "Offered and held slices of each GPU. Unknown: the kubelet or the device plugin does not answer.",
            [
                NODE_COLUMN,
                GPUS,
                Column(name="resource", title="Resource"),
                value("A", "Offered"),
                value("B", "Held"),
                value("C", "Not held"),
            ],
            offered,
            held,
            f"{offered} - {held}",
            sort="Not held",
            span=14,
        ),
        listing(
            "Batch jobs",
            "Jobs of a batch system on GPUs and MIG devices, from the files in --job-mapping-dir.",
            [NODE_COLUMN, GPUS, Column(name="hpc_job", title="Job")],
            or_none(without_target(jobs), "hpc_job", f"gpuslice_gpu_up{{{NODES}}}"),
            span=10,
        ),
    )


def migs() -> tuple[Panel, ...]:
    """Return the row of MIG devices, partitions of AMD GPUs, and their holders."""
    series = ("holders", "memory_used_bytes", "memory_total_bytes", "unattributed_memory_bytes")
    return (
        listing(
            "MIG devices",
            "A row for each MIG device, or partition of an AMD GPU. Its holders are in the table of holders. "
            "Memory is unknown if compute instances share a GPU instance. Not attributed: of no container.",
            [
                NODE_COLUMN,
                GPUS,
                Column(name="profile", title="Profile", width=110),
                Column(name="gi", title="GI", width=50),
                Column(name="ci", title="CI", width=50),
                value("B", "Holders"),
                value("C", "Memory used", "bytes"),
                value("D", "Memory", "bytes"),
                value("E", "Not attributed", "bytes"),
                Column(name="mig_uuid", title="MIG device"),
            ],
            without_target(f"gpuslice_mig_info{{{NODES}}}"),
            *(without_target(f"gpuslice_mig_{name}{{{NODES}}}") for name in series),
            sort=("Node", "GPU", "GI"),
            height=10,
        ),
        timeline(
            "Free MIG memory slices",
            "none",
            "Free memory slices of each GPU in MIG mode, and the longest run of adjacent ones (dashed): a "
            "new instance needs adjacent slices.",
            Query(f'gpuslice_gpu_mig_memory_slices{{{NODES}, state="free"}}', GPU),
            Query(
                f"gpuslice_gpu_mig_adjacent_free_memory_slices{{{NODES}}}", f"{GPU} · adjacent", limit=True
            ),
        ),
        timeline(
            "SM activity of MIG devices",
            "percentunit",
            "Share of time in which the SMs of a MIG device were active. From Hopper on; before only with "
            "--dcgm-exporter-url.",
            Query(f"gpuslice_mig_sm_active_ratio{{{NODES}}}", f"{GPU} · {{{{profile}}}} {{{{mig_uuid}}}}"),
            top=1,
        ),
    )


def vgpus() -> tuple[Panel, ...]:
    """Return the row of vGPUs of a host, and the license of a guest."""
    series = ("memory_used_bytes", "memory_total_bytes", "utilization_ratio", "licensed")
    expiry = f"gpuslice_gpu_vgpu_license_expiry_timestamp_seconds{{{NODES}}} * 1000"
    return (
        listing(
            "vGPUs of hosts",
            "The vGPUs that run on GPUs of a host, and the pods that hold them. Licensed: 1, or 0 if the "
            "guest has no license; unknown until its driver has requested one.",
            [
                NODE_COLUMN,
                GPUS,
                Column(name="type", title="Type", width=140),
                Column(name="vm_id", title="VM"),
                NAMESPACE,
                PODS,
                value("B", "Memory used", "bytes"),
                value("C", "Memory", "bytes"),
                value("D", "Utilization", "percentunit"),
                value("E", "Licensed"),
            ],
            without_target(f"gpuslice_vgpu_info{{{NODES}}}"),
            *(without_target(f"gpuslice_vgpu_{name}{{{NODES}}}") for name in series),
        ),
        listing(
            "Licenses of guests",
            "The license of a guest's vGPU. Without one its driver slows it down.",
            [
                NODE_COLUMN,
                Column(name="license_product", title="Product"),
                Column(name="license_state", title="State", width=110),
                value("B", "Expires", "dateTimeFromNow", empty="never"),
            ],
            without_target(f"gpuslice_gpu_vgpu_license_info{{{NODES}}}"),
            without_target(expiry),
        ),
    )


def exporter() -> tuple[Panel, ...]:
    """Return the row of the exporter: its sources, their ages, errors, and its own use of the node."""
    return (_nodes(), _sources(), *_timing(), *_errors(), *_self())


def _nodes() -> Panel:
    return listing(
        "Exporters",
        "The exporter of each node. Its target leads to its page, if your browser can reach it.",
        [
            Column(name="node", title="Node"),
            Column(name="instance", title="Target", link="http://${__data.fields.Target}/", width=180),
            Column(name="driver_version", title="Driver", width=120),
            Column(name="cuda_version", title="CUDA", width=80),
        ],
        f"max without (job) (gpuslice_node_info{{{NODES}}})",
        span=12,
    )


def _sources() -> Panel:
    return states(
        "Sources",
        "Whether the last read of each source succeeded. A gap: no data.",
        SUCCESS,
        Query(f"gpuslice_collector_success{{{NODES}}}", f"{NODE} · {{{{collector}}}}"),
    )


def _timing() -> tuple[Panel, ...]:
    last = f"gpuslice_collector_last_success_timestamp_seconds{{{NODES}}}"
    return (
        timeline(
            "Read duration by source",
            "s",
            "Duration of the last read of each source.",
            Query(f"gpuslice_collector_duration_seconds{{{NODES}}}", f"{NODE} · {{{{collector}}}}"),
        ),
        timeline(
            "Age of the data by source",
            "s",
            "Time since the last successful read of each source, at the time of the scrape.",
            Query(f"timestamp({last}) - {last}", f"{NODE} · {{{{collector}}}}"),
        ),
    )


def _errors() -> tuple[Panel, ...]:
    known = f"gpuslice_collector_success{{{NODES}}}"
    reads, calls = (
        without_target(f"gpuslice_{name}_errors_total{{{NODES}}} > 0") for name in ("collector", "nvml")
    )
    unknown = (
        f"max without (job, instance) (gpuslice_allocations_unresolved{{{NODES}}} > 0 or "
        f"gpuslice_pod_annotations_unreadable{{{NODES}}} > 0)"
    )
    return (
        listing(
            "Failed reads",
            "Failed reads of sources since the exporter's start, by reason.",
            [
                NODE_COLUMN,
                Column(name="collector", title="Source", width=130),
                Column(name="reason", title="Reason"),
                value("A", "How many"),
            ],
            or_none(reads, "reason", known),
            span=12,
        ),
        listing(
            "Failed driver calls",
            "Driver calls that failed since the exporter's start. Without a UUID: about no single GPU.",
            [
                NODE_COLUMN,
                Column(name="call", title="Call"),
                Column(name="error", title="Error", width=110, empty=""),
                value("A", "How many"),
            ],
            or_none(calls, "call", known),
            span=12,
        ),
        listing(
            "Unknown allocations",
            "Allocated ids that match no device, by resource, and systems with unreadable pod annotations. "
            "doctor reports the cause.",
            [
                NODE_COLUMN,
                Column(name="resource", title="Resource"),
                Column(name="system", title="System", width=130, empty=""),
                value("A", "How many"),
            ],
            or_none(unknown, "resource", known),
            span=12,
        ),
    )


def _self() -> tuple[Panel, ...]:
    node = f"max by (cluster, job, instance, node) (gpuslice_node_info{{{NODES}}})"
    target = f"* on (cluster, job, instance) group_left (node) {node}"
    return (
        timeline(
            "CPU of the exporter",
            "percentunit",
            "CPU time of the exporter itself; 100 % is one core.",
            Query(f"rate(process_cpu_seconds_total{_RATE}) {target}", NODE),
        ),
        timeline(
            "Memory of the exporter",
            "bytes",
            "Resident memory of the exporter itself.",
            Query(f"process_resident_memory_bytes {target}", NODE),
        ),
    )
