"""Alerts on memory errors of GPUs and their repair."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.promql import DEVICE, on_gpu
from alerts.wording import GPU, PODS, ROUNDED, SHORT_GPU


def memory_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _uncorrected(),
        _corrected(numbers.ecc_corrected_per_hour),
        _remap_failure(),
        _repair_pending(numbers.repair_pending_for),
        _spares_low(),
    )


def _uncorrected() -> Alert:
    return Alert(
        name="EccUncorrected",
        # The label severity of the series would clash with that of the alert.
        expr=on_gpu(
            "sum without (severity, scope) (\n"
            '  gpuslice_gpu_ecc_errors_total{severity="uncorrected", scope="volatile"}\n'
            ") > 0"
        ),
        severity="warning",
        summary=f"{SHORT_GPU} had uncorrectable memory errors",
        description=f"{GPU} had {{{{ $value }}}} uncorrectable memory error(s) since its driver was loaded. "
        f"Pods on it: {PODS}. The driver ended the processes that read the data, or they may "
        "have computed with wrong data. Drain the GPU and reset it at a convenient time.",
        dashboard=GPU_BOARD,
    )


def _corrected(per_hour: float) -> Alert:
    return Alert(
        name="EccCorrectedRate",
        expr=on_gpu(
            "sum without (severity, scope) (\n"
            '  increase(gpuslice_gpu_ecc_errors_total{severity="corrected", scope="volatile"}[1h])\n'
            f") > {per_hour:g}"
        ),
        severity="info",
        summary=f"{SHORT_GPU} corrects many memory errors",
        description=f"{GPU} corrected {ROUNDED} memory errors within an hour. No data is wrong. Pods on it: "
        f"{PODS}. Watch for uncorrectable errors.",
        dashboard=GPU_BOARD,
    )


def _remap_failure() -> Alert:
    return Alert(
        name="RowRemapFailure",
        expr=on_gpu("gpuslice_gpu_row_remap_failure == 1"),
        severity="critical",
        summary=f"{SHORT_GPU} cannot repair its memory",
        description=f"{GPU} has a bad memory row and no spare row for it; a reset does not fix that. Pods "
        f"on it: {PODS}. Drain the GPU, take it out of service and have the board replaced.",
        dashboard=GPU_BOARD,
    )


def _repair_pending(hold: str) -> Alert:
    return Alert(
        name="RepairPending",
        # Newer drivers report this as a recovery action, which has its own alert.
        expr=on_gpu(
            "(gpuslice_gpu_row_remap_pending == 1 or gpuslice_gpu_retired_pages_pending == 1)\n"
            f'unless on ({DEVICE}) gpuslice_gpu_recovery_action{{action!="none"}} == 1'
        ),
        hold=hold,
        severity="warning",
        summary=f"{SHORT_GPU} needs a reset to repair its memory",
        description=f"{GPU} has bad memory that is retired at the next reset, and uses it until then. Pods "
        f"on it: {PODS}. Drain the GPU and reset it at a convenient time.",
        dashboard=GPU_BOARD,
    )


def _spares_low() -> Alert:
    return Alert(
        name="RowRemapSparesLow",
        expr=on_gpu('gpuslice_gpu_row_remap_banks{left=~"low|none"} > 0'),
        severity="info",
        summary=f"{SHORT_GPU} has few spare memory rows left",
        description=f"{GPU} has {{{{ $value }}}} memory bank(s) with this level of spare rows: "
        "{{ $labels.left }}. There is no fault yet; another bad row in a bank without spares "
        "cannot be repaired. Have a replacement board ready.",
        dashboard=GPU_BOARD,
    )
