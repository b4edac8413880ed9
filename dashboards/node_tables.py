"""Tables of a node: holders, GPUs, slices and MIG devices."""

from dataclasses import replace

from dashboards.board import Panel
from dashboards.panels import Query, bars
from dashboards.presence import ANSWERS, answering, each
from dashboards.promql import DEVICE, GPU, ON_GPUS, ON_NODES, by_gpu, by_mig, containers, gpu_names
from dashboards.shares import CONTAINER, of_containers, of_gpus
from dashboards.tables import HIDDEN_UUID, Column, Nothing, leads_to, listing, setting

_NODE = Column(name="node", title="Node")
_GPU = Column(name="gpu", title="GPU", width=60, link=leads_to("gpuslice-hardware", node="Node", uuid="UUID"))
_UUID = Column(name="uuid", title="UUID")
_POD = Column(name="pod", title="Pod", link=leads_to("gpuslice-tenant", namespace="Namespace", pod="Pod"))


def holders() -> tuple[Panel, ...]:
    """Return the table of containers that hold or use a device."""
    info = ("resource", "sharing", "isolation", "memory_source", "compute_source")
    quiet = f"time() - {containers('last_active_timestamp_seconds', ON_GPUS)}"
    return (
        listing(
            "Holders",
            "A row for each container and device that it holds or uses. 0 slices: use without holding. "
            "Held memory is a limit or, with time-slicing, a notional share; compute 100 % is a whole GPU. "
            "Isolation: the share is enforced by hardware (hard), by software (soft), or not at all "
            "(none). Unknown: not measured here. The last columns have the sources of the numbers.",
            [
                _NODE,
                _GPU,
                Column(name="namespace", title="Namespace"),
                _POD,
                Column(name="container", title="Container"),
                Column(name="resource", title="Resource", empty="none"),
                Column(name="Value #B", title="Slices", unit="none"),
                Column(name="Value #C", title="Memory held", unit="bytes"),
                Column(name="Value #D", title="Memory used", unit="bytes"),
                Column(name="Value #E", title="Compute held", unit="percentunit"),
                Column(name="Value #F", title="Compute used", unit="percentunit"),
                Column(name="Value #G", title="Idle for", unit="s"),
                Column(name="sharing", title="Sharing", width=110),
                Column(name="isolation", title="Isolation", width=90),
                Column(name="mig_uuid", title="MIG device", empty="-"),
                Column(name="memory_source", title="Memory from"),
                Column(name="compute_source", title="Compute from"),
                HIDDEN_UUID,
            ],
            Query(of_containers("info", *info, own=False)),
            Query(of_containers("slices", own=False)),
            Query(of_containers("memory_entitled_bytes", own=False)),
            Query(of_containers("memory_used_bytes", own=False)),
            Query(of_containers("compute_entitled_ratio", own=False)),
            Query(of_containers("compute_used_ratio", own=False)),
            Query(by_gpu(quiet, *CONTAINER, "mig_uuid")),
            sort="Memory held",
            height=12,
        ),
    )


def gpus_and_slices() -> tuple[Panel, ...]:
    """Return the tables of GPUs, and of their slices."""
    return (_gpus(), _slices(), _shares_held())


def _gpus() -> Panel:
    entitled = f"gpuslice_gpu_memory_entitled_bytes{{{ON_GPUS}}}"
    gpus, uuid = setting(each("model", "sharing"), "uuid", "uuid")
    return listing(
        "Each GPU",
        "A row for each device. GPUs that were lost before they had a name share one row. Over 100 % held: "
        "over-committed. Unknown: not reported, or a device of another vendor; in MIG mode a GPU has no "
        "utilization.",
        [
            _NODE,
            replace(_GPU, link=leads_to("gpuslice-hardware", uuid.title, node="Node")),
            Column(name="model", title="Model"),
            Column(name="sharing", title="Sharing", width=110),
            Column(name="Value #B", title="Answers", words=ANSWERS),
            Column(name="Value #C", title="Holders", unit="none"),
            Column(name="Value #D", title="Memory held", unit="bytes"),
            Column(name="Value #E", title="Held of all", unit="percentunit"),
            Column(name="Value #F", title="Memory used", unit="bytes"),
            Column(name="Value #G", title="Memory", unit="bytes"),
            Column(name="Value #H", title="Unattributed memory", unit="bytes"),
            Column(name="Value #I", title="Utilization", unit="percentunit"),
            Column(name="Value #J", title="Unattributed compute", unit="percentunit"),
            _UUID,
            uuid,
        ],
        gpus,
        answering(),
        Query(of_gpus("gpu_holders")),
        Query(by_gpu(entitled)),
        Query(by_gpu(f"{entitled} / gpuslice_gpu_memory_total_bytes{{{ON_GPUS}}}")),
        Query(of_gpus("gpu_memory_used_bytes")),
        Query(of_gpus("gpu_memory_total_bytes")),
        Query(of_gpus("gpu_unattributed_memory_bytes")),
        Query(of_gpus("gpu_utilization_ratio")),
        Query(of_gpus("gpu_unattributed_utilization_ratio")),
        sort=("Node", "GPU"),
    )


