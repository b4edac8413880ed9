"""Alerts on errors of GPUs: XIDs, corrected memory errors, the fabric of NVSwitches, and PCIe.

XIDs are the error numbers of the NVIDIA driver. Those that need a reset or a reboot are conditions of the
GPU. The alerts on the others use the time of the last error of a code, which exists from the first error on;
a counter that starts with the first error does not rise by it. Errors from before a restart of the exporter
count as well, and each code of a GPU is one alert, whichever targets report it. Its value is that time.
"""

from collections.abc import Mapping
from typing import NamedTuple

from alerts.model import GPU_BOARD, Alert, Severity
from alerts.subjects import by_gpu
from alerts.thresholds import HardwareThresholds
from alerts.windows import seconds
from alerts.wording import GPU, ON_MIG, PODS, PODS_THEN, ROUNDED, SHORT_GPU, xid_meaning
from exporter.model.xids import REVOKED_BY, XIDS, XidClass

_LAST = "gpuslice_gpu_xid_last_timestamp_seconds"
_TOTAL = "gpuslice_gpu_xid_code_errors_total"
_SAME = "on (cluster, uuid, mig_uuid, xid)"
# Reported whenever a process is killed, as at the end of many pods.
_WORK_REMOVED = 45
_FAULT = f'class="application", xid!="{_WORK_REMOVED}"'


class _Kind(NamedTuple):
    """The texts of a class of codes."""

    name: str
    severity: Severity
    consequence: str
    advice: str


_KINDS: Mapping[XidClass, _Kind] = {
    "hardware": _Kind(
        "XidHardware",
        "warning",
        "its hardware needs attention",
        "The GPU keeps working; watch for further errors.",
    ),
    "driver": _Kind("XidDriver", "info", "a driver error", "Watch whether it recurs."),
}


def error_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _of_kind("hardware", numbers.xid_window),
        _of_kind("driver", numbers.xid_window),
        _unknown(numbers.xid_window),
        _application(numbers.xid_window),
        _burst(numbers.xid_burst),
        _corrected(numbers.ecc_corrected_per_hour),
        _fabric(numbers.fabric_for),
        _pcie_replays(numbers.pcie_replays_per_minute),
    )


def _of_kind(kind: XidClass, window: str) -> Alert:
    texts = _KINDS[kind]
    revoked = (_revoked(code, window) for code in _codes(kind) if code in REVOKED_BY)
    return Alert(
        name=texts.name,
        expr=f"\nunless {_SAME} ".join([_recent(f'class="{kind}"', window), *revoked]),
        severity=texts.severity,
        summary=f"XID {{{{ $labels.xid }}}} on {SHORT_GPU}: {texts.consequence}",
        description=_text(xid_meaning(_codes(kind)), texts.advice),
        dashboard=GPU_BOARD,
    )


def _unknown(window: str) -> Alert:
    return Alert(
        name="XidUnknown",
        expr=_recent('class="unknown"', window),
        severity="warning",
        summary=f"XID {{{{ $labels.xid }}}} on {SHORT_GPU}: an unknown error",
        description=_text(
            "This code is not in the exporter's table; new drivers have new codes.",
            "Check the kernel log (NVRM: Xid) and NVIDIA's XID catalog.",
        ),
        dashboard=GPU_BOARD,
    )


def _application(window: str) -> Alert:
    shared = " or ".join(f"max_over_time(gpuslice_{of}_holders[{window}]) > 1" for of in ("gpu", "mig"))
    recent = _recent(_FAULT, window)
    return Alert(
        name="XidApplication",
        expr=f"{recent}\nand on (cluster, uuid, mig_uuid) ({shared})",
        severity="warning",
        summary=f"XID {{{{ $labels.xid }}}} on {SHORT_GPU}, which several pods share",
        description=_text(
            xid_meaning([code for code in _codes("application") if code != _WORK_REMOVED]),
            "One of them faulted, and this may have ended the work of the others, as with MPS. Check the "
            "logs of all of them, and ask the owner of the one that faulted.",
        ),
        dashboard=GPU_BOARD,
    )


