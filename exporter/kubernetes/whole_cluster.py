"""The objects of the whole cluster that scheduling depends on, watched through the Kubernetes API.

Of a pod that runs only what it takes is kept, of one that has ended nothing. Kinds are read apart: one that
cannot be read costs only what depends on it.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from exporter.kubernetes.access import Configure
from exporter.kubernetes.cluster import NoClientError, load_client
from exporter.kubernetes.collection import ObjectQuery, mapping, text
from exporter.kubernetes.device_claims import read_claim, read_class, read_slice
from exporter.kubernetes.follower import PACE, Client, Follower, Pace, Skipped
from exporter.kubernetes.scheduling import read_cluster_node, read_placed_pod, read_waiting_pod
from exporter.waiting.objects import (
    Amounts,
    ClusterNode,
    DeviceClass,
    Objects,
    PlacedPod,
    PodKey,
    ResourceClaim,
    ResourceSlice,
    WaitingPod,
)

RIGHT: Final = "allow to list and watch %s in the whole cluster: docs/fleet.md#reading-the-cluster"
PAGE: Final = 500
# A command waits this long for a first answer about each kind.
FIRST_SECONDS: Final = 120.0
_GROUP: Final = "/apis/resource.k8s.io"
_VERSIONS: Final = ("v1", "v1beta2")
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
_KEPT_AMOUNTS: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCluster:
    """What is known of the cluster; all texts have no full stop."""

    objects: Objects | None  # None: pods or nodes are not known
    waiting: tuple[WaitingPod, ...] | None  # the pods that wait; None: pods are not known
    ages: Mapping[str, float]  # seconds since the last answer about each kind that is known
    failures: tuple[str, ...]  # why kinds cannot be watched now
    unseen: tuple[str, ...]  # what of the objects is missing


class Rule(NamedTuple):
    """A rule that taints devices, of which no more is kept than that it exists."""


class WholeCluster:
    """Watches the objects of the cluster from ``start`` to ``close``."""

    def __init__(self, configure: Configure, pace: Pace = PACE) -> None:
        self._configure = configure
        self._missing = ""
        self._task: asyncio.Task[None] | None = None
        self._objects: tuple[tuple[WaitingPod, ...] | None, Objects | None] | None = None
        self._pods: Follower[PlacedPod | WaitingPod] = self._follow(_PODS, _read_pod, pace)
        self._nodes: Follower[ClusterNode] = self._follow(_NODES, _read_node, pace)
        self._claims: Follower[ResourceClaim] = self._follow(_dra("resourceclaims"), read_claim, pace)
        self._slices: Follower[ResourceSlice] = self._follow(_dra("resourceslices"), read_slice, pace)
        self._classes: Follower[DeviceClass] = self._follow(_dra("deviceclasses"), read_class, pace)
        self._rules: Follower[Rule] = self._follow(_RULES, _read_rule, pace)
        self._kinds: Mapping[str, Follower[Any]] = {
            "pods": self._pods,
            "nodes": self._nodes,
            "resource claims": self._claims,
            "resource slices": self._slices,
            "device classes": self._classes,
            "device taint rules": self._rules,
        }

    def _follow(self, query: ObjectQuery, read: Callable[[Mapping[str, Any]], Any], pace: Pace) -> Any:
        return Follower(query, read, self._changed, pace)

    def _changed(self, _: object) -> None:
        """Note that the objects must be put together again at the next request."""
        self._objects = None

    def state(self) -> WatchedCluster:
        """Return what is known now."""
        if self._objects is None:
            self._objects = self._put_together()
        waiting, objects = self._objects
        ages = {kind: follower.age for kind, follower in self._kinds.items()}
        return WatchedCluster(
            objects=objects,
            waiting=waiting,
            ages={kind: age for kind, age in ages.items() if age is not None},
            failures=(self._missing,) if self._missing else tuple(self._failures()),
            unseen=tuple(
                f"{follower.unread} {kind} that cannot be read"
                for kind, follower in self._kinds.items()
                if follower.unread
            ),
        )

    def _failures(self) -> Iterator[str]:
        """Yield each failure once, with the kinds that it is of."""
        kinds: dict[str, list[str]] = {}
        for kind, follower in self._kinds.items():
            if follower.failure and not follower.live:
                kinds.setdefault(follower.failure, []).append(kind)
        for failure, failing in kinds.items():
            every = len(failing) == len(self._kinds)
            yield f"{'the Kubernetes API' if every else ', '.join(failing)}: {failure}"

    async def start(self) -> None:
        """Start watching."""
        self._task = asyncio.create_task(self._run())

    async def tried(self, seconds: float) -> None:
        """Wait until each kind was listed, or could not be; at most so many seconds."""
        if self._task is None:
            return
        tried = asyncio.gather(*(follower.tried.wait() for follower in self._kinds.values()))
        try:
            await asyncio.wait((self._task, tried), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tried.cancel()
            await asyncio.gather(tried, return_exceptions=True)

    async def close(self) -> None:
        """Stop watching; what is known stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Watch until cancelled; without the client return."""
        try:
            client: Client = await load_client(self._configure)
        except NoClientError as error:
            self._missing = str(error)
            return
        await asyncio.gather(*(follower.run(client) for follower in self._kinds.values()))

    def _put_together(self) -> tuple[tuple[WaitingPod, ...] | None, Objects | None]:
        pods, nodes = self._pods.objects, self._nodes.objects
        if pods is None:
            return None, None
        waiting = tuple(pod for pod in pods.values() if isinstance(pod, WaitingPod))
        if nodes is None:
            return waiting, None
        claims, slices, classes = self._claims.objects, self._slices.objects, self._classes.objects
        return waiting, Objects(
            nodes={node.name: node for node in nodes.values()},
            placed=tuple(pod for pod in pods.values() if isinstance(pod, PlacedPod)),
            waiting=waiting,
            claims=None
            if claims is None
            else {(each.namespace, each.name): each for each in claims.values()},
            slices=None if slices is None else tuple(slices.values()),
            classes=None if classes is None else {each.name: each for each in classes.values()},
            # Which devices a rule taints is not read, and unknown rules may taint any.
            device_taint_rules=self._rules.objects is None or bool(self._rules.objects),
        )


async def read_once(configure: Configure, seconds: float = FIRST_SECONDS) -> WatchedCluster:
    """Return the cluster as it is now, as far as it can be read within so many seconds."""
    cluster = WholeCluster(configure)
    await cluster.start()
    try:
        await cluster.tried(seconds)
        return cluster.state()
    finally:
        await cluster.close()


def _core(resource: str, selector: str = "") -> ObjectQuery:
    return ObjectQuery(
        about=f"the {resource} of the cluster",
        paths=(f"/api/v1/{resource}",),
        selector=selector,
        right=RIGHT % resource,
        page=PAGE,
    )


def _dra(resource: str, versions: tuple[str, ...] = _VERSIONS) -> ObjectQuery:
    return ObjectQuery(
        about=f"the {resource} of the cluster",
        paths=tuple(f"{_GROUP}/{version}/{resource}" for version in versions),
        right=RIGHT % resource,
        page=PAGE,
        group=_GROUP,
    )


_PODS: Final = _core("pods", _RUNNING)
_NODES: Final = _core("nodes")
# These came later, and only an alpha version of some clusters has them.
_RULES: Final = _dra("devicetaintrules", (*_VERSIONS, "v1beta1", "v1alpha3"))


def _read_pod(pod: Mapping[str, Any]) -> PlacedPod | WaitingPod | Skipped | None:
    if (placed := read_placed_pod(pod)) is not None:
        return _compact(placed)
    if (waiting := read_waiting_pod(pod)) is not None:
        return waiting
    # The scheduler has not looked at it yet, it is being deleted, or it has ended.
    named = text(mapping(pod, "metadata"), "namespace") and text(mapping(pod, "metadata"), "name")
    return Skipped.SKIPPED if named else None


def _read_node(node: Mapping[str, Any]) -> ClusterNode | None:
    if (found := read_cluster_node(node)) is None:
        return None
    labels = {sys.intern(key): sys.intern(value) for key, value in found.labels.items()}
    return replace(found, labels=labels, allocatable=_shared(tuple(found.allocatable.items())))


def _read_rule(rule: Mapping[str, Any]) -> Rule | None:
    return Rule() if text(mapping(rule, "metadata"), "name") else None


def _compact(pod: PlacedPod) -> PlacedPod:
    """Return a pod that shares its parts with others: a large cluster has hundreds of thousands."""
    return pod._replace(
        node=sys.intern(pod.node),
        requests=_shared(tuple(pod.requests.items())),
        key=PodKey(sys.intern(pod.key.namespace), pod.key.name),
    )


@lru_cache(maxsize=_KEPT_AMOUNTS)
def _shared(amounts: tuple[tuple[str, int], ...]) -> Amounts:
    return {sys.intern(name): amount for name, amount in amounts}
