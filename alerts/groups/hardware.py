"""Alerts on missing GPUs, released drivers, and conditions of GPUs, which the exporter decides."""

from alerts.model import GPU_BOARD, NODE_BOARD, Alert
from alerts.subjects import by_gpu, by_node
from alerts.thresholds import HardwareThresholds
from alerts.wording import GPU, PODS, SHORT_GPU
from exporter.model import Condition
from exporter.model.condition_signs import UNCORRECTED_XIDS
from exporter.model.conditions import TABLE

_SUBJECT = "cluster, node, uuid"
_HEALTH = "gpuslice_container_device_health_info"
# Conditions in which work on the GPU is in danger, and those of them in which a pod should not get it at all.
# A pending repair alone needs a reset too, and until then the GPU works.
_BAD = "|".join(name for name, row in TABLE.items() if row.severity == "bad")
_UNUSABLE = "lost|needs_reboot|replace_board"
_RESET, _REBOOT = (f'class="{name}"' for name in ("reset", "reboot"))
_UNCORRECTED = f'xid=~"{"|".join(map(str, sorted(UNCORRECTED_XIDS)))}"'
_PRESENT = "sum by (cluster, node) (node:gpuslice_total_gpus:count)"
# The driver's count; absent while it does not answer, since it is unknown then.
_COUNTED = by_node("gpuslice_node_gpus")


def state_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _lost(numbers.lost_for),
        _needs_reset(numbers.needs_reset_for),
        _needs_reboot(numbers.needs_reboot_for),
        _uncorrected(),
        _remap_failure(),
        _throttled(numbers.throttled_for),
        _link_degraded(numbers.link_degraded_for),
        _health_disagrees(numbers.health_disagrees_for),
        _missing(numbers),
        _driver_gone(numbers),
        _unidentified(numbers),
        _released(numbers),
    )


def _raised(condition: Condition) -> str:
    return f"""{by_gpu(f'gpuslice_gpu_condition{{condition="{condition}"}}', "condition")} == 1"""


def _lost(hold: str) -> Alert:
    unread = 'gpuslice_collector_success{cluster=%q,node=%q,collector=~"nvml|amd"} == 0'
    asked = f"printf `{unread}` $labels.cluster $labels.node"
    return Alert(
        name="GpuLost",
        expr=_raised("lost"),
        hold=hold,
        severity="critical",
        summary=f"{SHORT_GPU} does not answer",
        description=f"{GPU} is lost, failing, or its driver does not answer. Pods on it: {PODS}. "
        f"{{{{ with query ({asked}) }}}}No GPU of this node can be read now. Perhaps only the "
        "exporter is affected and the pods are well: check GpuSliceCollectorFailing "
        "first{{ else }}Pods on it have stopped computing, or soon will. Keep new pods off the "
        "node, then check its XIDs{{ end }}.",
        dashboard=GPU_BOARD,
    )


def _needs_reset(hold: str) -> Alert:
    return Alert(
        name="GpuNeedsReset",
        expr=_raised("needs_reset"),
        hold=hold,
        severity="warning",
        summary=f"{SHORT_GPU} needs a reset",
        description=f"{GPU} needs a reset.{_repair()}{_xids(_RESET)} Pods on it: "
        f"{PODS}. "
        "Keep new pods off it until it is reset; after an XID their work may hang or fail.",
        dashboard=GPU_BOARD,
    )


def _needs_reboot(hold: str) -> Alert:
    return Alert(
        name="GpuNeedsReboot",
        expr=_raised("needs_reboot"),
        hold=hold,
        severity="critical",
        summary=f"{SHORT_GPU} needs a reboot of its node",
        description=f"{GPU} does not work until its node is rebooted.{_xids(_REBOOT)} "
        f"Pods on it: {PODS}. Keep new pods off the node, drain it and power-cycle it.",
        dashboard=GPU_BOARD,
    )


def _uncorrected() -> Alert:
    return Alert(
        name="EccUncorrected",
        expr=_raised("uncorrected_memory_errors"),
        severity="warning",
        summary=f"{SHORT_GPU} had uncorrectable memory errors",
        description=f"{GPU} had uncorrectable memory errors since its driver was loaded."
        f"{_xids(_UNCORRECTED)} Pods on it: {PODS}. The driver ended the processes that read the data, "
        "or they may have computed with wrong data. Drain the GPU and reset it at a convenient time.",
        dashboard=GPU_BOARD,
    )


