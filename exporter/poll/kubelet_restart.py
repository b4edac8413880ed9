"""A kubelet that does not answer, and its list of pods after a restart, until it is complete.

A starting kubelet answers before it knows its pods: first it lists none, then static pods, then the others
one by one within about 100 ms; without its API server, static pods only. A complete list has every running
pod, with or without devices, so a running pod that is not listed proves that the list is incomplete. Until it
is complete, the allocations of unlisted running pods are carried over.

Between polls, a kubelet that does not answer is asked again. A machine may have no kubelet at all, and a
connection costs far more than a stat of the socket's file. A kubelet creates a new file at each start. So an
unreachable kubelet is asked only for a while after its file has changed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from exporter.concurrency import wait_for
from exporter.model import Allocations, ContainerRef, PodIdentity, PodName
from exporter.poll.collector import Collector
from exporter.poll.file_readers import ABSENT, FileVersion, SocketFileReader
from exporter.wording import plural
from exporter.workloads.places import RunningContainers

log = logging.getLogger(__name__)
# A kubelet that may answer is asked again at this pace, whatever the polling interval.
RETRY_SECONDS = 0.5
# A server may create its socket before it listens.
SETTLE_SECONDS = 30.0
# How many pods a log line names.
NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPods:
    """The pods that run, by evidence other than the kubelet's list."""

    running: frozenset[PodName] | None  # pods with processes, None if the process table cannot be searched
    expected: frozenset[PodName] = frozenset()  # our own pod, and pods whose status is Running
    starting: bool = False  # whether the Pods API reports that the kubelet does not know its pods yet


