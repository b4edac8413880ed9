"""Alerts about GPUs that were held for a day and hardly used."""

from alerts.groups.sharing_numbers import SharingThresholds
from alerts.groups.sharing_words import PLACE, bytes_of_row, compute_p95, memory_peak
from alerts.model import TENANT_BOARD, Alert
from alerts.records import HELD_BYTES, HELD_GPUS, USED_BYTES, USED_GPUS
from alerts.windows import seconds
from alerts.wording import HOLDER, PERCENT, SHORT_GPU

_HOUR = 3600
_NAMESPACE = "namespace:gpuslice_"


def daily_alerts(numbers: SharingThresholds) -> tuple[Alert, ...]:
    """Return the alerts, which look back a day and are evaluated less often."""
    return (_namespace_waste(numbers), _underused(numbers))


def _namespace_waste(numbers: SharingThresholds) -> Alert:
    over, held_most = numbers.waste_over, numbers.waste_held_gpus * seconds(numbers.waste_over) / _HOUR
    held, used = _gpu_hours("measured", over), _gpu_hours("used", over)
    return Alert(
        name="NamespaceWaste",
        expr=f"{used} / ({held} >= {held_most:g}) < {numbers.waste_efficiency_ratio:g}\n"
        f"and last_over_time({_NAMESPACE}measured_gpu_seconds:increase1h[1h] offset {over})\n"
        "and namespace:gpuslice_holders:sum > 0",
        severity="info",
        summary=(
            f"Namespace {{{{ $labels.namespace }}}} used {PERCENT} of the GPU time that it held for {over}"
        ),
        description=f"Of {_of_namespace(held)} GPU-hours that namespace {{{{ $labels.namespace }}}} held in "
        f"the last {over} and whose use is measured, it used {_of_namespace(used)}, which is "
        f"{PERCENT}. Its dashboard shows which pods hold most; ask its owners to hold fewer or "
        "smaller slices.",
        dashboard=TENANT_BOARD,
    )


def _gpu_hours(what: str, over: str) -> str:
    """Return the sum of the hourly records, in GPU-hours.

    Without the offset, a window that ends on the hour would have one record too many.
    """
    return f"(sum_over_time({_NAMESPACE}{what}_gpu_seconds:increase1h[{over}:1h] offset 1m) / {_HOUR})"


def _of_namespace(hours: str) -> str:
    """Return a template of a number of the alert's namespace."""
    asked = hours.replace("[", "{cluster=%q,namespace=%q}[")
    return (
        f"{{{{ with query (printf `{asked}` $labels.cluster $labels.namespace) }}}}"
        '{{ . | first | value | printf "%.1f" }}{{ end }}'
    )


def _underused(numbers: SharingThresholds) -> Alert:
    over, ratio = numbers.underused_over, numbers.underused_ratio
    memory, compute = (f"max_over_time({record}[{over}])" for record in (USED_BYTES, USED_GPUS))
    return Alert(
        name="SliceUnderused",
        expr=f"{memory} / ({HELD_BYTES} > {numbers.underused_held_bytes:.0f}) < {ratio:g}\n"
        f"and last_over_time({USED_BYTES}[1h] offset {over})\n"
        # A holder that never computes is idle; one that computes much needs the slice for that.
        f"and {compute} > 0 unless {compute} / {HELD_GPUS} >= {ratio:g}",
        severity="info",
        summary=f"{HOLDER} has used at most {PERCENT} of its memory on {SHORT_GPU}",
        description=f"In the last {over}, {HOLDER} has never used more than {PERCENT} of the "
        f"{bytes_of_row(HELD_BYTES)} of memory that it holds of {PLACE}, nor much of its "
        "compute: a smaller slice would be enough, such as a smaller MIG profile or a part of a "
        f"shared GPU.{memory_peak()}{compute_p95(over)} Its page at the exporter of its node says which "
        "slice would fit it.",
        dashboard=TENANT_BOARD,
    )
