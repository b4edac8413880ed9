"""Alerts on what an exporter cannot see, or cannot make sense of."""

from alerts.groups.devices import OF_DEVICE, on_device
from alerts.groups.exporter_numbers import ExporterThresholds
from alerts.model import GPU_BOARD, NODE_BOARD, Alert
from alerts.promql import DEVICE, TARGET, on_gpu, on_node
from alerts.wording import GPU, ON_MIG, PERCENT, PODS, ROUNDED, SHORT_GPU


def view_alerts(numbers: ExporterThresholds) -> tuple[Alert, ...]:
    """Give the alerts."""
    return (
        _degraded(numbers),
        _process_view(numbers),
        _blind(numbers),
        _inconsistent(numbers),
        _nvml_errors(numbers),
    )


def _degraded(numbers: ExporterThresholds) -> Alert:
    gpu, mig = (_unattributed(level, numbers) for level in ("gpu", "mig"))
    # That processes cannot be told apart has its own alert.
    return Alert(
        name="AttributionDegraded",
        expr=on_gpu(
            f"(\n"
            f"  {gpu}\n"
            f"  or\n"
            f"  ({mig} unless on ({DEVICE}) {gpu})\n"
            f")\n"
            f"unless on ({TARGET}) gpuslice_process_attribution_available == 0"
        ),
        hold=numbers.unattributed_for,
        severity="warning",
        summary=f"{PERCENT} of the memory used on {SHORT_GPU} is nobody's",
        description=f"Of the memory in use on {GPU}{ON_MIG} {PERCENT} belongs to no known container. Pods "
        f"that are known: {PODS}. Either a process outside of Kubernetes has it, or the exporter cannot tell "
        "whose its processes are. Its page lists them; compare with nvidia-smi on the node.",
        dashboard=GPU_BOARD,
    )


def _unattributed(level: str, numbers: ExporterThresholds) -> str:
    used = f"(gpuslice_{level}_memory_used_bytes > {numbers.unattributed_used_bytes:.0f})"
    rest = f"gpuslice_{level}_unattributed_memory_bytes / {used} > {numbers.unattributed_ratio:g}"
    # A batch system has said whose the rest is. That of a MIG device is in the rest of its GPU too.
    labels, jobs = {
        "gpu": (DEVICE, "(gpuslice_gpu_job_info or gpuslice_mig_job_info)"),
        "mig": (f"{DEVICE}, mig_uuid", "gpuslice_mig_job_info"),
    }[level]
    return f"({rest} unless on ({labels}) {jobs})"


def _process_view(numbers: ExporterThresholds) -> Alert:
    unreadable = 'gpuslice_collector_success{cluster=%q,job=%q,instance=%q,collector="processes"} == 0'
    asked = f"printf `{unreadable}` $labels.cluster $labels.job $labels.instance"
    return Alert(
        name="ProcessAttributionMissing",
        # Without a GPU that is read there are no processes to see.
        expr=on_node(f"gpuslice_process_attribution_available == 0\nand on ({TARGET}) gpuslice_gpu_up"),
        hold=numbers.process_view_for,
        severity="warning",
        summary="The exporter of node {{ $labels.node }} does not see the node's processes",
        description="The exporter {{ $labels.instance }} of node {{ $labels.node }} cannot tell whose the "
        "processes on its GPUs are: what a container uses of a device that it shares is missing. "
        f"{{{{ with query ({asked}) }}}}Give the pod hostPID: true and the host's /proc{{{{ else }}}}"
        "Its driver lists the processes of no device, as with some virtual GPUs, and with MIG for those who "
        "may not monitor it{{ end }}; gpuslice-exporter doctor says what is in the way.",
        dashboard=NODE_BOARD,
    )


def _blind(numbers: ExporterThresholds) -> Alert:
    return Alert(
        name="PodAnnotationsUnreadable",
        expr=on_node("gpuslice_pod_annotations_unreadable == 1"),
        hold=numbers.pod_annotations_unreadable_for,
        severity="warning",
        summary="What {{ $labels.system }} gave out on node {{ $labels.node }} is not known",
        description="Node {{ $labels.node }} shares its GPUs by {{ $labels.system }}, which writes into the "
        "pods' annotations who has what. The exporter {{ $labels.instance }} cannot read these, so that "
        "holders or entitlements are missing. Let it read pods: from the kubelet's Pods API, or with "
        "--kubernetes-api.",
        dashboard=NODE_BOARD,
    )


def _inconsistent(numbers: ExporterThresholds) -> Alert:
    counted = f"increase(gpuslice_attribution_inconsistent_total[{numbers.inconsistent_window}])"
    return Alert(
        name="AttributionInconsistent",
        expr=on_gpu(f"{counted} > {numbers.inconsistent_polls:g}"),
        severity="warning",
        summary=f"The parts of {SHORT_GPU} add up to more than the whole",
        description=f"On {GPU}{ON_MIG} the containers' {{{{ $labels.quantity }}}} added up to more than the "
        f"device has in {ROUNDED} polls within {numbers.inconsistent_window}. Pods on it: {PODS}. Their "
        "numbers cannot be believed in this quantity. Write a scenario with gpuslice-exporter record and "
        "report it.",
        dashboard=GPU_BOARD,
    )


def _nvml_errors(numbers: ExporterThresholds) -> Alert:
    window = numbers.nvml_errors_window
    # A GPU that is lost or must be reset has its own alert, and goes on failing here for as long; a driver
    # that cannot be read at all likewise.
    driver = 'gpuslice_collector_success{collector="nvml"}'
    counted = f'increase(gpuslice_nvml_errors_total{{error!~"GpuIsLost|ResetRequired"}}[{window}])'
    query = (
        "topk(3, sum by (call) (increase(gpuslice_nvml_errors_total"
        f"{{cluster=%q,job=%q,instance=%q,uuid=%q,error=%q}}[{window}])))"
    )
    asked = f"printf `{query}` $labels.cluster $labels.job $labels.instance $labels.uuid $labels.error"
    return Alert(
        name="NvmlErrors",
        expr=on_device(
            f"sum by ({DEVICE}, error) ({counted}) > {numbers.nvml_errors:g}\n"
            f"unless on ({DEVICE}) min_over_time(gpuslice_gpu_up[{window}]) == 0\n"
            f"unless on ({TARGET}) max_over_time(gpuslice_driver_released[{window}]) == 1\n"
            f"unless on ({TARGET}) min_over_time({driver}[{window}]) == 0",
            "error",
        ),
        severity="warning",
        summary=f"The driver fails with {{{{ $labels.error }}}} again and again: {OF_DEVICE}",
        description=f"{ROUNDED} calls into the driver have failed within {window} with "
        f"{{{{ $labels.error }}}}: {OF_DEVICE}. Most of them: "
        f"{{{{ range $i, $row := query ({asked}) | sortByLabel `call` }}}}"
        "{{ if $i }}, {{ end }}{{ $row.Labels.call }}{{ end }}. What they read is missing. Look at the "
        "kernel's log on the node for NVRM messages, and at the GPU's XIDs.",
        dashboard=NODE_BOARD,
    )