def running_pods(
    pods: Mapping[str, PodIdentity] | None, running: RunningContainers | None, own_uid: str, *, starting: bool
) -> RunningPods:
    """Return the pods that run, by name."""
    named = pods or {}
    with_processes = None
    if running is not None and pods is not None:
        with_processes = frozenset(pods[uid].pod_name for uid in running.pods if uid in pods)
    return RunningPods(
        running=with_processes,
        expected=frozenset(
            pod.pod_name
            for pod in named.values()
            if pod.uid == own_uid or (pod.details is not None and pod.details.phase == "Running")
        ),
        starting=starting,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The allocations to use, and their completeness."""

    allocations: Allocations | None
    unlisted: frozenset[PodName] = frozenset()  # running pods that the kubelet has not listed since its start
    complete: bool = True  # False while pods are unlisted, or while it is unknown which pods run
    # False if a running pod is neither in this list nor in the last complete one: it may hold any device.
    covered: bool = True


class KubeletRestart:
    """Judges each list of the kubelet, and keeps the last complete one.

    While it is unknown which pods run, unlisted pods are carried over for ``grace`` seconds after the first
    list of a restarted kubelet.
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
        """Return a list with all allocations that may be carried over into it."""
        if listed is None or self._base is None or self.is_complete(listed):
            return listed
        return _merged(listed, self._base, self._base.pods)

    def judge(self, listed: Allocations | None, pods: RunningPods) -> Judged:
        """Return the allocations to use; ``listed`` is None while the kubelet does not answer."""
        if listed is None:
            return Judged(allocations=None, complete=False, covered=False)
        if listed.kubelet_start != self._start:
            self._start, self._started_at = listed.kubelet_start, self._clock()
        if self.is_complete(listed):
            self._base = listed
            return Judged(allocations=listed)
        if pods.running is None:
            judged = self._judge_unseen(listed, pods)
        else:
            judged = self._judge_filling(listed, pods.running - listed.pods)
        self._log(judged)
        if judged.complete:
            self._completed, self._base = listed.kubelet_start, listed
        else:
            self._base = self.known(listed)
        return judged

    def _judge_filling(self, listed: Allocations, unlisted: frozenset[PodName]) -> Judged:
        """Judge by the pods that run and are not listed."""
        if not unlisted:
            return Judged(allocations=listed)
        base = self._base or listed
        return Judged(
            allocations=_merged(listed, base, unlisted),
            unlisted=unlisted,
            complete=False,
            covered=unlisted <= base.pods,
        )

    def _judge_unseen(self, listed: Allocations, pods: RunningPods) -> Judged:
        """Judge without a view of processes: former pods count as running for ``grace`` seconds."""
        waiting = self._clock() - self._started_at < self._grace
        former = self._base.pods - listed.pods if waiting and self._base is not None else frozenset()
        judged = self._judge_filling(listed, former)
        expected = pods.expected - listed.pods
        if not expected and not pods.starting:
            return judged
        covered = judged.covered and expected <= former and (waiting or not pods.starting)
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


def _merged(listed: Allocations, earlier: Allocations, pods: Collection[PodName]) -> Allocations:
    """Carry the allocations of ``pods`` over, unless they are listed or their devices are allocated again."""
    carried = frozenset(pods) - listed.pods
    taken = {(held.resource, held.device_id) for held in listed.allocated}

    def carries(holder: ContainerRef) -> bool:
        return holder.pod_name in carried

    allocated = tuple(
        held
        for held in earlier.allocated
        if carries(held.holder) and (held.resource, held.device_id) not in taken
    )
    claims = tuple(claim for claim in earlier.claims if carries(claim.holder))
    return replace(
        listed,
        allocated=tuple(sorted((*listed.allocated, *allocated))),
        claims=tuple(sorted((*listed.claims, *claims))),
        listed=listed.listed | frozenset(filter(carries, earlier.listed)),
        read_at=min(listed.read_at, earlier.read_at) if allocated or claims else listed.read_at,
    )


@dataclass(eq=False)
class KubeletRetry:
    """Waits between polls, and asks for ``allocations`` again meanwhile."""

    allocations: Collector[Allocations]
    socket: SocketFileReader
    # Returns whether the last read failed because no process can be reached by the file of ``socket``.
    unreachable: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    _watch: asyncio.Task[FileVersion] | None = field(default=None, init=False)
    _seen: FileVersion | None = field(default=None, init=False)
    _ask_until: float = field(default=0.0, init=False)

    async def wait(self, wake: asyncio.Event, due: float) -> bool:
        """Sleep until ``due`` (by ``clock``); return True if a poll is needed earlier.

        The reasons: the kubelet answers again, or ``wake`` is set, because a GPU was repartitioned, or the
        driver is to be released or opened again.
        """
        while (remaining := due - self.clock()) > 0:
            if await self._sleep(wake, remaining):
                wake.clear()
                return True
            remaining = due - self.clock()
            if self._answers() or remaining <= RETRY_SECONDS or not self._may_answer():
                continue
            await self.allocations.collect(remaining - RETRY_SECONDS)
            if self._answers():
                return True
        return False

    def close(self) -> None:
        """Stop watching the file."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _answers(self) -> bool:
        return self.allocations.health.success

    def _may_answer(self) -> bool:
        """Return False while only a change of the socket's file can help."""
        return not self.unreachable() or (self._seen != ABSENT and self.clock() < self._ask_until)

    async def _sleep(self, wake: asyncio.Event, seconds: float) -> bool:
        """Sleep until the kubelet is to be asked, at most ``seconds``; return whether ``wake`` is set."""
        if self._answers():
            # The file may be another one when the kubelet fails again.
            self._seen = None
            self.close()
            return await wait_for(wake, seconds)
        if not self.unreachable():
            return await wait_for(wake, min(seconds, RETRY_SECONDS))
        if self._watch is None:
            self._watch = asyncio.ensure_future(self.socket.changed(self._seen))
        if self._may_answer():
            woken = await wait_for(wake, min(seconds, RETRY_SECONDS))
        else:
            woken = await wait_for(wake, seconds, self._watch)
        self._note_change()
        return woken

    def _note_change(self) -> None:
        """Ask for a while if the file has changed, also if no thread is left to look at it."""
        if self._watch is not None and self._watch.done():
            self._seen = None if self._watch.exception() else self._watch.result()
            self._watch = None
            self._ask_until = self.clock() + SETTLE_SECONDS
