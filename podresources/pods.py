"""The client of the kubelet's Pods API: the pods of this node by uid, without asking the API server.

The answer holds whole pods, environment variables included. Metadata, limits and status are decoded, the
rest is skipped, and no payload is ever logged.
"""

import logging
from pathlib import Path
from typing import Any

from exporter.model import ContainerSpec, PodDetails, PodIdentity
from exporter.model.kubelet import extended_resources, kept_annotations
from podresources.channel import dial
from podresources.fold import Unchanged
from podresources.messages import DECODE_ERRORS, LIST_PODS, ListPodsResponse, Pod

_log = logging.getLogger(__name__)


class Pods:
    """Reads the pods of the node from ``socket``, a read taking ``timeout`` seconds at most."""

    def __init__(self, socket: Path, *, timeout: float = 10.0) -> None:
        self._socket = socket
        self._timeout = timeout
        self._identities = Unchanged(_identity)
        self._unreadable = 0

    async def read(self) -> tuple[PodIdentity, ...]:
        """List the pods by uid; KubeletError when the kubelet does not. A broken pod is left out."""
        async with dial(self._socket, within=self._timeout) as kubelet:
            identities = await kubelet.call(LIST_PODS, self._decoded)
        self._report(identities.count(None))
        return tuple(sorted(filter(None, identities), key=lambda pod: pod.uid))

    def _decoded(self, answer: bytes) -> list[PodIdentity | None]:
        return self._identities.of(ListPodsResponse.FromString(answer).pods)

    def _report(self, unreadable: int) -> None:
        if unreadable > self._unreadable:
            _log.warning("%s: skipped %d pods that could not be decoded", self._socket, unreadable)
        self._unreadable = unreadable


def _identity(payload: bytes) -> PodIdentity | None:
    try:
        pod = Pod.FromString(payload)
    except DECODE_ERRORS:
        return None
    names = pod.metadata
    if not (names.uid and names.namespace and names.name):
        return None
    status = pod.status
    containers = [
        *status.containerStatuses,
        *status.initContainerStatuses,
        *status.ephemeralContainerStatuses,
    ]
    return PodIdentity(
        uid=names.uid,
        namespace=names.namespace,
        name=names.name,
        containers=tuple(container.name for container in containers),
        container_ids={
            _bare(container.containerID): container.name for container in containers if container.containerID
        },
        details=_details(pod),
    )


def _details(pod: Any) -> PodDetails:
    init = [_spec(container, init=True) for container in pod.spec.initContainers]
    return PodDetails(
        labels={entry.key: entry.value for entry in pod.metadata.labels},
        annotations=kept_annotations({entry.key: entry.value for entry in pod.metadata.annotations}),
        containers=(*init, *(_spec(container, init=False) for container in pod.spec.containers)),
        phase=pod.status.phase,
    )


def _spec(container: Any, *, init: bool) -> ContainerSpec:
    limits = {entry.key: entry.value.string for entry in container.resources.limits}
    return ContainerSpec(name=container.name, init=init, limits=extended_resources(limits))


def _bare(container_id: str) -> str:
    """Turn ``containerd://<64 hex>`` into the 64 hex digits that a cgroup's name holds."""
    return container_id.rpartition("://")[2]
