"""Alerts on containers that hold a device without using it, or take from others on it."""

from itertools import pairwise

from alerts.model import NODE_BOARD, TENANT_BOARD, Alert
from alerts.records import (
    CONTENDED,
    DEVICE,
    FILLED,
    HELD_BYTES,
    HELD_GPUS,
    IDLE,
    IDLE_SECONDS,
    LIMITED,
    SHARED,
    SLICES,
    USED_BYTES,
    USED_GPUS,
)
from alerts.thresholds import SharingThresholds
from alerts.windows import seconds
from alerts.wording import (
    BYTES,
    HOLDER,
    OTHERS,
    PERCENT,
    PLACE,
    PODS,
    SHORT_GPU,
    TIME,
    bytes_of_row,
    compute_p95,
    memory_peak,
    most_grown,
    share_of_row,
)

_GPU = "cluster, node, uuid"
# Of some processes only the pod is known, and not the container.
_BY_POD = f"{_GPU}, namespace, pod"
_COMPUTED = f'{USED_GPUS}{{mig_uuid=""}}'
_ALL_COMPUTED = f"sum by ({_GPU}) ({_COMPUTED})"
_HOUR = 3600
_NAMESPACE = "namespace:gpuslice_"


def sharing_alerts(numbers: SharingThresholds) -> tuple[Alert, ...]:
    """Return the alerts that are evaluated often."""
    return (
        _idle(numbers),
        _idle_holding_memory(numbers),
        _over_fair_share(numbers),
        _over_limit(numbers),
        _use_without_holding(numbers),
        _noisy_neighbour(numbers),
        _pressure(numbers),
        _will_exhaust(numbers),
    )


def _idle(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="HolderIdle",
        # Idle holders that keep memory have the next alert instead.
        expr=f"{IDLE_SECONDS} and {IDLE} == 1\nunless {USED_BYTES} > {numbers.idle_memory_bytes:.0f}",
        severity="info",
        summary=f"{HOLDER} has not computed on {SHORT_GPU} for {TIME}",
        description=f"{HOLDER} holds {PLACE}, or a part of it, and has computed nothing on it for {TIME}; "
        "no other pod can get this slice meanwhile. If its work is done, delete the pod or "
        "scale it down; if it waits for requests, a smaller slice may be enough.",
        dashboard=TENANT_BOARD,
    )


def _idle_holding_memory(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="HolderIdleHoldingMemory",
        expr=f"{USED_BYTES} > {numbers.idle_memory_bytes:.0f} and {IDLE} == 1",
        severity="warning",
        summary=f"{HOLDER} keeps {BYTES} of {SHORT_GPU} but does not compute",
        description=f"{HOLDER} has computed nothing on {PLACE} for more than {numbers.idle_after}, but "
        f"keeps {BYTES} of its memory. The memory is freed when its process ends: stop leftover "
        "processes, such as the kernel of a notebook, or delete the pod.",
        dashboard=TENANT_BOARD,
    )


def _over_fair_share(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="OverFairShare",
        expr=f"{USED_BYTES} / {HELD_BYTES} > {numbers.fair_share_ratio:g}\n"
        f"and {LIMITED} == 0 and on ({DEVICE}) {SHARED}",
        severity="warning",
        hold=numbers.fair_share_for,
        summary=f"{HOLDER} uses {PERCENT} of its share of memory on {SHORT_GPU}",
        description=f"{HOLDER} uses {bytes_of_row(USED_BYTES)} of {PLACE}, where its share is "
        f"{bytes_of_row(HELD_BYTES)} and is not enforced. The excess is missing for the "
        f"other holders: {OTHERS}. Let it allocate less, or give it more slices.",
        dashboard=NODE_BOARD,
    )


def _over_limit(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="OverLimit",
        expr=f"{USED_BYTES} / {HELD_BYTES} > {numbers.limit_ratio:g} and {LIMITED} == 1",
        severity="warning",
        hold=numbers.limit_for,
        summary=f"{HOLDER} uses {PERCENT} of its memory limit on {SHORT_GPU}: the limit is not enforced",
        description=f"{HOLDER} uses {bytes_of_row(USED_BYTES)} of {PLACE}, where its limit is "
        f"{bytes_of_row(HELD_BYTES)}. The limit is not enforced. Other holders of the "
        f"device: {OTHERS}. Check whether the limiting library is loaded in the container, and "
        "how many processes it has.",
        dashboard=NODE_BOARD,
    )


