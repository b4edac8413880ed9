"""The client of the kubelet's Pods API: the pods of this node, without the API server.

The response has whole pods, including environment variables. Only metadata, limits and status are decoded,
and no payload is logged.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exporter.model import ContainerSpec, NamedRequest, PodDetails, PodIdentity, ResourceHealth
from exporter.model.kubelet import bounded_annotations, extended_resources
from podresources.channel import Dialer
from podresources.messages import DECODE_ERRORS, LIST_PODS, ListPodsResponse, Pod, Unchanged

_log = logging.getLogger(__name__)


class PodsApi:
    """Reads the pods of the node from ``socket``, in at most ``timeout`` seconds."""

    def __init__(self, socket: Path, *, timeout: float = 10.0) -> None:
        self._socket = socket
        self._dialer = Dialer(socket)
        self._timeout = timeout
        self._identities = Unchanged(_identity)
        self._unreadable = 0

    async def read(self) -> tuple[PodIdentity, ...]:
        """Return the pods sorted by uid, without those that cannot be decoded; raises KubeletError."""
        async with self._dialer.connect(within=self._timeout) as kubelet:
            identities = await kubelet.call(LIST_PODS, self._decoded)
        unreadable = identities.count(None)
        if unreadable > self._unreadable:
            _log.warning("%s: skipped %d pods that could not be decoded", self._socket, unreadable)
        self._unreadable = unreadable
        return tuple(sorted(filter(None, identities), key=lambda pod: pod.uid))

    async def close(self) -> None:
        await self._dialer.close()

    def _decoded(self, answer: bytes) -> list[PodIdentity | None]:
        return self._identities.of(ListPodsResponse.FromString(answer).pods)


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
        # The kubelet reports ``containerd://<64 hex>``; cgroup names have the 64 hex digits.
        container_ids={
            container.containerID.rpartition("://")[2]: container.name
            for container in containers
            if container.containerID
        },
        details=_details(pod),
    )


def _details(pod: Any) -> PodDetails:
    init = [_spec(container, init=True) for container in pod.spec.initContainers]
    return PodDetails(
        labels={entry.key: entry.value for entry in pod.metadata.labels},
        annotations=bounded_annotations({entry.key: entry.value for entry in pod.metadata.annotations}),
        containers=(*init, *(_spec(container, init=False) for container in pod.spec.containers)),
        phase=pod.status.phase,
        # The kubelet reports it of ordinary containers only.
        health=tuple(
            ResourceHealth(container.name, status.name, device.resourceID, device.health)
            for container in pod.status.containerStatuses
            for status in container.allocatedResourcesStatus
            for device in status.resources
        ),
        requests=tuple(_requests(pod)),
    )


def _requests(pod: Any) -> Iterator[NamedRequest]:
    """Yield the requests that containers name; those of a claim that was not made yet are left out."""
    # A claim that is made of a template is in the status only.
    claims = {claim.name: claim.resourceClaimName for claim in pod.spec.resourceClaims}
    claims |= {claim.name: claim.resourceClaimName for claim in pod.status.resourceClaimStatuses}
    for container in (*pod.spec.initContainers, *pod.spec.containers):
        for named in container.resources.claims:
            if claim := claims.get(named.name):
                yield NamedRequest(container.name, claim, named.request)
    extended = pod.status.extendedResourceClaimStatus
    for mapping in extended.requestMappings if extended.resourceClaimName else ():
        yield NamedRequest(mapping.containerName, extended.resourceClaimName, mapping.requestName)


def _spec(container: Any, *, init: bool) -> ContainerSpec:
    limits = {entry.key: entry.value.string for entry in container.resources.limits}
    return ContainerSpec(name=container.name, init=init, limits=extended_resources(limits))
