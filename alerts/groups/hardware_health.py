"""Alerts on GPUs that are hot or wait for a first step of a recovery."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.promql import DEVICE, on_gpu
from alerts.wording import GPU, PODS, SHORT_GPU
from exporter.model.condition_signs import REBOOTS, RESETS
from exporter.model.readings import RECOVERY_ACTIONS

# Actions after which the driver reports the next one; the others are conditions of the GPU.
_FIRST_STEPS = "|".join(action for action in RECOVERY_ACTIONS if action not in {"none", *RESETS, *REBOOTS})


def health_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _recovery(numbers.recovery_for),
        _temperature(numbers.temperature_margin, numbers.temperature_for),
    )


def _recovery(hold: str) -> Alert:
    return Alert(
        name="RecoveryActionNeeded",
        expr=on_gpu(f'gpuslice_gpu_recovery_action{{action=~"{_FIRST_STEPS}"}} == 1'),
        hold=hold,
        severity="warning",
        summary=f"The driver requests {{{{ $labels.action }}}} for {SHORT_GPU}",
        description=f"{GPU} needs a recovery, according to its driver: "
        "{{ $labels.action }}. "
        f"Pods on it: {PODS}. Keep new "
        "pods off it and follow the runbook for that action.",
        dashboard=GPU_BOARD,
    )


def _temperature(margin: float, hold: str) -> Alert:
    left = (
        "gpuslice_gpu_temperature_limit_margin_celsius\n"
        f"or on ({DEVICE})\n"
        '(gpuslice_gpu_temperature_threshold_celsius{threshold="slowdown"}\n'
        "  - ignoring (threshold) gpuslice_gpu_temperature_celsius)"
    )
    return Alert(
        name="TemperatureNearLimit",
        expr=on_gpu(f"({left})\n< {margin:g}"),
        hold=hold,
        severity="warning",
        summary=f"{SHORT_GPU} is near its temperature limit",
        description=f"{GPU} is {{{{ $value }}}} degrees below its slowdown temperature. Pods on it: {PODS}. "
        "Check the cooling of the node before it slows down.",
        dashboard=GPU_BOARD,
    )
