"""Alerts on the conditions of GPUs, which the exporter decides: see docs/xids.md."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.subjects import by_gpu
from alerts.wording import GPU, PODS, SHORT_GPU
from exporter.model import Condition
from exporter.model.condition_signs import UNCORRECTED_XIDS

_RESET, _REBOOT = (f'class="{name}"' for name in ("reset", "reboot"))
_UNCORRECTED = f'xid=~"{"|".join(map(str, sorted(UNCORRECTED_XIDS)))}"'


def condition_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _lost(numbers.lost_for),
        _needs_reset(numbers.needs_reset_for),
        _needs_reboot(numbers.needs_reboot_for),
        _uncorrected(),
        _remap_failure(),
        _throttled(numbers.throttled_for),
        _link_degraded(numbers.link_degraded_for),
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
        description=f"The PCIe link of {GPU} is slower than GPU and slot support, or some of its NVLinks are "
        f"down. Pods on it: {PODS}. Their transfers are slower or fail. The page of the GPU names the link. "
        "Check the seat of the board and its riser, or reset the GPUs at both ends of the NVLink.",
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
