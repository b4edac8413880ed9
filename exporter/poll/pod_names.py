"""The names of pods, and their labels and annotations if a source has them."""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from exporter.concurrency import Worker
from exporter.kubernetes import WatchedPods
from exporter.model import Allocations, PodIdentity, ProcessPlace
from exporter.workloads.pod_log_dirs import PodLogs, index_pods, read_pod_logs
from podresources.channel import KubeletError
from podresources.pods import PodsApi

PODS_API: Final = "the kubelet's Pods API"
KUBERNETES_API: Final = "the Kubernetes API"
# The kubelet logs each call of its Pods API. Statuses and annotations follow a change for some time: until
# then pods are listed at every poll, and later at this interval.
SETTLING_SECONDS: Final = 30.0
LISTING_SECONDS: Final = 60.0


class NoNamesError(Exception):
    """No source of pod names answers; ``reason`` counts it."""

    reason = "no_source"


class PodNames:
    """Reads pods from the kubelet's Pods API, else from the Kubernetes API and the names of pod logs.

    The Pods API has ``timeout`` seconds. ``watched`` returns the pods of the Kubernetes API, None if that is
    not used or has not answered.

    Pod logs have no annotations: for ``keep`` seconds (by ``clock``) the last answer of the Pods API is used
    with them, or one failure of the kubelet would remove every holder that is known by its annotations. The
    Kubernetes API's last objects are used for longer; the health in them only for ``keep`` seconds.
    """

    def __init__(  # noqa: PLR0913 - three sources and their time limits
        self,
        socket: Path,
        logs: Path,
        timeout: float,
        watched: Callable[[], WatchedPods | None] = lambda: None,
        *,
        keep: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.objects_from = ""  # the source of the labels and annotations of the last reading, "" if none
        self.superseded: frozenset[str] = frozenset()  # uids of pods whose name a newer pod has
        # Whether the Pods API last reported that the kubelet does not know its pods yet.
        self.starting = False
        self._socket = socket
        self._logs = logs
        self._watched = watched
        self._keep = keep
        self._clock = clock
        self._answer: Mapping[str, PodIdentity] = {}
        self._answered_at = -math.inf
        self._listed_at: float | None = None
        self._live_at = -math.inf
        self._cause: Hashable = None
        self._changed_at = self._clock()
        self._pods = PodsApi(socket, timeout=timeout)
        self._worker = Worker("pod-logs")

    async def read(self, cause: Hashable = None) -> Mapping[str, PodIdentity]:
        """Return the pods of this node by uid; raises NoNamesError when no source answers.

        The Pods API is not called as long as ``cause`` stays the same, see ``SETTLING_SECONDS``.
        """
        if not self._is_due(cause):
            self._answered_at = self._clock()
            return self._answer
        self._listed_at = None
        objections = []
        self.starting = False
        try:
            if await self._worker.run(self._socket.exists):
                self._answer, self._answered_at = index_pods(await self._pods.read()), self._clock()
                self._listed_at = self._answered_at
                self.objects_from, self.superseded = PODS_API, frozenset()
                return self._answer
        except (KubeletError, OSError) as error:
            self.starting = isinstance(error, KubeletError) and error.reason == "not_ready"
            objections.append(str(error))
        logged: PodLogs | None = None
        answer = self._answer if self._clock() - self._answered_at <= self._keep else None
        try:
            logged = await self._worker.run(lambda: read_pod_logs(self._logs, answer or ()))
        except OSError as error:
            objections.append(str(error))
        watched = self._watched()
        if watched is not None:
            self.objects_from = KUBERNETES_API
            return self._merged(self._with_current_health(watched), logged)
        if logged is None:
            self.objects_from = ""
            raise NoNamesError("; ".join(objections))
        if answer is not None:
            self.objects_from = PODS_API
            return self._merged(WatchedPods(pods=answer, live=False), logged)
        self.objects_from, self.superseded = "", logged.superseded
        return index_pods(logged.pods)

    def _is_due(self, cause: Hashable) -> bool:
        """Return True unless the last call of the Pods API succeeded and is recent enough."""
        now = self._clock()
        if cause != self._cause:
            self._cause, self._changed_at = cause, now
        settled = now - self._changed_at >= SETTLING_SECONDS
        return not settled or self._listed_at is None or now - self._listed_at >= LISTING_SECONDS

    def _with_current_health(self, watched: WatchedPods) -> WatchedPods:
        """Return the watched pods, without health of devices if no watch was open for ``keep`` seconds."""
        if watched.live:
            self._live_at = self._clock()
        if self._clock() - self._live_at <= self._keep:
            return watched
        return watched._replace(pods={uid: without_health(pod) for uid, pod in watched.pods.items()})

    def _merged(self, watched: WatchedPods, logged: PodLogs | None) -> Mapping[str, PodIdentity]:
        logged = logged or PodLogs((), frozenset())
        pods = merged(watched, logged.pods)
        known = {*watched.pods, *(pod.uid for pod in logged.pods), *logged.superseded}
        self.superseded = frozenset(known - pods.keys())
        return pods

    async def close(self) -> None:
        """Stop the thread, and close the connection."""
        self._worker.stop()
        await self._pods.close()


def without_health(pod: PodIdentity) -> PodIdentity:
    """Return a pod whose object does not have the health of its devices."""
    if pod.details is None or not pod.details.health:
        return pod
    return replace(pod, details=replace(pod.details, health=()))


def merged(watched: WatchedPods, logged: Iterable[PodIdentity]) -> Mapping[str, PodIdentity]:
    """Return the watched pods by uid, with those that only the logs have.

    Logs outlive their pod, so of two pods with one name a live watch has the right one. If the watch is not
    live, the logs have it, and the labels and annotations of the pod are unknown.
    """
    sources = (logged, watched.pods.values()) if watched.live else (watched.pods.values(), logged)
    by_name = {(pod.namespace, pod.name): pod for source in sources for pod in source}
    return index_pods(watched.pods.get(pod.uid, pod) for pod in by_name.values())


def cause_to_list(
    listed: Allocations | None, places: Iterable[ProcessPlace], pods: Mapping[str, PodIdentity]
) -> Hashable:
    """Return a value that changes with allocations and unnamed containers: then pods are listed again."""
    unnamed = frozenset(
        (place.pod_uid, place.container_id)
        for place in places
        if place.pod_uid is not None
        and (place.pod_uid not in pods or place.container_id not in pods[place.pod_uid].container_ids)
    )
    if listed is None:
        return unnamed
    return unnamed, listed.kubelet_start, listed.listed, listed.allocated, listed.claims
