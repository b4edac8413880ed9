"""States of holders, and the words for them."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from exporter.model import ContainerRow, Snapshot
from exporter.model.kubelet import is_unhealthy

# Compute activity of a holder; unknown if its compute is not measured.
HolderActivity: TypeAlias = Literal["active", "quiet", "idle", "unknown"]

HolderState: TypeAlias = Literal[
    "active",
    "quiet",
    "idle",
    "idle-memory",
    "over-share",
    "over-notional",
    "unheld",
    "unknown",
    "unhealthy",
    "contested",
]

# Words for each state on pages.
STATE_WORDS: Mapping[HolderState, str] = {
    "active": "active",
    "quiet": "quiet",
    "idle": "idle",
    "idle-memory": "idle, holding memory",
    "over-share": "over its share",
    "over-notional": "over its notional share",
    "unheld": "uses without holding",
    "unknown": "unknown",
    # These two are never the only state.
    "unhealthy": "slice reported unhealthy",
    "contested": "device held twice",
}

ACTIVE_SECONDS = 60.0  # time after its last compute use for which a holder is still active

# The driver reports use in whole percents, so use within one percent is not above the share.
_COMPUTE_RESOLUTION = 0.01


class Judgement(NamedTuple):
    """The state of a holder."""

    state: HolderState
    activity: HolderActivity
    # Seconds since its last compute use or the start of monitoring; 0 while it computes, None if unmeasured.
    not_computed_for: float | None
    also: tuple[HolderState, ...] = ()  # other states that it is in, which ``state`` takes precedence over

    @property
    def states(self) -> tuple[HolderState, ...]:
        """All of its states, ``state`` first."""
        return (self.state, *self.also)

    @property
    def quiet_for(self) -> float | None:
        """Seconds without compute use of a quiet or idle holder; None for others."""
        return self.not_computed_for if self.activity in ("quiet", "idle") else None


def judge_holder(
    row: ContainerRow, now: float, idle_after: float = 600.0, *, contested: bool = False
) -> Judgement:
    """Return the state of a holder at Unix time ``now``.

    ``contested`` is whether it shares a device with another holder that each of them should have alone.

    It is active while it computes and for ACTIVE_SECONDS after that, then quiet, and idle after
    ``idle_after`` seconds without compute use. A holder that has never computed is not active.

    Use without a slice takes precedence, then use above an enforced share. A share that is not enforced is
    notional: a holder may use compute that others leave, so only memory above it is a state, as others lack
    that memory. An idle holder is first idle, and also over its notional share. No state hides another one:
    what deserves attention is in ``also``.
    """
    activity, seconds = _activity(row, now, idle_after)
    state, *also = _states(row, activity)
    if is_unhealthy(row.health):
        also.append("unhealthy")
    if contested:
        also.append("contested")
    return Judgement(state, activity, seconds, tuple(also))


def judge_row(snapshot: Snapshot, row: ContainerRow, idle_after: float = 600.0) -> Judgement:
    """Return the state of a holder of a snapshot at the time of its poll."""
    contested = row.holder in snapshot.node.contested.get(row.device, ())
    return judge_holder(row, snapshot.timestamp, idle_after, contested=contested)


def _activity(row: ContainerRow, now: float, idle_after: float) -> tuple[HolderActivity, float | None]:
    if row.compute_used:
        return "active", 0.0
    totals = row.totals
    if row.compute_used is None or totals is None or totals.last_active is None:
        return "unknown", None
    seconds = max(now - totals.last_active, 0.0)
    if seconds >= idle_after:
        return "idle", seconds
    return "active" if totals.seen_computing and seconds < ACTIVE_SECONDS else "quiet", seconds


def _states(row: ContainerRow, activity: HolderActivity) -> Iterator[HolderState]:
    above, idle = _above(row), activity == "idle"
    resting: HolderState = "idle-memory" if idle and row.memory_used else activity
    if above is None:
        yield resting
    elif not idle:
        yield above
    else:
        yield from (resting, above) if above == "over-notional" else (above, resting)


def _above(row: ContainerRow) -> HolderState | None:
    """Return how a container uses more than it holds; None if it does not."""
    if row.slices == 0:
        return "unheld"
    enforced, over_memory = row.isolation != "none", _exceeds(row.memory_used, row.memory_entitled)
    # A limit of MPS is a part of the multiprocessors; the share of time with a kernel may be above it.
    # Nothing limits the compute of a container with a limit of its cgroup's memory.
    limits_compute = row.sharing != "mps" and not (row.isolation == "hard" and row.memory_limit is not None)
    over_compute = limits_compute and _exceeds(row.compute_used, row.compute_entitled, _COMPUTE_RESOLUTION)
    if enforced and (over_memory or over_compute):
        return "over-share"
    return "over-notional" if not enforced and over_memory else None


def _exceeds(used: float | None, share: float | None, resolution: float = 0) -> bool:
    return used is not None and share is not None and used - share > resolution
