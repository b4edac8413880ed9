"""The state of a holder, in one of the words that the page, the text twin and the filters use."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from exporter.model import ContainerRow

HolderState: TypeAlias = Literal[
    "active", "idle", "idle-memory", "over-share", "over-notional", "unheld", "unknown"
]

STATE_WORDS: Mapping[HolderState, str] = {
    "active": "active",
    "idle": "idle",
    "idle-memory": "idle, holding memory",
    "over-share": "over its share",
    "over-notional": "over its notional share",
    "unheld": "uses without holding",
    "unknown": "unknown",
}
"""What a person reads for each state."""

# The driver counts use in whole percents, so a use within one of them is not more than the share.
_COMPUTE_RESOLUTION = 0.01


def holder_state(row: ContainerRow, now: float, idle_after: float = 600.0) -> HolderState:
    """Judge a holder at Unix time ``now``; it is idle after ``idle_after`` seconds without compute.

    Use without a slice comes first, then use beyond a share that somebody enforces; ``unknown`` where its
    compute cannot be measured. A holder that has not been quiet for long enough yet is active. A share that
    nobody enforces is notional: compute that others leave is there to be used, so only memory beyond it,
    which others then lack, is told, and of a holder that is not idle.
    """
    if row.slices == 0:
        return "unheld"
    enforced = row.isolation != "none"
    if enforced and (_over_memory(row) or _over_compute(row)):
        return "over-share"
    state = "active" if row.compute_used else _quiet_state(row, idle_seconds(row, now), idle_after)
    if not enforced and state in ("active", "unknown") and _over_memory(row):
        return "over-notional"
    return state


def idle_seconds(row: ContainerRow, now: float) -> float | None:
    """Tell for how many seconds a holder has not computed; None where its compute cannot be measured."""
    if row.compute_used is None or row.totals is None or row.totals.last_active is None:
        return None
    return max(now - row.totals.last_active, 0.0)


def _quiet_state(row: ContainerRow, quiet_for: float | None, idle_after: float) -> HolderState:
    if quiet_for is None:
        return "unknown"
    if quiet_for < idle_after:
        return "active"
    return "idle-memory" if row.memory_used else "idle"


def _over_memory(row: ContainerRow) -> bool:
    return (
        row.memory_used is not None
        and row.memory_entitled is not None
        and row.memory_used > row.memory_entitled
    )


def _over_compute(row: ContainerRow) -> bool:
    return (
        row.compute_used is not None
        and row.compute_entitled is not None
        and row.compute_used - row.compute_entitled > _COMPUTE_RESOLUTION
    )
