"""The state of a holder, in one of the words that the page, the text twin and the filters use."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from exporter.model import ContainerRow

Activity: TypeAlias = Literal["active", "quiet", "idle", "unknown"]
"""Whether a holder computes, as far as that is measured."""

HolderState: TypeAlias = Literal[
    "active", "quiet", "idle", "idle-memory", "over-share", "over-notional", "unheld", "unknown"
]

STATE_WORDS: Mapping[HolderState, str] = {
    "active": "active",
    "quiet": "quiet",
    "idle": "idle",
    "idle-memory": "idle, holding memory",
    "over-share": "over its share",
    "over-notional": "over its notional share",
    "unheld": "uses without holding",
    "unknown": "unknown",
}
"""What a person reads for each state."""

ACTIVE_SECONDS = 60.0
"""For how long a holder that was seen computing is active."""

# The driver counts use in whole percents, so a use within one of them is not more than the share.
_COMPUTE_RESOLUTION = 0.01


class Judgement(NamedTuple):
    """What a holder does.

    ``not_computed_for``: seconds since it was last seen computing, or since it is watched if it never was;
    0 while it computes, None where its compute is not measured.
    """

    state: HolderState
    activity: Activity
    not_computed_for: float | None

    @property
    def quiet_for(self) -> float | None:
        """For how many seconds a quiet or idle holder has not computed; None of others."""
        return self.not_computed_for if self.activity in ("quiet", "idle") else None


def judge(row: ContainerRow, now: float, idle_after: float = 600.0) -> Judgement:
    """Judge a holder at Unix time ``now``; it is idle after ``idle_after`` seconds without compute.

    It is active while it computes and for a minute after that, if it is not idle before, and then quiet. One
    that was never seen computing is quiet from the beginning.

    Use without a slice comes first, then use beyond a share that somebody enforces; ``unknown`` where its
    compute cannot be measured. A share that nobody enforces is notional: compute that others leave is there
    to be used, so only memory beyond it, which others then lack, is told, and of a holder that is not idle.
    """
    activity, seconds = _activity(row, now, idle_after)
    return Judgement(_state(row, activity), activity, seconds)


def _activity(row: ContainerRow, now: float, idle_after: float) -> tuple[Activity, float | None]:
    if row.compute_used:
        return "active", 0.0
    totals = row.totals
    if row.compute_used is None or totals is None or totals.last_active is None:
        return "unknown", None
    seconds = max(now - totals.last_active, 0.0)
    if seconds >= idle_after:
        return "idle", seconds
    return "active" if totals.seen_computing and seconds < ACTIVE_SECONDS else "quiet", seconds


def _state(row: ContainerRow, activity: Activity) -> HolderState:
    if row.slices == 0:
        return "unheld"
    enforced = row.isolation != "none"
    if enforced and (_over_memory(row) or _over_compute(row)):
        return "over-share"
    if not enforced and activity != "idle" and _over_memory(row):
        return "over-notional"
    return "idle-memory" if activity == "idle" and row.memory_used else activity


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
