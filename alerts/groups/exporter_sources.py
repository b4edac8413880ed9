"""Alerts on the sources of an exporter: one that fails, hangs or is slow, and polls that no longer happen."""

from alerts.groups.exporter_numbers import ExporterThresholds
from alerts.groups.exporter_targets import SNAPSHOT
from alerts.model import NODE_BOARD, Alert
from alerts.subjects import by_node
from alerts.windows import seconds

_SUCCESS = "gpuslice_collector_success"
_ERRORS = "max by (reason) (gpuslice_collector_errors_total{cluster=%q,node=%q,collector=%q}) > 0"
_REASONS = (
    f"{{{{ range $i, $row := query (printf `{_ERRORS}` $labels.cluster $labels.node $labels.collector) "
    "| sortByLabel `reason` }}"
    "{{ if $i }}, {{ end }}{{ $row.Labels.reason }} ({{ $row.Value | printf `%.0f` }} times)"
    "{{ else }}none reported{{ end }}"
)
"""Errors of the alert's source since the exporter's start."""


def source_alerts(numbers: ExporterThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _failing(numbers),
        _stale(numbers),
        _slow(numbers),
        _no_poll(numbers),
        _pod_resources(numbers),
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
