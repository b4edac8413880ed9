"""Alerts about devices that several containers hold: noisy neighbours, and memory that runs out."""

from itertools import pairwise

from alerts.groups.sharing_holders import SHARED
from alerts.groups.sharing_numbers import SharingThresholds
from alerts.groups.sharing_words import OTHERS, PLACE, TIME, most_grown, share_of_row
from alerts.model import NODE_BOARD, Alert
from alerts.promql import CONTAINER_SLICES, DEVICE, of_holder, on_gpu
from alerts.recording.containers import HELD, USED
from alerts.recording.isolation import LIMITED
from alerts.recording.windows import seconds
from alerts.wording import HOLDER, PERCENT, PODS, SHORT_GPU

_SLICE = f"{DEVICE}, mig_uuid"
# Of some processes only the pod is known, and not the container.
_POD = f"{DEVICE}, namespace, pod"
_COMPUTED = f'{USED["compute"]}{{mig_uuid=""}}'
_ALL_COMPUTED = f"sum by ({DEVICE}) ({_COMPUTED})"
# Where the driver does not report reserved memory, it is part of the used.
_FREE_OF = (
    "gpuslice_{0}_memory_total_bytes - gpuslice_{0}_memory_used_bytes"
    " - (gpuslice_{0}_memory_reserved_bytes or 0 * gpuslice_{0}_memory_used_bytes)"
)
_FREE = f"({_FREE_OF.format('gpu')} or {_FREE_OF.format('mig')})"
# If every holder has a limit, and all limits fit into the device, none can take memory from another; then a
# framework that allocates all of its share at once does no harm.
_CONTENDED = (
    f"(\n"
    f"  {SHARED}\n"
    f"  and on ({_SLICE}) (\n"
    f"    {LIMITED} == 0\n"
    f"    or ({CONTAINER_SLICES} > 0 unless {HELD['memory']})\n"
    f"    or (\n"
    f'      sum by ({_SLICE}) ({HELD["memory"]}{{mig_uuid=""}})\n'
    f"      > on ({DEVICE}) group_left max by ({DEVICE}) (gpuslice_gpu_memory_total_bytes)\n"
    f"    )\n"
    f"  )\n"
    f")"
)


def device_alerts(numbers: SharingThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (_noisy_neighbour(numbers), _pressure(numbers), _will_exhaust(numbers))


def _noisy_neighbour(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="NoisyNeighbour",
        expr=of_holder(
            f"{_COMPUTED} / on ({DEVICE}) group_left {_ALL_COMPUTED} > {numbers.noisy_share_ratio:g}\n"
            f"and on ({DEVICE}) {_ALL_COMPUTED} > {numbers.noisy_busy_ratio:g}\n"
            f"and on ({DEVICE}) count by ({DEVICE}) ({_COMPUTED} > {numbers.noisy_neighbour_ratio:g}) > 1\n"
            f"unless on ({_POD}) sum by ({_POD}) ({HELD['compute']}) >= sum by ({_POD}) ({_COMPUTED})"
        ),
        severity="info",
        hold=numbers.noisy_for,
        summary=f"{HOLDER} uses {PERCENT} of the compute in use on {SHORT_GPU}",
        description=f"{HOLDER} uses {PERCENT} of the compute in use on {PLACE}, which is always busy and "
        f"where other pods compute too; it is entitled to {share_of_row(HELD['compute'])} of "
        f"the GPU. Other pods there may be slow because of it: {OTHERS}. Move one of them, or "
        "share the GPU in a way that limits compute (MPS, MIG).",
        dashboard=NODE_BOARD,
    )


def _pressure(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="SharedMemoryPressure",
        expr=f"{on_gpu(f'{_filled()} > {numbers.pressure_ratio:g}')}\nand on ({_SLICE}) {_CONTENDED}",
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
    used = [_used(f" offset {span * ago}s" if ago else "") for ago in range(4)]
    # Growth must be seen in each step: a model that is loaded is a single one.
    growth = "\n".join(f"and {now} - {before} > {_FREE} / {steps:g}" for now, before in pairwise(used))
    return Alert(
        name="SharedMemoryWillExhaust",
        expr=on_gpu(
            f"{_FREE} * {3 * span} / ({used[0]} - {used[3]})\n"
            f"{growth}\n"
            f"and {_filled()} > {numbers.exhaust_ratio:g}\n"
            f"and {_filled()} <= {numbers.pressure_ratio:g}"
        )
        + f"\nand on ({_SLICE}) {_CONTENDED}",
        severity="info",
        summary=f"The memory of {SHORT_GPU} will be full in about {TIME}",
        description=f"If it grows as in the last {3 * span // 60} minutes, the memory of {PLACE} is full in "
        f"about {TIME}, and the next container that allocates runs out of memory. Largest "
        f"growth: {most_grown(USED['memory'], f'{3 * span}s')}. Pods on it: {PODS}.",
        dashboard=NODE_BOARD,
    )


def _used(offset: str = "") -> str:
    return f"(gpuslice_gpu_memory_used_bytes{offset} or gpuslice_mig_memory_used_bytes{offset})"


def _filled() -> str:
    """Return used by usable memory of each device; memory reserved by the driver is in neither."""
    return f"{_used()} / ({_used()} + {_FREE})"