def _remap_failure() -> Alert:
    return Alert(
        name="RowRemapFailure",
        expr=_raised("replace_board"),
        severity="critical",
        summary=f"{SHORT_GPU} cannot repair its memory",
        description=f"{GPU} has a bad memory row and no spare row for it; a reset does not fix that. Pods "
        f"on it: {PODS}. Drain the GPU, take it out of service and have the board replaced.",
        dashboard=GPU_BOARD,
    )


def _throttled(hold: str) -> Alert:
    reasons = "hardware_thermal|power_brake|software_thermal"
    active = f'gpuslice_gpu_clock_event_active{{uuid=%q,reason=~"{reasons}"}} == 1'
    return Alert(
        name="GpuThrottled",
        expr=_raised("throttled_by_heat_or_power"),
        hold=hold,
        severity="warning",
        summary=f"{SHORT_GPU} is slowed down by heat or power",
        description=f"{GPU} had its clocks lowered by heat or a power brake most of the time."
        f"{_listed(active, 'Now', 'reason')} Pods on it: {PODS}. They run slower, and so do other GPUs of "
        "the same job. Check the cooling of the node (hardware_thermal, software_thermal) or its power "
        "supplies (power_brake).",
        dashboard=GPU_BOARD,
    )


def _link_degraded(hold: str) -> Alert:
    return Alert(
        name="GpuLinkDegraded",
        expr=_raised("link_degraded"),
        hold=hold,
        severity="warning",
        summary=f"A link of {SHORT_GPU} is degraded",
        description=f"The PCIe link of {GPU} is slower than GPU and slot support, some of its NVLinks or C2C "
        f"links are down, or its NVLink fabric has a problem. Pods on it: {PODS}. Their transfers are slower "
        "or fail. The page of the GPU names the link. Check the seat of the board and its riser, reset the "
        "GPUs at both ends of the NVLink, or check the fabric manager.",
        dashboard=GPU_BOARD,
    )


def _health_disagrees(hold: str) -> Alert:
    def of(selector: str) -> str:
        return by_gpu(f"{_HEALTH}{{{selector}}}", "health")

    def condition(names: str) -> str:
        return f'gpuslice_gpu_condition{{condition=~"{names}"}}'

    asked = f'gpuslice_gpu_condition{{uuid=%q,condition=~"{_UNUSABLE}"}} == 1'
    return Alert(
        name="HealthDisagrees",
        expr=f"""{of('health!~"Healthy|Unknown"')}
and on ({_SUBJECT}) {condition("lost")} == 0
unless on ({_SUBJECT}) {condition(_BAD)} == 1
or {of('health="Healthy"')}
unless on ({_SUBJECT}) {_HEALTH}{{health!="Healthy"}}
and on ({_SUBJECT}) {condition(_UNUSABLE)} == 1""",
        hold=hold,
        severity="warning",
        summary=f"Kubernetes and the driver disagree about the health of {SHORT_GPU}",
        description=f"Kubernetes reports {GPU} as {{{{ $labels.health }}}} in the status of its pods, and "
        '{{ if eq $labels.health "Healthy" }}the exporter finds that it cannot be used.'
        f"{_listed(asked, 'Conditions', 'condition')} Pods on it: {PODS}. New pods may still get it: keep "
        "them off the node, then follow the alert of the condition{{ else }}the exporter finds no "
        f"condition that explains it. Pods on it: {PODS}. They keep running, and new pods may not get it. "
        "Check the log of the device plugin or DRA driver of this node and the XIDs of the GPU{{ end }}.",
        dashboard=GPU_BOARD,
    )


def _listed(query: str, title: str, label: str) -> str:
    """Return a template: the values of a label on the rows of a query about the alert's GPU, if any."""
    rows = f"range $i, $row := . | sortByLabel `{label}`"
    values = f"{{{{ {rows} }}}}{{{{ if $i }}}}, {{{{ end }}}}{{{{ $row.Labels.{label} }}}}{{{{ end }}}}"
    asked = f"printf `max by ({label}) ({query})` $labels.uuid"
    return f"{{{{ with query ({asked}) }}}} {title}: {values}.{{{{ end }}}}"


def _repair() -> str:
    pending = " or ".join(
        f"gpuslice_gpu_{name}_pending{{uuid=%[1]q}} == 1" for name in ("row_remap", "retired_pages")
    )
    return f"{{{{ with query (printf `{pending}` $labels.uuid) }}}} A memory repair is pending.{{{{ end }}}}"


