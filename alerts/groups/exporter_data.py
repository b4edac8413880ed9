"""Alerts on sources of an exporter that fail or hang, and on data that it cannot read or attribute."""

from alerts.groups.exporter import SNAPSHOT
from alerts.model import GPU_BOARD, NODE_BOARD, Alert
from alerts.records import MODEL
from alerts.subjects import by_gpu, by_node
from alerts.thresholds import ExporterThresholds
from alerts.windows import seconds
from alerts.wording import GPU, OF_DEVICE, ON_MIG, PERCENT, PODS, ROUNDED, SHORT_GPU

_SUCCESS = "gpuslice_collector_success"
_ERRORS = "max by (reason) (gpuslice_collector_errors_total{cluster=%q,node=%q,collector=%q}) > 0"
_REASONS = (
    f"{{{{ range $i, $row := query (printf `{_ERRORS}` $labels.cluster $labels.node $labels.collector) "
    "| sortByLabel `reason` }}"
    "{{ if $i }}, {{ end }}{{ $row.Labels.reason }} ({{ $row.Value | printf `%.0f` }} times)"
    "{{ else }}none reported{{ end }}"
)
"""Errors of the alert's source since the exporter's start."""


def data_alerts(numbers: ExporterThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _failing(numbers),
        _stale(numbers),
        _slow(numbers),
        _no_poll(numbers),
        _pod_resources(numbers),
        _degraded(numbers),
        _process_view(numbers),
        _blind(numbers),
        _inconsistent(numbers),
        _nvml_errors(numbers),
    )


def _failing(numbers: ExporterThresholds) -> Alert:
    # While the driver is released, it is not read on purpose. The processes have their own alert.
    failing = f'{_SUCCESS}{{collector!~"podresources|processes"}}'
    released = 'label_replace(gpuslice_driver_released == 1, "collector", "nvml", "", "")'
    return Alert(
        name="CollectorFailing",
        expr=f"{by_node(failing, 'collector')} == 0\nunless on (cluster, node, collector) {released}",
        hold=numbers.collector_failing_for,
        severity="warning",
        summary="Source {{ $labels.collector }} of node {{ $labels.node }} fails",
        description="The exporter of node {{ $labels.node }} cannot read its source "
        f"{{{{ $labels.collector }}}}. Reasons since its start: {_REASONS}. "
        "{{ if match `^(nvml|amd)$` $labels.collector }}Its GPUs are not monitored "
        "meanwhile{{ else }}Data from this source is missing{{ end }}. Run gpuslice-exporter "
        "doctor in its pod to see what is lost and how to fix it.",
        dashboard=NODE_BOARD,
    )


def _stale(numbers: ExporterThresholds) -> Alert:
    # Compared with the poll that reports it, not with this clock, which may differ from the node's.
    last = by_node("gpuslice_collector_last_success_timestamp_seconds", "collector")
    age = f"{by_node(SNAPSHOT)} - on (cluster, node) group_right () {last}"
    return Alert(
        name="CollectorStale",
        expr=f"{age} > {seconds(numbers.collector_stale_after):g}\n"
        f"and on (cluster, node, collector) {_SUCCESS} == 1",
        hold="1m",
        severity="warning",
        summary="Source {{ $labels.collector }} of node {{ $labels.node }} is no longer read",
        description="The exporter of node {{ $labels.node }} polls and reports its "
        "source {{ $labels.collector }} as working, but has read nothing new from it for "
        "{{ $value | humanizeDuration }}: it hangs. Restart the pod, and report the problem "
        "with its log.",
        dashboard=NODE_BOARD,
    )


def _slow(numbers: ExporterThresholds) -> Alert:
    return Alert(
        name="CollectorSlow",
        expr=f"{by_node('gpuslice_collector_duration_seconds', 'collector')} "
        f"> {numbers.collector_slow_seconds:g}\n"
        f"and on (cluster, node, collector) {_SUCCESS} == 1",
        hold=numbers.collector_slow_for,
        severity="warning",
        summary="Source {{ $labels.collector }} of node {{ $labels.node }} is slow",
        description="Reading the source {{ $labels.collector }} takes {{ $value | humanizeDuration }} on "
        "node {{ $labels.node }}. Polls will be late, and the "
        "source fails at its deadline. Check the load of the node; "
        "--metric-set full shows the time of NVML calls by group.",
        dashboard=NODE_BOARD,
    )


