"""A kubelet in software: real gRPC servers on real Unix sockets, for the demo and for tests.

It answers from its current attributes, and can misbehave in ways that were observed on real kubelets.
Like the real one it repeats a device once per NUMA node, in random order, and replaces its socket at each
start.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from exporter.demo.scenario.pods import Claim
from podresources import messages
from podresources.channel import reachable, target

# Pods listed by a real kubelet of 52 pods in the 130 ms after its first one, and seconds between two.
FILLING = (9, 18, 28, 47)
FILLING_PAUSE = 0.03
# Seconds for which a real kubelet listed static pods only (1.37: 0.4 to 0.6 s).
STATIC_PAUSE = 0.5
_NOT_READY = (grpc.StatusCode.FAILED_PRECONDITION, "Kubelet is initializing")
_GARBAGE = b"\x0a\xffnot a protobuf"
_PADDING_TAG = b"\xfa\x7f"  # field 2047 with a length, which decoders do not know and skip


@dataclass(frozen=True, slots=True)
class KubeletDevices:
    """Devices of one resource."""

    resource: str
    ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] = ()  # (): no topology


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletContainer:
    """A container."""

    name: str
    devices: tuple[KubeletDevices, ...] = ()
    claims: tuple[Claim, ...] = ()  # listed by v1 only
    container_id: str = ""  # 64 hex digits; "": not created by the runtime yet
    init: bool = False  # the kubelet lists no resources for init containers,
    restartable: bool = False  # but for those that run as long as the pod (from 1.31 on)
    limits: Mapping[str, int] = field(default_factory=dict)  # extended resources
    health: Mapping[str, str] = field(default_factory=dict)  # by id, in the pod's status


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletPod:
    """A pod of the node."""

    namespace: str
    name: str
    uid: str
    phase: str = "Running"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[KubeletContainer, ...] = ()
    resources_listed: bool = True  # False: in the Pods API only
    static: bool = False  # its manifest is a file of the node: known without the API server


class FakeKubelet:
    """Serves ``<root>/pod-resources/kubelet.sock`` and, with ``pods_api``, ``<root>/pods-api/pods-api.sock``.

    The attributes ``pods``, ``offered`` (resource, device id) and ``offered_nodes`` (the NUMA nodes of every
    offered device) are the content of the answers; ``calls`` counts by the method's bare name, such as List.
    ``filled`` is the number of pods known after a start, static ones first, None for all; ListPods fails
    before. Misbehaviours: ``rate_limited``, ``delay`` in seconds, ``padding_bytes``, ``errors`` by method.
    """

    def __init__(
        self, root: Path, *, api_versions: Sequence[str] = ("v1", "v1alpha1"), pods_api: bool = False
    ) -> None:
        self.socket = root / "pod-resources" / "kubelet.sock"
        self.pods_socket = root / "pods-api" / "pods-api.sock"
        self.pods: Sequence[KubeletPod] = ()
        self.offered: Sequence[tuple[str, str]] = ()
        self.offered_nodes: tuple[int, ...] = ()
        self.calls: Counter[str] = Counter()
        self.filled: int | None = None
        self.rate_limited = False
        self.delay = 0.0
        self.padding_bytes = 0
        self.errors: Mapping[str, tuple[grpc.StatusCode, str]] = {}
        self.garbage: frozenset[str] = frozenset()
        self._api_versions = api_versions
        self._pods_api = pods_api
        self._servers: list[grpc.aio.Server] = []

    async def start(self) -> None:
        """Serve in the running loop; raise OSError or RuntimeError if the sockets cannot be created."""
        methods: dict[str, dict[str, Callable[[], bytes]]] = {
            "v1": {"List": self._list, "GetAllocatableResources": self._allocatable},
            "v1alpha1": {"List": partial(self._list, claims=False)},
        }
        services = {f"{version}.PodResourcesLister": methods[version] for version in self._api_versions}
        await self._serve(self.socket, services)
        if self._pods_api:
            await self._serve(self.pods_socket, {"v1alpha1.Pods": {"ListPods": self._list_pods}})

    async def stop(self, grace: float | None = None) -> None:
        """Stop at once, or after ``grace`` seconds for running calls. Dead sockets remain as files."""
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(grace)

    async def restart(self, *, empty: float = 0.0) -> None:
        """Stop, start, and learn the pods again as a real kubelet does.

        It lists no pods for ``empty`` seconds, then static ones, then some, then all; it offers no devices
        while the list is empty, before device plugins register.
        """
        await self.stop()
        self.filled = 0
        await self.start()
        await asyncio.sleep(empty)
        self.filled = sum(pod.static for pod in self.pods)
        if self.filled:
            await asyncio.sleep(STATIC_PAUSE)
        for self.filled in FILLING:
            await asyncio.sleep(FILLING_PAUSE)
        self.filled = None

    async def _serve(self, path: Path, services: Mapping[str, Mapping[str, Callable[[], bytes]]]) -> None:
        server = grpc.aio.server()
        for service, methods in services.items():
            handlers = {method: self._handler(method, answer) for method, answer in methods.items()}
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        bound = path.with_name(f".{path.name}.{os.getpid()}")
        with reachable(bound) as address:
            server.add_insecure_port(target(address))
        await server.start()
        bound.replace(path)
        self._servers.append(server)

    def _handler(self, method: str, answer: Callable[[], bytes]) -> grpc.RpcMethodHandler:
        async def serve(_request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            self.calls[method] += 1
            await self._misbehave(method, context)
            if method in self.garbage:
                return _GARBAGE
            return answer() + _padding(self.padding_bytes)

        return grpc.unary_unary_rpc_method_handler(serve)

    async def _misbehave(self, method: str, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        if self.rate_limited:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        if self.delay:
            await asyncio.sleep(self.delay)
        if method in self.errors:
            await context.abort(*self.errors[method])
        if method == "ListPods" and self.filled is not None:
            await context.abort(*_NOT_READY)

    def _list(self, *, claims: bool = True) -> bytes:
        answer = messages.ListPodResourcesResponse()
        static_first = sorted(self.pods, key=lambda pod: not pod.static)
        for pod in self.pods if self.filled is None else static_first[: self.filled]:
            if not pod.resources_listed:
                continue
            listed = answer.pod_resources.add(name=pod.name, namespace=pod.namespace)
            for container in pod.containers:
                if container.restartable or not container.init:
                    parts = (part for devices in container.devices for part in _held(devices))
                    resources = listed.containers.add(name=container.name)
                    resources.MergeFromString(_shuffled(parts))
                    resources.dynamic_resources.extend(_claims(container.claims if claims else ()))
        return bytes(answer.SerializeToString())

    def _allocatable(self) -> bytes:
        return _shuffled(_offers(() if self.filled == 0 else tuple(self.offered), self.offered_nodes))

    def _list_pods(self) -> bytes:
        answer = messages.ListPodsResponse(pods=[_pod(pod).SerializeToString() for pod in self.pods])
        return bytes(answer.SerializeToString())


def _shuffled(parts: Iterable[bytes]) -> bytes:
    """Return messages joined in random order; decoders merge their repeated fields into one message."""
    shuffled = list(parts)
    random.shuffle(shuffled)
    return b"".join(shuffled)


# There may be tens of thousands of ids: they are encoded again only after a change.
@lru_cache(maxsize=2)
def _offers(offered: tuple[tuple[str, str], ...], numa_nodes: tuple[int, ...]) -> list[bytes]:
    """Return a GetAllocatableResources response for each id and NUMA node."""
    return [
        bytes(messages.AllocatableResourcesResponse(devices=[entry]).SerializeToString())
        for resource, device_id in offered
        for entry in _entries(KubeletDevices(resource, (device_id,), numa_nodes))
    ]


@lru_cache(maxsize=64)
def _held(devices: KubeletDevices) -> list[bytes]:
    """Return a ContainerResources message for each id."""
    return [
        bytes(messages.ContainerResources(devices=[entry]).SerializeToString()) for entry in _entries(devices)
    ]


def _entries(devices: KubeletDevices) -> list[Any]:
    topologies: list[Any] = [{"nodes": [{"ID": node}]} for node in devices.numa_nodes] or [None]
    return [
        messages.ContainerDevices(resource_name=devices.resource, device_ids=[device_id], topology=topology)
        for device_id in devices.ids
        for topology in topologies
    ]


def _claims(claims: tuple[Claim, ...]) -> list[bytes]:
    """Return an entry for each claim; as in the real kubelet, a device repeats the CDI names before it."""
    entries = []
    for namespace, name in dict.fromkeys((claim.namespace, claim.name) for claim in claims):
        entry = messages.DynamicResource(claim_namespace=namespace, claim_name=name)
        cdi: list[dict[str, str]] = []
        for claim in claims:
            if (claim.namespace, claim.name) == (namespace, name):
                cdi.append({"name": claim.cdi})
                entry.claim_resources.add(
                    cdi_devices=cdi,
                    driver_name=claim.driver,
                    pool_name=claim.pool,
                    device_name=claim.device,
                    share_id=claim.share_id,
                )
        entries.append(entry.SerializeToString())
    return entries


def _pod(pod: KubeletPod) -> Any:
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "labels": _map_entries(pod.labels),
        "annotations": _map_entries(pod.annotations),
    }
    payload = messages.Pod(metadata=metadata, status={"phase": pod.phase})
    for container in pod.containers:
        limits = [{"key": key, "value": {"string": str(count)}} for key, count in container.limits.items()]
        specs = payload.spec.initContainers if container.init else payload.spec.containers
        specs.add(name=container.name, resources={"limits": limits})
        kind = "initContainerStatuses" if container.init else "containerStatuses"
        status = getattr(payload.status, kind).add(name=container.name)
        status.allocatedResourcesStatus.extend(() if container.init else _healths(container))
        if container.container_id:
            status.containerID = f"containerd://{container.container_id}"
    return payload


def _healths(container: KubeletContainer) -> list[Any]:
    """Return the health of the container's devices by resource, in random order as the real kubelet."""
    told = [
        (devices.resource, device_id, container.health[device_id])
        for devices in container.devices
        for device_id in devices.ids
        if device_id in container.health
    ]
    # The pod has a name of its own for the claim.
    told += [(f"claim:{each.name}", each.cdi, each.health) for each in container.claims if each.health]
    random.shuffle(told)
    return [
        messages.ResourceStatus(
            name=name,
            resources=[{"resourceID": of, "health": health} for other, of, health in told if other == name],
        )
        for name in dict.fromkeys(resource for resource, _, _ in told)
    ]


def _map_entries(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": text} for key, text in texts.items()]


def _padding(size: int) -> bytes:
    if not size:
        return b""
    length, rest = bytearray(), size
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return _PADDING_TAG + bytes(length) + bytes(size)