def _slices() -> Panel:
    offered, held = (f"gpuslice_gpu_{name}{{{ON_GPUS}}}" for name in ("slices", "slices_allocated"))
    return listing(
        "Slices by resource",
        "Offered and held slices of each GPU. None: no slices are offered; unknown: the kubelet does not "
        "answer.",
        [
            _NODE,
            _GPU,
            Column(name="resource", title="Resource"),
            Column(name="Value #A", title="Slices", unit="none"),
            Column(name="Value #B", title="Held", unit="none"),
            Column(name="Value #C", title="Not held", unit="none"),
            HIDDEN_UUID,
        ],
        Query(by_gpu(offered, "resource")),
        Query(by_gpu(held, "resource")),
        Query(by_gpu(f"{offered} - {held}", "resource")),
        nothing=Nothing("resource", f"gpuslice_allocations_timestamp_seconds{{{ON_NODES}}}"),
        sort="Not held",
        span=12,
    )


def _shares_held() -> Panel:
    held, offered = (f"gpuslice_gpu_{name}{{{ON_GPUS}}}" for name in ("slices_allocated", "slices"))
    return bars(
        "Slices held by offered",
        "percentunit",
        "Held share of the slices of each GPU and resource.",
        Query(by_gpu(f"{held} / {offered}", "resource"), f"{GPU} · {{{{resource}}}}"),
        height=10,
    )


def mig_devices() -> tuple[Panel, ...]:
    """Return the table of MIG devices."""
    device = f"{DEVICE}, mig_uuid"
    parts = f'{ON_GPUS}, mig_uuid!=""'
    holding = f"{containers('slices', parts)} > 0"
    holders = f"max by ({device}) (gpuslice_mig_holders{{{ON_GPUS}}})"
    chosen = f"max by ({device}, {', '.join(CONTAINER)}) ({holding})"
    # A row for each chosen holder of a device, and one for a device without holders.
    unheld = f"max by ({device}) (gpuslice_mig_info{{{ON_GPUS}}}) unless on ({device}) {holders} > 0"
    holder = f"({chosen} or on ({device}) ({unheld}))"

    def query(name: str) -> Query:
        series = f"max by ({device}) (gpuslice_mig_{name}{{{ON_GPUS}}})"
        return Query(by_mig(f"{holder} * 0 + on ({device}) group_left () {series}", *CONTAINER))

    return (
        listing(
            "Devices",
            "A row for each MIG device, or partition of an AMD GPU, and container that holds it; no row if "
            "only other holders than the chosen ones hold it. Memory is unknown if compute instances share "
            "a GPU instance. SMs are compute units on AMD GPUs.",
            [
                _NODE,
                _GPU,
                Column(name="profile", title="Profile"),
                Column(name="gi", title="GI", width=60),
                Column(name="ci", title="CI", width=60),
                Column(name="Value #C", title="Memory used", unit="bytes"),
                Column(name="Value #D", title="Memory", unit="bytes"),
                Column(name="Value #E", title="Unattributed memory", unit="bytes"),
                Column(name="namespace", title="Namespace", empty="-"),
                Column(name="pod", title="Pod", empty="-"),
                Column(name="container", title="Container", empty="-"),
                Column(name="Value #B", title="Slices held", unit="none"),
                Column(name="mig_uuid", title="MIG device"),
                HIDDEN_UUID,
            ],
            query("info"),
            Query(by_mig(f"({chosen} or on ({device}) {holders} == 0)", *CONTAINER)),
            query("memory_used_bytes"),
            query("memory_total_bytes"),
            query("unattributed_memory_bytes"),
            nothing=Nothing("profile", f"gpuslice_gpu_up{{{ON_GPUS}}}"),
            sort=("Node", "GPU", "GI", "CI"),
            height=12,
        ),
        _free_mig(),
    )


def _free_mig() -> Panel:
    def query(kind: str, state: str) -> Query:
        return Query(by_gpu(f'gpuslice_gpu_mig_{kind}_slices{{{ON_GPUS}, state="{state}"}}'))

    return listing(
        "Free MIG capacity",
        "Slices of the GPUs in MIG mode that are used by MIG devices, and free for new ones. A new GPU "
        "instance needs adjacent memory slices. Unknown: the driver does not report placements.",
        [
            _NODE,
            _GPU,
            Column(name="Value #A", title="Compute slices used", unit="none"),
            Column(name="Value #B", title="free", unit="none"),
            Column(name="Value #C", title="Memory slices used", unit="none"),
            Column(name="Value #D", title="free of memory", unit="none"),
            Column(name="Value #E", title="of them adjacent", unit="none"),
            HIDDEN_UUID,
        ],
        query("compute", "used"),
        query("compute", "free"),
        query("memory", "used"),
        query("memory", "free"),
        Query(of_gpus("gpu_mig_adjacent_free_memory_slices")),
        height=8,
        nothing=Nothing("node", f"gpuslice_gpu_up{{{ON_GPUS}}}", "no GPU is in MIG mode"),
    )


def jobs() -> tuple[Panel, ...]:
    """Return the table of batch system jobs."""
    rows = " or ".join(f"gpuslice_{level}_job_info{{{ON_GPUS}}}" for level in ("gpu", "mig"))
    rows = f"({rows}) * on ({DEVICE}) group_left (node, gpu) {gpu_names(ON_GPUS)}"
    return (
        listing(
            "Batch jobs",
            "Jobs of a batch system on GPUs or GPU instances, from the files in --job-mapping-dir. Unknown "
            "without that setting.",
            [
                _NODE,
                _GPU,
                Column(name="mig_uuid", title="MIG device", empty="-"),
                Column(name="hpc_job", title="Job"),
                HIDDEN_UUID,
            ],
            Query(f"max by (cluster, node, gpu, uuid, mig_uuid, hpc_job) ({rows})"),
            nothing=Nothing("hpc_job", f'gpuslice_collector_success{{{ON_NODES}, collector="jobs"}} == 1'),
        ),
    )
