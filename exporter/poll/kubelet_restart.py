"""The kubelet's list of pods after a restart, until it is complete.

A starting kubelet answers before it knows its pods: first none, then static pods, then the others bit by bit
within about 100 ms. Without its API server it stays at the static pods for as long as that is away. Every
running pod is in a complete list, with devices or without, so a pod that runs and is not listed proves that
the list is incomplete. Until it is complete, allocations of unlisted pods that run are carried over.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from exporter.formats.wording import plural
from exporter.model import Allocations, ContainerRef, PodIdentity, PodName
from exporter.workloads.running import Running

log = logging.getLogger(__name__)
# How many pods a log line names.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """Which pods run. ``running`` are those with processes, None if the process table cannot be searched.

    ``expected`` must run by other evidence. ``starting``: the Pods API reports that the kubelet does not know
    its pods yet.
    """

    running: frozenset[PodName] | None
    expected: frozenset[PodName] = frozenset()
    starting: bool = False


def evidence_of(
    pods: Mapping[str, PodIdentity] | None, running: Running | None, own_uid: str, *, starting: bool
) -> PollResult:
    """Name the pods that run; Expected are the own pod and those said to be running."""
    named = pods or {}
    return PollResult(
        running=None
        if running is None or pods is None
        else frozenset(named[uid].pod_name for uid in running.pods if uid in named),
        expected=frozenset(
            pod.pod_name
            for pod in named.values()
            if pod.uid == own_uid or (pod.details is not None and pod.details.phase == "Running")
        ),
        starting=starting,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The allocations to use, and what is known of their completeness.

    ``unlisted`` are running pods that the kubelet has not listed since its start. ``complete`` is False while
    there are any, or while which pods run is unknown. ``covered`` is False if some running pod is in no list,
    neither in this one nor in the last complete one: it may hold any device.
    """

    allocations: Allocations | None
    unlisted: frozenset[PodName] = frozenset()
    complete: bool = True
    covered: bool = True


class KubeletRestart:
    """Judges each list of the kubelet, and remembers the last complete one.

    If which pods run is unknown, unlisted pods are carried over for ``grace`` seconds after a list from a
    new start of the kubelet was first seen.
    """

    def __init__(self, grace: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._grace = grace
        self._clock = clock
        self._base: Allocations | None = None
        self._completed: int | None = None
        self._start = 0
        self._started_at = 0.0
        self._logged = False

    def is_complete(self, listed: Allocations) -> bool:
        """Return True if an earlier list since the same start of the kubelet was complete."""
        return listed.kubelet_start == self._completed

    def known(self, listed: Allocations | None) -> Allocations | None:
        """Return a list together with all that may be carried over into it."""
        if listed is None or self._base is None or self.is_complete(listed):
            return listed
        return _merged(listed, self._base, self._base.pods)

    def judge(self, listed: Allocations | None, evidence: PollResult) -> Judged:
        """Judge a list; None while the kubelet does not answer."""
        if listed is None:
            return Judged(allocations=None, complete=False, covered=False)
        self._note_start(listed)
        if self.is_complete(listed):
            self._base = listed
            return Judged(allocations=listed)
        if evidence.running is None:
            judged = self._judge_unseen(listed, evidence)
        else:
            judged = self._judge_filling(listed, evidence.running - listed.pods)
        self._log(judged)
        if judged.complete:
            self._completed, self._base = listed.kubelet_start, listed
        else:
            self._base = self.known(listed)
        return judged

    def _note_start(self, listed: Allocations) -> None:
        if listed.kubelet_start != self._start:
            self._start, self._started_at = listed.kubelet_start, self._clock()

    def _judge_filling(self, listed: Allocations, unlisted: frozenset[PodName]) -> Judged:
        """Judge by the pods that run and are not listed."""
        if not unlisted:
            return Judged(allocations=listed)
        before = self._base or listed
        return Judged(
            allocations=_merged(listed, before, unlisted),
            unlisted=unlisted,
            complete=False,
            covered=unlisted <= before.pods,
        )

    def _judge_unseen(self, listed: Allocations, evidence: PollResult) -> Judged:
        """Judge without a view of processes: former pods count as running for the time of grace."""
        waiting = self._clock() - self._started_at < self._grace
        former = self._base.pods - listed.pods if waiting and self._base is not None else frozenset()
        judged = self._judge_filling(listed, former)
        expected = evidence.expected - listed.pods
        if not expected and not evidence.starting:
            return judged
        covered = judged.covered and expected <= former and (waiting or not evidence.starting)
        return replace(judged, unlisted=former | expected, complete=False, covered=covered)

    def _log(self, judged: Judged) -> None:
        if judged.complete and self._logged:
            log.info("kubelet lists all running pods again")
        elif not judged.complete and not self._logged:
            names = ", ".join(f"{pod.namespace}/{pod.name}" for pod in sorted(judged.unlisted)[:NAMED])
            more = "" if len(judged.unlisted) <= NAMED else ", ..."
            log.warning(
                "kubelet restarted and does not list %s yet (%s%s); keeping their last known allocations; "
                "if this lasts, check that the kubelet reaches its API server",
                plural(len(judged.unlisted), "running pod"),
                names,
                more,
            )
        self._logged = not judged.complete


def _merged(listed: Allocations, before: Allocations, pods: Collection[PodName]) -> Allocations:
    """Carry the allocations of ``pods`` over, unless they are listed or their devices are given to others."""
    carried = frozenset(pods) - listed.pods
    taken = {(each.resource, each.device_id) for each in listed.allocated}

    def carries(holder: ContainerRef) -> bool:
        return holder.pod_name in carried

    allocated = tuple(
        each
        for each in before.allocated
        if carries(each.holder) and (each.resource, each.device_id) not in taken
    )
    claims = tuple(each for each in before.claims if carries(each.holder))
    return replace(
        listed,
        allocated=tuple(sorted((*listed.allocated, *allocated))),
        claims=tuple(sorted((*listed.claims, *claims))),
        listed=listed.listed | frozenset(filter(carries, before.listed)),
        read_at=min(listed.read_at, before.read_at) if allocated or claims else listed.read_at,
    )