def _burst(many: float) -> Alert:
    total = f"{_TOTAL}{{{_FAULT}}}"
    # A code that came up within the hour rose from nothing, if the GPU was watched before.
    new = f"({total} unless {total} offset 1h) and on (cluster, uuid, instance) gpuslice_gpu_up offset 1h"
    rise = f"{new} or increase({total}[1h])"
    return Alert(
        name="XidApplicationBurst",
        expr=by_gpu(f"sum without (class, xid, mig_uuid) ({rise})") + f" >= {many:g}",
        severity="info",
        summary=f"Processes on {SHORT_GPU} fault repeatedly",
        description=f"{GPU} reported {ROUNDED} XIDs caused by processes within an hour. Pods on it: {PODS}. "
        "Usually one of them crashes and restarts: check their restarts and logs. If programs "
        "fault that run well elsewhere, suspect the GPU.",
        dashboard=GPU_BOARD,
    )


def _codes(kind: XidClass) -> list[int]:
    return [xid.code for xid in XIDS.values() if xid.kind == kind]


def _recent(matcher: str, window: str) -> str:
    """Return the time of the last error of each code, by GPU or MIG device, for a window after it."""
    return f"{_last(matcher, window)}\n> time() - {seconds(window):g}"


def _revoked(code: int, window: str) -> str:
    """Return the errors of a code that its revocation followed."""
    revoked = f"""label_replace({_last(f'xid="{REVOKED_BY[code]}"', window)}, "xid", "{code}", "", "")"""
    return f"""{_last(f'xid="{code}"', window)} < {_SAME} {revoked}"""


def _last(matcher: str, window: str) -> str:
    return by_gpu(f"last_over_time({_LAST}{{{matcher}}}[{window}])", "mig_uuid", "xid")


def _text(meaning: str, advice: str) -> str:
    return (
        f"{meaning} {GPU}{ON_MIG} reported XID {{{{ $labels.xid }}}} at "
        f"{{{{ $value | humanizeTimestamp }}}}. Pods on it then or now: {PODS_THEN}. {advice} All codes: "
        "docs/xids.md."
    )


def _corrected(per_hour: float) -> Alert:
    errors = 'gpuslice_gpu_ecc_errors_total{severity="corrected", scope="volatile"}'
    return Alert(
        name="EccCorrectedRate",
        expr=f"{by_gpu(f'increase({errors}[1h])')} > {per_hour:g}",
        severity="info",
        summary=f"{SHORT_GPU} corrects many memory errors",
        description=f"{GPU} corrected {ROUNDED} memory errors within an hour. No data is wrong. Pods on it: "
        f"{PODS}. Watch for uncorrectable errors.",
        dashboard=GPU_BOARD,
    )


def _fabric(hold: str) -> Alert:
    return Alert(
        name="FabricFailed",
        expr=by_gpu('gpuslice_gpu_fabric_info{fabric=~"failed|in_progress"}', "fabric"),
        hold=hold,
        severity="critical",
        summary=f"{SHORT_GPU} has not joined its NVSwitch fabric",
        description=f"{GPU} has not joined the NVSwitch fabric for {hold}: {{{{ $labels.fabric }}}}. CUDA "
        f"does not start on it. Pods on it: {PODS}. Check the fabric manager of the node: it "
        "must run and match the driver version.",
        dashboard=GPU_BOARD,
    )


def _pcie_replays(per_minute: float) -> Alert:
    return Alert(
        name="PcieReplays",
        expr=f"{by_gpu('rate(gpuslice_gpu_pcie_replays_total[10m])')} * 60 > {per_minute:g}",
        severity="warning",
        summary=f"The PCIe link of {SHORT_GPU} has many replays",
        description=f"The PCIe link of {GPU} resent {ROUNDED} packets per minute over the last 10 minutes. "
        f"Pods on it: {PODS}. The link is bad and may fail. Check the seat of the board, its "
        "riser, and the kernel log for PCIe errors.",
        dashboard=GPU_BOARD,
    )
