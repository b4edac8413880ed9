"""A kubelet in software: real gRPC servers on real Unix sockets.

It answers from its current attributes, and can misbehave in ways that were observed on real kubelets.
Like the real one it repeats a device once per NUMA node, in random order, and replaces its socket at each
start.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import UninterpretedOption

from exporter.demo.scenario.pods import Claim, Container, Pod
from podresources import messages
from podresources.channel import reachable, target


class FakeKubelet:
    """Serves ``<root>/pod-resources/kubelet.sock`` and, with ``pods_api``, ``<root>/pods-api/pods-api.sock``.

    The attributes ``pods``, ``offered`` (resource, device id), ``held_nodes`` and ``offered_nodes`` (the NUMA
    nodes of every held and offered device, () without topology) are the content of the answers; ``calls``
    counts by the method's bare name, such as List. As in a real one, v1 alone lists claims, and resources of
    init containers are listed for ``sidecars`` only: the names of those that run as long as their pod (from
    1.31 on). ``unlisted`` are uids of pods of the Pods API alone. ``filled`` is the number of pods known
    after a start, static ones first, None for all; ListPods fails before. Misbehaviours: ``rate_limited``,
    ``delay`` in seconds, ``padding_bytes``, ``errors`` by method, ``garbage`` as the answer of methods.
    """

    def __init__(
        self, root: Path, *, api_versions: Sequence[str] = ("v1", "v1alpha1"), pods_api: bool = False
    ) -> None:
        self.socket = root / "pod-resources" / "kubelet.sock"
        self.pods_socket = root / "pods-api" / "pods-api.sock"
        self.pods: Sequence[Pod] = ()
        self.offered: Sequence[tuple[str, str]] = ()
        self.held_nodes: tuple[int, ...] = (0,)
        self.offered_nodes: tuple[int, ...] = ()
        self.sidecars: frozenset[str] = frozenset()
        self.unlisted: frozenset[str] = frozenset()
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

    async def stop(self) -> None:
        """Stop at once. Dead sockets remain as files."""
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(None)

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
                return b"\x0a\xffnot a protobuf"
            # A field that decoders do not know, and skip.
            padding = UninterpretedOption(string_value=bytes(self.padding_bytes))
            return answer() + (padding.SerializeToString() if self.padding_bytes else b"")

        return grpc.unary_unary_rpc_method_handler(serve)

    async def _misbehave(self, method: str, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        if self.rate_limited:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        if self.delay:
            await asyncio.sleep(self.delay)
        if method in self.errors:
            await context.abort(*self.errors[method])
        if method == "ListPods" and self.filled is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "Kubelet is initializing")

    def _list(self, *, claims: bool = True) -> bytes:
        answer = messages.ListPodResourcesResponse()
        static_first = sorted(self.pods, key=lambda pod: not pod.static)
        for pod in self.pods if self.filled is None else static_first[: self.filled]:
            if pod.uid in self.unlisted:
                continue
            listed = answer.pod_resources.add(name=pod.name, namespace=pod.namespace)
            for container in pod.containers:
                if not container.init or container.name in self.sidecars:
                    held = container.devices.items()
                    parts = (part for resource, ids in held for part in _held(resource, ids, self.held_nodes))
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
        for entry in _entries(resource, (device_id,), numa_nodes)
    ]


@lru_cache(maxsize=64)
def _held(resource: str, ids: tuple[str, ...], numa_nodes: tuple[int, ...]) -> list[bytes]:
    """Return a ContainerResources message for each id and NUMA node."""
    entries = _entries(resource, ids, numa_nodes)
    return [bytes(messages.ContainerResources(devices=[entry]).SerializeToString()) for entry in entries]


def _entries(resource: str, ids: tuple[str, ...], numa_nodes: tuple[int, ...]) -> list[Any]:
    topologies: list[Any] = [{"nodes": [{"ID": node}]} for node in numa_nodes] or [None]
    return [
        messages.ContainerDevices(resource_name=resource, device_ids=[device_id], topology=topology)
        for device_id in ids
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


def _pod(pod: Pod) -> Any:
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "labels": _map_entries(pod.labels),
        "annotations": _map_entries(pod.annotations),
    }
    payload = messages.Pod(metadata=metadata, status={"phase": pod.phase})
    for container in pod.containers:
        counts = {resource: len(ids) for resource, ids in container.devices.items()} | dict(container.limits)
        limits = [{"key": key, "value": {"string": str(count)}} for key, count in counts.items()]
        specs = payload.spec.initContainers if container.init else payload.spec.containers
        named = [(claim, request) for claim, requests in container.requests.items() for request in requests]
        claims = [{"name": claim, "request": request} for claim, request in named]
        specs.add(name=container.name, resources={"limits": limits, "claims": claims})
        kind = "initContainerStatuses" if container.init else "containerStatuses"
        status = getattr(payload.status, kind).add(name=container.name)
        status.allocatedResourcesStatus.extend(() if container.init else _healths(container))
        if container.container_id:
            status.containerID = f"containerd://{container.container_id}"
    for claim in dict.fromkeys(claim for container in pod.containers for claim in container.requests):
        payload.spec.resourceClaims.add(name=claim, resourceClaimName=claim)
    return payload


def _healths(container: Container) -> list[Any]:
    """Return the health of the container's devices by resource, in random order as the real kubelet."""
    healths = [
        (resource, device_id, container.health[device_id])
        for resource, ids in container.devices.items()
        for device_id in ids
        if device_id in container.health
    ]
    # The pod has a name of its own for the claim.
    healths += [
        (f"claim:{claim.name}", claim.cdi, claim.health) for claim in container.claims if claim.health
    ]
    random.shuffle(healths)
    statuses: dict[str, list[dict[str, str]]] = {}
    for name, device_id, health in healths:
        statuses.setdefault(name, []).append({"resourceID": device_id, "health": health})
    return [messages.ResourceStatus(name=name, resources=of_name) for name, of_name in statuses.items()]


def _map_entries(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": text} for key, text in texts.items()]
