"""Alerts about single containers that are idle, or use more than they hold."""

from alerts.groups.sharing_numbers import SharingThresholds
from alerts.groups.sharing_words import BYTES, OTHERS, PLACE, TIME, bytes_of_row
from alerts.model import NODE_BOARD, TENANT_BOARD, Alert
from alerts.records import (
    DEVICE,
    HELD_BYTES,
    IDLE,
    IDLE_SECONDS,
    LIMITED,
    SHARED,
    SLICES,
    USED_BYTES,
)
from alerts.wording import HOLDER, PERCENT, SHORT_GPU


def holder_alerts(numbers: SharingThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _idle(numbers),
        _idle_holding_memory(numbers),
        _over_fair_share(numbers),
        _over_limit(numbers),
        _use_without_holding(numbers),
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
