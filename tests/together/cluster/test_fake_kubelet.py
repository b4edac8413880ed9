"""The fake kubelet of the demo and the tests answers as the real one does about the same pods."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario.pods import Container, Pod
from podresources import messages
from tests.together.cluster.conftest import NUMA_NODES, PODS_API, RESOURCES, Cluster
from tests.together.cluster.truth import Task, tasks

pytestmark = [pytest.mark.tools, pytest.mark.timeout(900)]

Answers = dict[str, bytes]


def _ask(root: Path) -> Answers:
    answers = {}
    for method, (socket, _) in CALLS.items():
        options = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix:{root / socket}", options) as channel:
            answers[method] = channel.unary_unary(method)(b"", timeout=60)
    return answers


async def _fake(root: Path, pods: list[Pod], sidecars: frozenset[str]) -> Answers:
    kubelet = FakeKubelet(root, pods_api=True)
    kubelet.pods, kubelet.sidecars = pods, sidecars
    kubelet.held_nodes = kubelet.offered_nodes = NUMA_NODES
    kubelet.offered = [(name, each) for name, ids in RESOURCES.items() for each in ids]
    await kubelet.start()
    try:
        return await asyncio.to_thread(_ask, root)
    finally:
        await kubelet.stop()


def _pod(item: dict[str, Any], running: list[Task]) -> Pod:
    metadata, spec, status = item["metadata"], item["spec"], item["status"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    given = {each.container: each.devices for each in running if each.pod == name}
    states = [*status["containerStatuses"], *status.get("initContainerStatuses", ())]
    ids = {each["name"]: each.get("containerID", "").rpartition("/")[2] for each in states}
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        phase=status["phase"],
        containers=tuple(
            Container(
                name=each["name"],
                devices=_devices(given.get(each["name"], ())),
                container_id=ids[each["name"]],
                init=key == "initContainers",
                limits={name: int(text) for name, text in each["resources"].get("limits", {}).items()},
                health=dict.fromkeys(given.get(each["name"], ()), "Healthy"),
            )
            for key in ("containers", "initContainers")
            for each in spec.get(key, ())
        ),
    )


def _devices(ids: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    held = {name: tuple(each for each in ids if each in offered) for name, offered in RESOURCES.items()}
    return {name: of_resource for name, of_resource in held.items() if of_resource}


def _sidecars(items: list[dict[str, Any]]) -> frozenset[str]:
    init = (each for item in items for each in item["spec"].get("initContainers", ()))
    return frozenset(each["name"] for each in init if each.get("restartPolicy") == "Always")


def _sorted(message: Any) -> Any:
    """Return a message as nested tuples, in which the order of repeated fields does not matter."""
    fields = []
    for field, value in message.ListFields():
        if field.name not in {"labels", "annotations"}:
            parts = value if field.is_repeated else [value]
            nested = [_sorted(each) if field.message_type else each for each in parts]
            fields.append((field.name, tuple(sorted(nested, key=repr))))
    return tuple(fields)


def _listed(answer: bytes) -> list[Any]:
    pods = messages.ListPodResourcesResponse.FromString(answer).pod_resources
    return sorted((_sorted(each) for each in pods if each.namespace == "default"), key=repr)


def _offered(answer: bytes) -> Any:
    return _sorted(messages.AllocatableResourcesResponse.FromString(answer))


def _pods(answer: bytes) -> list[Any]:
    payloads = messages.ListPodsResponse.FromString(answer).pods
    pods = [messages.Pod.FromString(each) for each in payloads]
    return sorted((_sorted(each) for each in pods if each.metadata.namespace == "default"), key=repr)


POD_RESOURCES, PODS = "pod-resources/kubelet.sock", "pods-api/pods-api.sock"
CALLS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    messages.LIST_V1: (POD_RESOURCES, _listed),
    messages.ALLOCATABLE_V1: (POD_RESOURCES, _offered),
    messages.LIST_PODS: (PODS, _pods),
}


async def test_the_fake_kubelet_answers_as_the_real_one(cluster: Cluster, tmp_path: Path) -> None:
    """About the same pods both report the same devices, NUMA nodes, ids, states, limits and health."""
    if cluster.node.minor < PODS_API:
        pytest.skip(f"the fake kubelet answers as one of Kubernetes 1.{PODS_API}")
    running = tasks(cluster.node)
    items = cluster.node.objects("pods")
    pods = [_pod(item, running) for item in items]

    real = await asyncio.to_thread(_ask, cluster.node.folder / "kubelet")
    fake = await _fake(tmp_path, pods, _sidecars(items))

    for method, (_, read) in CALLS.items():
        assert read(fake[method]) == read(real[method]), method
