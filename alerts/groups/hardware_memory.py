"""Alerts on memory errors of GPUs."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.subjects import by_gpu
from alerts.wording import GPU, PODS, ROUNDED, SHORT_GPU


def memory_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (_corrected(numbers.ecc_corrected_per_hour),)


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
