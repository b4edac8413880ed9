"""Alerts on exporters that are not scraped, do not answer, or are scraped in a wrong way."""

from alerts.model import FLEET_BOARD, NODE_BOARD, Alert
from alerts.thresholds import ExporterThresholds
from alerts.wording import ROUNDED

SNAPSHOT = "gpuslice_snapshot_timestamp_seconds"
_BUILD, _NODE = "gpuslice_build_info", "gpuslice_node_info"
_TARGET = "cluster, job, instance"
# Names of kube-state-metrics for the resources of GPUs, MIG devices and partitions. Other resources of these
# vendors are network cards, or GPUs passed through to virtual machines, which have no driver here.
_RESOURCES = "nvidia_com_(gpu|mig_).*|amd_com_gpu.*|amd_com_.*_nps[0-9]+"


def target_alerts(numbers: ExporterThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _absent(numbers),
        _down(numbers),
        _node_without(numbers),
        _scraped_twice(numbers),
        _labels_overwritten(numbers),
    )


def _absent(numbers: ExporterThresholds) -> Alert:
    # One of several clusters without series, or no series at all.
    before = " or ".join(f"{SNAPSHOT} offset {ago}" for ago in ("1h", "6h", numbers.gone_after))
    return Alert(
        name="ExporterAbsent",
        expr=f"(\n"
        f"  group by (cluster) ({before})\n"
        f"  unless on (cluster)\n"
        f"  group by (cluster) ({SNAPSHOT})\n"
        f")\n"
        f"or on ()\n"
        f"absent({SNAPSHOT})",
        hold=numbers.absent_for,
        severity="critical",
        summary="No gpuslice-exporter answers{{ with $labels.cluster }} in cluster {{ . }}{{ end }}",
        description="Prometheus has no series of any gpuslice-exporter{{ with $labels.cluster }} in cluster "
        "{{ . }}{{ end }}: its GPUs are not monitored, and no other alert on them can fire. "
        "Check that the DaemonSet has pods and that Prometheus lists them as targets.",
        dashboard=FLEET_BOARD,
    )


def _down(numbers: ExporterThresholds) -> Alert:
    # Replicas of Prometheus, told apart by a label, report one target.
    down = f"max by ({_TARGET}, namespace, pod) (up) == 0"
    known = f"last_over_time({_BUILD}[1h]) or {_BUILD} offset {numbers.known_for}"
    exporters_only = f"count by (cluster, job) ({_BUILD}) == count by (cluster, job) (up == 1)"
    return Alert(
        name="ExporterDown",
        # A target that was an exporter, or one of a job in which all targets that answer are exporters.
        expr=f"{down}\nand on ({_TARGET}) ({known})\nor\n{down}\nand on (cluster, job) ({exporters_only})",
        hold=numbers.down_for,
        severity="warning",
        summary="The exporter {{ $labels.instance }} does not answer",
        description="Prometheus cannot scrape {{ $labels.instance }} of job "
        "{{ $labels.job }}{{ with $labels.pod }} (pod {{ . }}){{ end }}. "
        f"{_last_node(numbers.known_for)} Check that pod, and the target's error in Prometheus.",
        dashboard=FLEET_BOARD,
    )


def _last_node(known_for: str) -> str:
    """Return a template of the last known node of the alert's target."""
    selected = f"{_NODE}{{cluster=%[1]q,job=%[2]q,instance=%[3]q}}"
    query = f"last_over_time({selected}[1h]) or {selected} offset {known_for}"
    asked = f"query (printf `{query}` $labels.cluster $labels.job $labels.instance)"
    return (
        f"{{{{ with {asked} }}}}It reported node {{{{ . | first | label `node` }}}}, which is not monitored "
        "now.{{ else }}Its node is unknown: it never reported one, or too long ago.{{ end }}"
    )


def _node_without(numbers: ExporterThresholds) -> Alert:
    capacity = f'kube_node_status_capacity{{resource=~"{_RESOURCES}"}} > 0'
    return Alert(
        name="NodeWithoutExporter",
        expr=f"count by (cluster, node) ({capacity})\nunless on (cluster, node) {_NODE}",
        hold=numbers.node_without_for,
        severity="warning",
        summary="Node {{ $labels.node }} has GPUs but no exporter",
        description="Kubernetes counts GPUs on node {{ $labels.node }}, but no gpuslice-exporter reports "
        "that node: holders and usage of the GPUs are not known. Check that the DaemonSet has a "
        "pod there (node selector, taints), that it runs, and that it uses the same node name.",
        dashboard=FLEET_BOARD,
    )


def _scraped_twice(numbers: ExporterThresholds) -> Alert:
    targets = f"{_NODE}{{cluster=%q,node=%q}}"
    query = f'group by (target) (label_join({targets}, "target", " of job ", "instance", "job"))'
    return Alert(
        name="NodeScrapedTwice",
        expr=f"count by (cluster, node) (group by ({_TARGET}, node) ({_NODE})) > 1",
        hold=numbers.scraped_twice_for,
        severity="warning",
        summary=f"{ROUNDED} targets report node {{{{ $labels.node }}}}",
        description="Node {{ $labels.node }} is reported by "
        f"{{{{ range $i, $row := query (printf `{query}` $labels.cluster $labels.node) "
        "| sortByLabel `target` }}"
        "{{ if $i }} and {{ end }}{{ $row.Labels.target }}{{ end }}: queries on its series count its GPUs "
        "and holders twice. Scrape each exporter once, and give each node its own name; with "
        "several clusters, add a label cluster.",
        dashboard=NODE_BOARD,
    )


def _labels_overwritten(numbers: ExporterThresholds) -> Alert:
    info = "gpuslice_container_info"
    clashes = (
        f'{info}{{exported_pod!=""}} or {info}{{exported_namespace!=""}} or {_NODE}{{exported_node!=""}}'
    )
    return Alert(
        name="LabelsOverwritten",
        expr=f"group by (cluster, job) ({clashes})",
        hold=numbers.labels_overwritten_for,
        severity="warning",
        summary="Job {{ $labels.job }} overwrites the labels of pods",
        description="Series of job {{ $labels.job }} have labels of the target in place of their own: pod "
        "and namespace are those of the exporter, and the holder of the GPU is in exported_pod and "
        "exported_namespace. Rules and dashboards then attribute everything to the exporter. Set "
        "honor_labels: true (honorLabels in a ServiceMonitor or PodMonitor) for this job.",
        dashboard=FLEET_BOARD,
    )
