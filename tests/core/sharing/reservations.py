"""Pods that reserve GPUs and pods with fractions of them, for the tests of KAI and run:ai."""

from exporter.model import Allocation, ContainerRef, PodIdentity
from tests.core.attribution.build import UUID
from tests.core.sharing.build import pod

GROUP = "df7c0dd3-9795-443c-85b9-acbf49c8fb6b"
OTHER_GROUP = "5e0b4c8a-2f11-4d7c-93c6-1b2a7d9e8f00"
KAI = ("kai-resource-reservation", "resource-reservation")
RUNAI = ("runai-reservation", "runai-reservation")


def reservation(
    group=GROUP, device=UUID, name="gpu-reservation-node-1-x7k2p", where=KAI, **more
) -> PodIdentity:
    """Return a reservation pod; ``where`` is its namespace and the name of its container."""
    namespace, container = where
    annotations = {"run.ai/reserve_for_gpu_index": device} if device is not None else {}
    values = {"labels": {"runai-gpu-group": group}, "containers": (container,), "namespace": namespace}
    return pod(name, annotations, **(values | more))


def reserved(device=UUID, name="gpu-reservation-node-1-x7k2p", where=KAI) -> list[Allocation]:
    """Return what the kubelet says of a reservation pod."""
    return [Allocation(ContainerRef(where[0], name, where[1]), "nvidia.com/gpu", device)]


def fraction(name, annotations=None, group=GROUP, **more) -> PodIdentity:
    """Return a pod with a fraction of the GPU of a group."""
    labels = {"runai-gpu-group": group} if group else {}
    return pod(name, {"gpu-fraction": "0.5"} if annotations is None else annotations, labels=labels, **more)