def _use_without_holding(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="UseWithoutHolding",
        expr=f"{USED_BYTES} > {numbers.unheld_memory_bytes:.0f} and {SLICES} == 0",
        severity="warning",
        hold=numbers.unheld_for,
        summary=f"{HOLDER} uses {BYTES} of {SHORT_GPU} without holding any of it",
        description=f"{HOLDER} uses {BYTES} of {PLACE}, which is not allocated to it: the scheduler does "
        "not know of this use, and the holders of the device have less than they are entitled "
        f"to. Holders: {OTHERS}. Let it request a slice, or remove its access to the device "
        "(NVIDIA_VISIBLE_DEVICES, privileged mode, host paths).",
        dashboard=NODE_BOARD,
    )


def _noisy_neighbour(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="NoisyNeighbour",
        expr=f"{_COMPUTED} / on ({_GPU}) group_left {_ALL_COMPUTED} > {numbers.noisy_share_ratio:g}\n"
        f"and on ({_GPU}) {_ALL_COMPUTED} > {numbers.noisy_busy_ratio:g}\n"
        f"and on ({_GPU}) count by ({_GPU}) ({_COMPUTED} > {numbers.noisy_neighbour_ratio:g}) > 1\n"
        f"unless on ({_BY_POD}) sum by ({_BY_POD}) ({HELD_GPUS}) >= sum by ({_BY_POD}) ({_COMPUTED})",
        severity="info",
        hold=numbers.noisy_for,
        summary=f"{HOLDER} uses {PERCENT} of the compute in use on {SHORT_GPU}",
        description=f"{HOLDER} uses {PERCENT} of the compute in use on {PLACE}, which is always busy and "
        f"where other pods compute too; it is entitled to {share_of_row(HELD_GPUS)} of "
        f"the GPU. Other pods there may be slow because of it: {OTHERS}. Move one of them, or "
        "share the GPU in a way that limits compute (MPS, MIG).",
        dashboard=NODE_BOARD,
    )


def _pressure(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="SharedMemoryPressure",
        expr=f"{FILLED} > {numbers.pressure_ratio:g} and {CONTENDED}",
        severity="warning",
        hold=numbers.pressure_for,
        summary=f"{PERCENT} of the memory of {SHORT_GPU} is used, and several containers share it",
        description=f"{PERCENT} of the memory of {PLACE} is used, and not all of its holders have limits "
        "that fit into it: the next container that allocates runs out of memory, whichever uses "
        f"most. Pods on it: {PODS}. Move one of them, or make it allocate less.",
        dashboard=NODE_BOARD,
    )


def _will_exhaust(numbers: SharingThresholds) -> Alert:
    span = int(seconds(numbers.exhaust_span))
    steps = seconds(numbers.exhaust_within) / span
    filled = [f"{FILLED} offset {span * ago}s" if ago else FILLED for ago in range(4)]
    # Growth must be seen in each step: a model that is loaded is a single one.
    growth = "\n".join(
        f"and {now} - {before} > (1 - {FILLED}) / {steps:g}" for now, before in pairwise(filled)
    )
    return Alert(
        name="SharedMemoryWillExhaust",
        expr=f"(1 - {FILLED}) * {3 * span} / ({filled[0]} - {filled[3]})\n{growth}\n"
        f"and {FILLED} > {numbers.exhaust_ratio:g} <= {numbers.pressure_ratio:g} and {CONTENDED}",
        severity="info",
        summary=f"The memory of {SHORT_GPU} will be full in about {TIME}",
        description=f"If it grows as in the last {3 * span // 60} minutes, the memory of {PLACE} is full in "
        f"about {TIME}, and the next container that allocates runs out of memory. Largest "
        f"growth: {most_grown(USED_BYTES, f'{3 * span}s')}. Pods on it: {PODS}.",
        dashboard=NODE_BOARD,
    )


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
