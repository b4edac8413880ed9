"""This node's pods and its own object as typed values, watched through the Kubernetes API."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from exporter.concurrency import NoThreadError, Worker
from exporter.kubernetes.access import Configure, library
from exporter.kubernetes.collection import ObjectQuery, mapping, objects, text, texts
from exporter.kubernetes.follower import PACE, Client, Follower, Pace
from exporter.model import ContainerSpec, NamedRequest, NodeObject, PodDetails, PodIdentity, ResourceHealth
from exporter.model.kubelet import bounded_annotations, extended_resources

MIRROR: Final = "kubernetes.io/config.mirror"
HASH: Final = "kubernetes.io/config.hash"
PODS_RIGHT: Final = "let the service account list and watch pods: deploy/components/kubernetes-api"
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
NODE_RIGHT: Final = (
    "let the service account list and watch nodes: deploy/components/kubernetes-api, or node-labels"
)
log = logging.getLogger(__name__)
T = TypeVar("T")
# The first poll waits this long for labels, which may request the release of the driver, and for pod names.
FIRST_SECONDS: Final = 5.0
# Pause before another attempt to start a thread.
THREAD_SECONDS: Final = 5.0
MISSING: Final = (
    "the Kubernetes client cannot be imported (%s); install gpuslice-exporter[kubernetes], take the image"
    " whose tag ends in -kubernetes, or set --kubernetes-api off"
)


class WatchedPods(NamedTuple):
    """The watched pods of a node."""

    pods: Mapping[str, PodIdentity]  # by the uid under which a pod runs
    live: bool  # whether a watch is open, so that they are current


def pods_of(node: str) -> ObjectQuery:
    return ObjectQuery(
        about=f"the pods of node {node}",
        paths=("/api/v1/pods",),
        selector=f"spec.nodeName={node}",
        right=PODS_RIGHT,
        cached=True,
    )


def read_pod(pod: Mapping[str, Any]) -> PodIdentity | None:
    """Return the identity of a pod, its annotations, labels and limits; None if it has no name."""
    metadata, status = mapping(pod, "metadata"), mapping(pod, "status")
    annotations = texts(metadata, "annotations")
    uid = (annotations.get(HASH) if annotations.get(MIRROR) else "") or text(metadata, "uid")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    if not (uid and namespace and name):
        return None
    containers = [item for name in _STATUSES for item in objects(status, name) if text(item, "name")]
    return PodIdentity(
        uid=uid,
        namespace=namespace,
        name=name,
        containers=tuple(text(item, "name") for item in containers),
        # ``containerd://<64 hex>``: the name of the cgroup has the digits only.
        container_ids={
            text(item, "containerID").rpartition("://")[2]: text(item, "name")
            for item in containers
            if text(item, "containerID")
        },
        details=PodDetails(
            labels=texts(metadata, "labels"),
            annotations=bounded_annotations(annotations),
            containers=_specs(mapping(pod, "spec")),
            phase=text(status, "phase"),
            health=_health(status),
            requests=tuple(_requests(mapping(pod, "spec"), status)),
        ),
    )


def by_uid(pods: Mapping[str, PodIdentity]) -> dict[str, PodIdentity]:
    """Return the pods by the uid under which they run; a mirror pod does not replace another pod."""
    mirrors = {pod.uid: pod for uid, pod in pods.items() if pod.uid != uid}
    return mirrors | {uid: pod for uid, pod in pods.items() if pod.uid == uid}


def _specs(spec: Mapping[str, Any]) -> tuple[ContainerSpec, ...]:
    kinds = (("initContainers", True), ("containers", False))
    return tuple(
        ContainerSpec(
            name=text(container, "name"),
            init=init,
            limits=extended_resources(texts(mapping(container, "resources"), "limits")),
        )
        for kind, init in kinds
        for container in objects(spec, kind)
    )


def _requests(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[NamedRequest]:
    """Yield the requests that containers name; those of a claim that was not made yet are left out."""
    # A claim that is made of a template is in the status only.
    entries = (*objects(spec, "resourceClaims"), *objects(status, "resourceClaimStatuses"))
    claims = {text(entry, "name"): text(entry, "resourceClaimName") for entry in entries}
    for container in (*objects(spec, "initContainers"), *objects(spec, "containers")):
        for named in objects(mapping(container, "resources"), "claims"):
            if claim := claims.get(text(named, "name")):
                yield NamedRequest(text(container, "name"), claim, text(named, "request"))
    extended = mapping(status, "extendedResourceClaimStatus")
    if claim := text(extended, "resourceClaimName"):
        for entry in objects(extended, "requestMappings"):
            yield NamedRequest(text(entry, "containerName"), claim, text(entry, "requestName"))


def _health(status: Mapping[str, Any]) -> tuple[ResourceHealth, ...]:
    return tuple(
        ResourceHealth(
            container=text(container, "name"),
            resource=text(resource, "name"),
            device_id=text(device, "resourceID"),
            health=text(device, "health"),
        )
        for container in objects(status, "containerStatuses")
        for resource in objects(container, "allocatedResourcesStatus")
        for device in objects(resource, "resources")
    )


def object_of(node: str) -> ObjectQuery:
    return ObjectQuery(
        about=f"the labels, annotations and devices of node {node}",
        paths=("/api/v1/nodes",),
        selector=f"metadata.name={node}",
        right=NODE_RIGHT,
    )


def read_node(node: Mapping[str, Any]) -> NodeObject:
    """Return the labels and annotations of a node, and its counts of extended resources."""
    metadata, status = mapping(node, "metadata"), mapping(node, "status")
    return NodeObject(
        labels=texts(metadata, "labels"),
        annotations=bounded_annotations(texts(metadata, "annotations")),
        capacity=extended_resources(texts(status, "capacity")),
        allocatable=extended_resources(texts(status, "allocatable")),
    )


class Cluster:
    """Watches the objects of ``node``; without ``configure`` the API is not used.

    ``on_labels`` is called with the node's labels, first and when they change; {} when they become unknown.
    """

    def __init__(
        self,
        node: str,
        configure: Configure | None,
        on_labels: Callable[[Mapping[str, str]], None] = lambda _labels: None,
        pace: Pace = PACE,
    ) -> None:
        self._configure = configure
        self._on_labels = on_labels
        self._pods: Follower[PodIdentity] = Follower(pods_of(node), read_pod, pace=pace)
        self._node: Follower[NodeObject] = Follower(object_of(node), read_node, self._pass_labels, pace)
        self._task: asyncio.Task[None] | None = None
        self._missing = ""

    @property
    def pods(self) -> WatchedPods | None:
        """The pods of the node, None if unknown."""
        pods = self._pods.objects
        return None if pods is None else WatchedPods(by_uid(pods), self._pods.live)

    @property
    def node(self) -> NodeObject | None:
        """The object of the node, None if unknown."""
        return _only(self._node.objects)

    @property
    def failures(self) -> tuple[str, ...]:
        """Why objects cannot be watched; each is a sentence without a full stop."""
        return tuple(filter(None, (self._missing, self._pods.failure, self._node.failure)))

    async def start(self) -> None:
        """Start watching; return once the API server has answered, or after FIRST_SECONDS."""
        if self._configure is None:
            return
        self._task = asyncio.create_task(self._run(self._configure))
        answers = asyncio.gather(self._pods.answered.wait(), self._node.answered.wait())
        tasks = self._task, answers
        try:
            await asyncio.wait(tasks, timeout=FIRST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, configure: Configure) -> None:
        """Watch until cancelled; if the client is not installed, log that and return."""
        try:
            client = await load_client(configure)
        except NoClientError as error:
            self._missing = str(error)
            return
        await asyncio.gather(self._pods.run(client), self._node.run(client))

    def _pass_labels(self, nodes: Mapping[str, NodeObject] | None) -> None:
        node = _only(nodes)
        self._on_labels(node.labels if node is not None else {})


class NoClientError(Exception):
    """The client's library cannot be imported; the message has the remedy."""


async def load_client(configure: Configure) -> Client:
    """Return the client, imported in a thread; raises NoClientError, which is logged."""
    worker = Worker("kubernetes-import")
    try:
        return Client(await _run_soon(worker, library), configure)
    except Exception as error:  # noqa: BLE001 - a broken library counts as missing
        missing = MISSING % error
        log.error("kubernetes API is not used: %s", missing)  # noqa: TRY400 - as above
        raise NoClientError(missing) from None
    finally:
        worker.stop()


async def _run_soon(worker: Worker, job: Callable[[], T]) -> T:
    """Run a job as soon as a thread can be started."""
    while True:
        with suppress(NoThreadError):
            return await worker.run(job)
        await asyncio.sleep(THREAD_SECONDS)


def _only(nodes: Mapping[str, NodeObject] | None) -> NodeObject | None:
    return next(iter((nodes or {}).values()), None)
