"""Alerts on GPUs that are slowed down, hot, or need a recovery."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.promql import DEVICE, on_gpu
from alerts.wording import GPU, PERCENT, PODS, SHORT_GPU

_ACTIVE = "gpuslice_gpu_clock_event_active"


def health_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _recovery(numbers.recovery_for),
        _hardware_slowdown(numbers.slowdown_window, numbers.slowdown_share),
        _thermal_slowdown(numbers.thermal_window, numbers.thermal_share),
        _temperature(numbers.temperature_margin, numbers.temperature_for),
    )


def _recovery(hold: str) -> Alert:
    return Alert(
        name="RecoveryActionNeeded",
        expr=on_gpu('gpuslice_gpu_recovery_action{action!="none"} == 1'),
        hold=hold,
        severity="warning",
        summary=f"The driver requests {{{{ $labels.action }}}} for {SHORT_GPU}",
        description=f"{GPU} needs a recovery, according to its driver: "
        "{{ $labels.action }}."
        "{{ with query (printf `gpuslice_gpu_row_remap_pending{uuid=%q} == 1` $labels.uuid) }} "
        f"Bad memory is retired by that, not before.{{{{ end }}}} Pods on it: {PODS}. Keep new "
        "pods off it and follow the runbook for that action.",
        dashboard=GPU_BOARD,
    )


def _share_of_time(reasons: str, window: str, share: float) -> str:
    """Return the share of a window in which a reason limited the clocks, of series as old as the window.

    A reason comes and goes within seconds, so the expression looks at a mean. A mean of the first few samples
    is not meaningful, and is left out.
    """
    series = f'{_ACTIVE}{{reason=~"{reasons}"}}'
    return f"avg_over_time({series}[{window}]) > {share:g}\nand\n{series} offset {window}"


def _hardware_slowdown(window: str, share: float) -> Alert:
    return Alert(
        name="HardwareSlowdown",
        expr=on_gpu(_share_of_time("hardware_thermal|power_brake", window, share)),
        severity="warning",
        summary=f"{SHORT_GPU} is slowed down by its hardware",
        description=f"{GPU} was slowed down by {{{{ $labels.reason }}}} for {PERCENT} of the last {window}, "
        f"and runs at half its clocks or less during that time. Pods on it: {PODS}. Check the "
        "cooling of the node (hardware_thermal) or its power supplies (power_brake).",
        dashboard=GPU_BOARD,
    )


def _thermal_slowdown(window: str, share: float) -> Alert:
    return Alert(
        name="ThermalSlowdown",
        expr=on_gpu(_share_of_time("software_thermal", window, share)),
        severity="info",
        summary=f"{SHORT_GPU} lowers its clocks because of heat",
        description=f"The driver lowered the clocks of {GPU} because of heat for {PERCENT} of the last "
        f"{window}. Pods on it: {PODS}. They run slower than they could: check the cooling of "
        "the node.",
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
