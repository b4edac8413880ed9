"""Alerts about devices that several containers hold: noisy neighbours, and memory that runs out."""

from itertools import pairwise

from alerts.groups.sharing_numbers import SharingThresholds
from alerts.groups.sharing_words import OTHERS, PLACE, TIME, most_grown, share_of_row
from alerts.model import NODE_BOARD, Alert
from alerts.records import CONTENDED, FILLED, HELD_GPUS, USED_BYTES, USED_GPUS
from alerts.windows import seconds
from alerts.wording import HOLDER, PERCENT, PODS, SHORT_GPU

_GPU = "cluster, node, uuid"
# Of some processes only the pod is known, and not the container.
_POD = f"{_GPU}, namespace, pod"
_COMPUTED = f'{USED_GPUS}{{mig_uuid=""}}'
_ALL_COMPUTED = f"sum by ({_GPU}) ({_COMPUTED})"


def device_alerts(numbers: SharingThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (_noisy_neighbour(numbers), _pressure(numbers), _will_exhaust(numbers))


def _noisy_neighbour(numbers: SharingThresholds) -> Alert:
    return Alert(
        name="NoisyNeighbour",
        expr=f"{_COMPUTED} / on ({_GPU}) group_left {_ALL_COMPUTED} > {numbers.noisy_share_ratio:g}\n"
        f"and on ({_GPU}) {_ALL_COMPUTED} > {numbers.noisy_busy_ratio:g}\n"
        f"and on ({_GPU}) count by ({_GPU}) ({_COMPUTED} > {numbers.noisy_neighbour_ratio:g}) > 1\n"
        f"unless on ({_POD}) sum by ({_POD}) ({HELD_GPUS}) >= sum by ({_POD}) ({_COMPUTED})",
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