def _no_poll(numbers: ExporterThresholds) -> Alert:
    return Alert(
        name="SnapshotStale",
        # This does not depend on clocks, and ignores series that did not exist then.
        expr=f"{by_node(SNAPSHOT)} == {by_node(f'{SNAPSHOT} offset {numbers.snapshot_unchanged_for}')}",
        hold="1m",
        severity="warning",
        summary="The exporter of node {{ $labels.node }} no longer polls",
        description="The exporter of node {{ $labels.node }} answers, but has not "
        f"polled for more than {numbers.snapshot_unchanged_for}. Its GPU data is old and will "
        "soon be absent, and other alerts on this node are not reliable. Check its log; restart "
        "the pod.",
        dashboard=NODE_BOARD,
    )


def _pod_resources(numbers: ExporterThresholds) -> Alert:
    # If GPUs cannot be read either, that has its own alert. A node may have no GPUs that are read.
    blind = by_node(f'{_SUCCESS}{{collector=~"nvml|amd"}}')
    unknown = by_node(f'{_SUCCESS}{{collector="podresources"}}', "collector")
    return Alert(
        name="PodResourcesDown",
        expr=f"{unknown} == 0\nunless on (cluster, node) {blind} == 0",
        hold=numbers.pod_resources_for,
        severity="warning",
        summary="The holders of the GPUs of node {{ $labels.node }} are unknown",
        description="The kubelet of node {{ $labels.node }} does not report GPU allocations to its "
        f"exporter. Reasons since its start: {_REASONS}. Holders, slices and "
        "entitlements are missing, so alerts on idle holders and on use above a share cannot "
        "fire. Check the kubelet's log, and that its socket "
        "/var/lib/kubelet/pod-resources/kubelet.sock exists and is mounted.",
        dashboard=NODE_BOARD,
    )


def _degraded(numbers: ExporterThresholds) -> Alert:
    gpu, mig = (_unattributed(level, numbers) for level in ("gpu", "mig"))
    # Missing process attribution has its own alert.
    return Alert(
        name="AttributionDegraded",
        expr=f"({gpu} or ({mig} unless on (cluster, uuid) {gpu}))\n"
        "unless on (cluster, node) gpuslice_process_attribution_available == 0",
        hold=numbers.unattributed_for,
        severity="warning",
        summary=f"{PERCENT} of the memory in use on {SHORT_GPU} is not attributed to any container",
        description=f"{PERCENT} of the memory in use on {GPU}{ON_MIG} is not attributed to any container. "
        f"Known pods: {PODS}. Either a process outside of Kubernetes uses it, or the exporter "
        "cannot match the processes to pods. The GPU's page lists them; compare with nvidia-smi "
        "on the node.",
        dashboard=GPU_BOARD,
    )


def _unattributed(level: str, numbers: ExporterThresholds) -> str:
    used = f"(gpuslice_{level}_memory_used_bytes > {numbers.unattributed_used_bytes:.0f})"
    rest = f"gpuslice_{level}_unattributed_memory_bytes / {used} > {numbers.unattributed_ratio:g}"
    # A known job of a batch system explains the rest. The rest of a MIG device is in that of its GPU too.
    labels, jobs = {
        "gpu": ("cluster, uuid", "(gpuslice_gpu_job_info or gpuslice_mig_job_info)"),
        "mig": ("cluster, uuid, mig_uuid", "gpuslice_mig_job_info"),
    }[level]
    return f"({by_gpu(rest, 'mig_uuid')} unless on ({labels}) {jobs})"


