"""A kubelet in software: real gRPC servers on real Unix sockets, for the demo and for tests.

It answers from its attributes, read afresh at each call, and misbehaves on request in the ways that
kubelets have been seen to. Like the real one it repeats a device once per NUMA node, in random order,
and puts a new socket in place of the old one each time it starts.
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

# Pods listed by a real kubelet of 52 pods in the 130 ms after its first one, and the time between two.
FILLING = (9, 18, 28, 47)
FILLING_PAUSE = 0.03
# So long a real one with static pods listed these alone (1.37: 0.4 to 0.6 s).
STATIC_PAUSE = 0.5
_NOT_READY = (grpc.StatusCode.FAILED_PRECONDITION, "Kubelet is initializing")
_GARBAGE = b"\x0a\xffnot a protobuf"
_PADDING_TAG = b"\xfa\x7f"  # field 2047 with a length: known to nobody, so decoders skip it


@dataclass(frozen=True, slots=True)
class KubeletDevices:
    """Devices of one resource. Without ``numa_nodes`` they have no topology."""

    resource: str
    ids: tuple[str, ...]
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletContainer:
    """A container; ``container_id`` is 64 hex digits, "" before the runtime has made it.

    Of one that is ``init`` the kubelet tells no resources. ``limits`` are its extended resources, ``claims``
    what it has by resource claims, which only v1 tells.
    """

    name: str
    devices: tuple[KubeletDevices, ...] = ()
    claims: tuple[Claim, ...] = ()
    container_id: str = ""
    init: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletPod:
    """A pod of the node; with ``resources_listed`` False only the Pods API shows it.

    ``static``: its manifest is a file of the node, so that the kubelet knows it without the API server.
    """

    namespace: str
    name: str
    uid: str
    phase: str = "Running"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[KubeletContainer, ...] = ()
    resources_listed: bool = True
    static: bool = False


class FakeKubelet:
    """Serves ``<root>/pod-resources/kubelet.sock`` and, if asked, ``<root>/pods-api/pods-api.sock``.

    ``pods`` and ``offered`` (resource, device id) are what the next call answers. ``calls`` counts by
    the method's bare name: List, GetAllocatableResources, ListPods. ``filled`` is how many pods it knows
    after a start, static ones first; None is all of them. Until then ListPods fails. Each way to misbehave
    is an attribute: ``rate_limited``, ``delay`` in seconds (``math.inf`` hangs), ``padding_bytes`` added to
    each answer, ``errors`` (status code, details) and ``garbage`` by bare method name.
    """

    def __init__(
        self, root: Path, *, api_versions: Sequence[str] = ("v1", "v1alpha1"), pods_api: bool = False
    ) -> None:
        self.socket = root / "pod-resources" / "kubelet.sock"
        self.pods_socket = root / "pods-api" / "pods-api.sock"
        self.pods: Sequence[KubeletPod] = ()
        self.offered: Sequence[tuple[str, str]] = ()
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
        """Serve in the running loop; OSError or RuntimeError where the sockets cannot be made."""
        methods: dict[str, dict[str, Callable[[], bytes]]] = {
            "v1": {"List": self._list, "GetAllocatableResources": self._allocatable},
            "v1alpha1": {"List": partial(self._list, claims=False)},
        }
        services = {f"{version}.PodResourcesLister": methods[version] for version in self._api_versions}
        await self._serve(self.socket, services)
        if self._pods_api:
            await self._serve(self.pods_socket, {"v1alpha1.Pods": {"ListPods": self._list_pods}})

    async def stop(self, grace: float | None = None) -> None:
        """Stop at once, or after ``grace`` seconds for the calls in flight. Dead sockets stay behind."""
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(grace)

    async def restart(self, *, empty: float = 0.0) -> None:
        """Stop, start, and fill up as the real one does.

        It knows no pods for ``empty`` seconds, then the static ones, then some, then all; and it offers
        nothing until the device plugin has registered, which it does while the list is empty.
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
        for pod in self._known_pods():
            if pod.resources_listed:
                listed = answer.pod_resources.add(name=pod.name, namespace=pod.namespace)
                for container in pod.containers:
                    if container.init:
                        continue
                    told = listed.containers.add(name=container.name)
                    told.MergeFromString(
                        _shuffled(part for each in container.devices for part in _held(each))
                    )
                    told.dynamic_resources.extend(_claims(container.claims if claims else ()))
        return bytes(answer.SerializeToString())

    def _known_pods(self) -> Sequence[KubeletPod]:
        if self.filled is None:
            return self.pods
        return sorted(self.pods, key=lambda pod: not pod.static)[: self.filled]

    def _allocatable(self) -> bytes:
        return _shuffled(_offers(() if self.filled == 0 else tuple(self.offered)))

    def _list_pods(self) -> bytes:
        answer = messages.ListPodsResponse(pods=[_pod(pod).SerializeToString() for pod in self.pods])
        return bytes(answer.SerializeToString())


def _shuffled(parts: Iterable[bytes]) -> bytes:
    """Put messages one after the other, in random order: decoders take them for one with all their fields."""
    shuffled = list(parts)
    random.shuffle(shuffled)
    return b"".join(shuffled)


# There may be tens of thousands of ids: each is written once while all stay.
@lru_cache(maxsize=2)
def _offers(offered: tuple[tuple[str, str], ...]) -> list[bytes]:
    """Return an answer for each id."""
    return [
        bytes(messages.AllocatableResourcesResponse(devices=[entry]).SerializeToString())
        for resource, device_id in offered
        for entry in _entries(KubeletDevices(resource, (device_id,)))
    ]


@lru_cache(maxsize=64)
def _held(devices: KubeletDevices) -> list[bytes]:
    """Return a container for each id that it has."""
    return [
        bytes(messages.ContainerResources(devices=[entry]).SerializeToString()) for entry in _entries(devices)
    ]


def _entries(devices: KubeletDevices) -> list[Any]:
    return [
        messages.ContainerDevices(resource_name=devices.resource, device_ids=[device_id], topology=topology)
        for device_id in devices.ids
        for topology in _topologies(devices.numa_nodes)
    ]


def _claims(claims: tuple[Claim, ...]) -> list[bytes]:
    """Return the devices of each claim; like the real one, each with the CDI names of those before it too."""
    found = []
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
        found.append(entry.SerializeToString())
    return found


def _topologies(numa_nodes: tuple[int, ...]) -> list[dict[str, Any] | None]:
    return [{"nodes": [{"ID": node}]} for node in numa_nodes] or [None]


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
        of_kind = payload.status.initContainerStatuses if container.init else payload.status.containerStatuses
        status = of_kind.add(name=container.name)
        if container.container_id:
            status.containerID = f"containerd://{container.container_id}"
    return payload


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