def _xids(matcher: str) -> str:
    series = f"gpuslice_gpu_xid_last_timestamp_seconds{{uuid=%q,{matcher}}}"
    return _listed(series, "XID", "xid")


def _missing(numbers: HardwareThresholds) -> Alert:
    before = f"max_over_time(({_PRESENT})[{numbers.remembered}:{numbers.remembered_step}])"
    return Alert(
        name="GpuMissing",
        expr=f"{before}\n- ({_PRESENT} or {_COUNTED} * 0) > 0",
        hold=numbers.missing_for,
        severity="critical",
        summary="{{ $value }} GPU(s) of node {{ $labels.node }} are missing",
        description="Node {{ $labels.node }} had {{ $value }} more GPU(s) within "
        f"{numbers.remembered} than its driver lists now. Missing: {_gone(numbers.remembered)}. "
        "Unless they were removed on purpose, drain the node and look for them on its PCIe bus.",
        dashboard=NODE_BOARD,
    )


def _driver_gone(numbers: HardwareThresholds) -> Alert:
    failing = by_node('gpuslice_collector_success{collector=~"nvml|amd"}', "collector")
    before = f"max_over_time(({_PRESENT})[{numbers.remembered}:{numbers.remembered_step}])"
    return Alert(
        name="DriverGone",
        # While GPUs are still reported, each of them has its own alert.
        expr=f"{failing} == 0\nunless on (cluster, node) gpuslice_driver_released == 1\n"
        f"and on (cluster, node) {before}\nunless on (cluster, node) gpuslice_gpu_up",
        hold=numbers.missing_for,
        severity="critical",
        summary="No GPU of node {{ $labels.node }} can be read",
        description=f"Node {{{{ $labels.node }}}} had GPUs within {numbers.remembered}, and since its "
        "exporter restarted its source {{ $labels.collector }} fails: the driver is not loaded, "
        f"does not answer, or was upgraded while in use. Missing: {_gone(numbers.remembered)}. "
        "Keep new pods off the node, and load the driver or reboot.",
        dashboard=NODE_BOARD,
    )


def _gone(remembered: str) -> str:
    """Return a template of the GPUs of the alert's node that are missing."""
    of_node = "{cluster=%[1]q,node=%[2]q}"
    query = (
        f"max by (uuid, model, pci_bus_id) (last_over_time(gpuslice_gpu_info{of_node}[{remembered}])) "
        f"and on (uuid) (last_over_time(gpuslice_gpu_up{of_node}[{remembered}]) "
        f"unless on (uuid) gpuslice_gpu_up{of_node})"
    )
    return (
        f"{{{{ range $i, $gpu := query (printf `{query}` $labels.cluster $labels.node) "
        "| sortByLabel `uuid` }}"
        "{{ if $i }}, {{ end }}{{ $gpu.Labels.uuid }} "
        "({{ $gpu.Labels.model }} at {{ $gpu.Labels.pci_bus_id }}){{ else }}unknown{{ end }}"
    )


def _unidentified(numbers: HardwareThresholds) -> Alert:
    return Alert(
        name="GpuUnidentified",
        # A GPU that was known before a restart of the exporter has the alert GpuMissing, with its name.
        expr=f"{_COUNTED} - ({_PRESENT} or {_COUNTED} * 0) > 0\n"
        'unless on (cluster, node) ALERTS{alertname="GpuSliceGpuMissing"}',
        hold=numbers.missing_for,
        severity="warning",
        summary="{{ $value }} GPU(s) of node {{ $labels.node }} are not identified",
        description="The driver of node {{ $labels.node }} counts {{ $value }} GPU(s) without a UUID: they "
        "were lost before the exporter started, or it may not open them. These GPUs have no "
        "readings and no known holders. Check nvidia-smi and the kernel log on the node.",
        dashboard=NODE_BOARD,
    )


def _released(numbers: HardwareThresholds) -> Alert:
    return Alert(
        name="DriverReleased",
        expr=f"{by_node('gpuslice_driver_released')} == 1",
        hold=numbers.released_for,
        severity="warning",
        summary="The driver of node {{ $labels.node }} has been released for a long time",
        description="A release window has been open on node {{ $labels.node }} for more than "
        f"{numbers.released_for}. Its GPUs are not monitored meanwhile, and no alert fires if "
        "one is lost. Close the window when the work on the GPUs is done.",
        dashboard=NODE_BOARD,
    )