def _process_view(numbers: ExporterThresholds) -> Alert:
    unreadable = 'gpuslice_collector_success{cluster=%q,node=%q,collector="processes"} == 0'
    asked = f"printf `{unreadable}` $labels.cluster $labels.node"
    return Alert(
        name="ProcessAttributionMissing",
        # Without a readable GPU there are no processes.
        expr=f"{by_node('gpuslice_process_attribution_available')} == 0\n"
        "and on (cluster, node) gpuslice_gpu_up",
        hold=numbers.process_view_for,
        severity="warning",
        summary="The exporter of node {{ $labels.node }} cannot see the node's processes",
        description="The exporter of node {{ $labels.node }} cannot match the "
        "processes on its GPUs to containers: per-container usage of shared devices is missing. "
        f"{{{{ with query ({asked}) }}}}Give the pod hostPID: true and the host's "
        "/proc{{ else }}Its driver does not list processes, as with some virtual GPUs, or with "
        "MIG if the pod is not allowed to monitor it{{ end }}; gpuslice-exporter doctor reports "
        "the cause.",
        dashboard=NODE_BOARD,
    )


def _blind(numbers: ExporterThresholds) -> Alert:
    return Alert(
        name="PodAnnotationsUnreadable",
        expr=f"{by_node('gpuslice_pod_annotations_unreadable', 'system')} == 1",
        hold=numbers.pod_annotations_unreadable_for,
        severity="warning",
        summary="Pod annotations of {{ $labels.system }} on node {{ $labels.node }} are not readable",
        description="Node {{ $labels.node }} shares its GPUs through {{ $labels.system }}, which records "
        "allocations in pod annotations. The exporter cannot read these, "
        "so holders or entitlements are missing. Let it read pods from the kubelet's Pods API, "
        "or with --kubernetes-api.",
        dashboard=NODE_BOARD,
    )


def _inconsistent(numbers: ExporterThresholds) -> Alert:
    counted = f"increase(gpuslice_attribution_inconsistent_total[{numbers.inconsistent_window}])"
    return Alert(
        name="AttributionInconsistent",
        # These series of nodes have the uuid of the GPU and not its index.
        expr=f"{by_node(counted, 'uuid', 'mig_uuid', 'quantity')}\n"
        f"* on (cluster, node, uuid) group_left (gpu) {MODEL} > {numbers.inconsistent_polls:g}",
        severity="warning",
        summary=f"The containers of {SHORT_GPU} add up to more than the GPU",
        description=f"On {GPU}{ON_MIG} the containers' {{{{ $labels.quantity }}}} added up to more than the "
        f"device has in {ROUNDED} polls within {numbers.inconsistent_window}. Pods on it: "
        f"{PODS}. Their values of this quantity are not reliable. Record a scenario with "
        "gpuslice-exporter record and report it.",
        dashboard=GPU_BOARD,
    )


def _nvml_errors(numbers: ExporterThresholds) -> Alert:
    window = numbers.nvml_errors_window
    # A GPU that is lost or must be reset has its own alert; so has a driver that cannot be read at all.
    driver = 'gpuslice_collector_success{collector="nvml"}'
    calls = "max by (cluster, node, uuid, error, call, instance)"
    counted = f'{calls} (increase(gpuslice_nvml_errors_total{{error!~"GpuIsLost|ResetRequired"}}[{window}]))'
    query = (
        "topk(3, sum by (call) (increase(gpuslice_nvml_errors_total"
        f"{{cluster=%q,node=%q,uuid=%q,error=%q}}[{window}])))"
    )
    asked = f"printf `{query}` $labels.cluster $labels.node $labels.uuid $labels.error"
    return Alert(
        name="NvmlErrors",
        expr=f"sum by (cluster, node, uuid, error) ({counted}) > {numbers.nvml_errors:g}\n"
        f"unless on (cluster, uuid) min_over_time(gpuslice_gpu_up[{window}]) == 0\n"
        f"unless on (cluster, node) max_over_time(gpuslice_driver_released[{window}]) == 1\n"
        f"unless on (cluster, node) min_over_time({driver}[{window}]) == 0",
        severity="warning",
        summary=f"The driver repeatedly fails with {{{{ $labels.error }}}}: {OF_DEVICE}",
        description=f"{ROUNDED} driver calls have failed within {window} with {{{{ $labels.error }}}}: "
        f"{OF_DEVICE}. Most frequent: "
        f"{{{{ range $i, $row := query ({asked}) | sortByLabel `call` }}}}{{{{ if $i }}}}, "
        "{{ end }}{{ $row.Labels.call }}{{ end }}. Their readings are missing. Check the kernel "
        "log of the node for NVRM messages, and the GPU's XIDs.",
        dashboard=NODE_BOARD,
    )
