"""Alerts on errors of the memory of GPUs and on their repair."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.promql import DEVICE, on_gpu
from alerts.wording import GPU, PODS, ROUNDED, SHORT_GPU


def memory_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Give the alerts."""
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
        # The label of the series that is called severity would be taken for the alert's.
        expr=on_gpu(
            "sum without (severity, scope) (\n"
            '  gpuslice_gpu_ecc_errors_total{severity="uncorrected", scope="volatile"}\n'
            ") > 0"
        ),
        severity="warning",
        summary=f"{SHORT_GPU} had memory errors that cannot be corrected",
        description=f"{GPU} had {{{{ $value }}}} such error(s) since its driver was loaded. "
        f"Pods on it: {PODS}. What read the data was ended by the driver, or may have "
        "computed with wrong data. Drain the GPU and reset it when it suits.",
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
        description=f"{GPU} corrected {ROUNDED} memory errors within an hour. No data is "
        f"wrong. Pods on it: {PODS}. See whether errors that cannot be corrected follow.",
        dashboard=GPU_BOARD,
    )


def _remap_failure() -> Alert:
    return Alert(
        name="RowRemapFailure",
        expr=on_gpu("gpuslice_gpu_row_remap_failure == 1"),
        severity="critical",
        summary=f"{SHORT_GPU} cannot repair its memory",
        description=f"{GPU} has a bad row of memory and no spare one for it, which no reset mends. "
        f"Pods on it: {PODS}. Drain the GPU, take it out of use and have the board exchanged.",
        dashboard=GPU_BOARD,
    )


def _repair_pending(hold: str) -> Alert:
    return Alert(
        name="RepairPending",
        # Newer drivers ask for that reset themselves, which has its own alert.
        expr=on_gpu(
            "(gpuslice_gpu_row_remap_pending == 1 or gpuslice_gpu_retired_pages_pending == 1)\n"
            f'unless on ({DEVICE}) gpuslice_gpu_recovery_action{{action!="none"}} == 1'
        ),
        hold=hold,
        severity="warning",
        summary=f"{SHORT_GPU} waits for a reset to repair its memory",
        description=f"{GPU} has bad memory that is taken out of use at the next reset, and works on with it "
        f"until then. Pods on it: {PODS}. Drain the GPU and reset it when it suits.",
        dashboard=GPU_BOARD,
    )


def _spares_low() -> Alert:
    return Alert(
        name="RowRemapSparesLow",
        expr=on_gpu('gpuslice_gpu_row_remap_banks{left=~"low|none"} > 0'),
        severity="info",
        summary=f"{SHORT_GPU} runs out of spare rows of memory",
        description=f"{GPU} has {{{{ $value }}}} bank(s) of memory whose spare rows left are: "
        "{{ $labels.left }}. Nothing is wrong yet; a further bad row in a bank without spares cannot be "
        "repaired. Have a board to exchange it for.",
        dashboard=GPU_BOARD,
    )
