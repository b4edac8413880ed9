"""What the kubelet and the API server answer: protobuf and JSON, as bytes from a socket."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from exporter.demo.node import FakeNode
from exporter.kubernetes.cluster import by_uid, read_node, read_pod
from exporter.kubernetes.collection import _json
from exporter.kubernetes.listing import ListParser, NoListError
from podresources import messages
from podresources.messages import DECODE_ERRORS
from podresources.pods import PodsApi
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.seeds import walk_node
from tests.together.fuzz.target import Target

SMALL = ("hami", "dra", "a10-mps")
# So a watch hands out what it gets: pieces end anywhere.
PIECE = 37


@cache
def _answers(method: str) -> Sequence[bytes]:
    def look(node: FakeNode) -> bytes:
        node.kubelet.pods = node.kubelet.pods[:3]
        node.kubelet.offered = node.kubelet.offered[:6]
        answer: bytes = getattr(node.kubelet, method)()
        return answer

    return [walk_node(scenario, look) for scenario in SMALL]


def _check_listed(told: messages.Listed) -> None:
    for entries in (told.allocated, told.claims):
        if len(set(entries)) < len(entries) or sorted(entries) != list(entries):
            raise BrokenPromiseError("the kubelet's devices are not sorted, or not free of duplicates")
    if not {each.holder for each in (*told.allocated, *told.claims)} <= told.containers:
        raise BrokenPromiseError("a holder is not among the containers of the list")


POD = {
    "metadata": {
        "name": "llm-0",
        "namespace": "chat",
        "uid": "6a1f3c8e-0000-4000-8000-000000000001",
        "resourceVersion": "7",
        "labels": {"app": "llm"},
        "annotations": {
            "hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,8000,30:;",
            "kubernetes.io/config.mirror": "x",
        },
    },
    "spec": {
        "initContainers": [{"name": "setup"}],
        "containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}}],
    },
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "server", "containerID": "containerd://" + "ab" * 32}],
    },
}


def _objects(content: bytes) -> Any:
    """Read a list as it comes in, and all objects of it as pods and as nodes."""
    listing = ListParser()
    pieces = (content[place : place + PIECE] for place in range(0, len(content), PIECE))
    found = [_json(each or b"") for piece in pieces for each in listing.feed(piece)]
    pods = [pod for pod in map(read_pod, found) if pod is not None]
    return (
        pods,
        [read_node(each) for each in found],
        by_uid({pod.uid: pod for pod in pods}),
        listing.version(),
    )


TARGETS = (
    Target(
        name="kubelet-list",
        covers=("podresources.messages",),
        seeds=lambda: _answers("_list"),
        decode=lambda content: messages.Lists().listed(content),
        refuses=DECODE_ERRORS,
        check=_check_listed,
    ),
    Target(
        name="kubelet-allocatable",
        covers=("podresources.messages",),
        seeds=lambda: _answers("_allocatable"),
        decode=messages.offered,
        refuses=DECODE_ERRORS,
    ),
    Target(
        name="kubelet-pods",
        covers=("podresources.pods", "podresources.messages", "exporter.model.kubelet"),
        seeds=lambda: _answers("_list_pods"),
        decode=lambda content: PodsApi(Path(), timeout=0)._decoded(content),
        refuses=DECODE_ERRORS,
    ),
    Target(
        name="api-objects",
        covers=(
            "exporter.kubernetes.collection",
            "exporter.kubernetes.listing",
            "exporter.kubernetes.cluster",
        ),
        seeds=lambda: [
            json.dumps({"metadata": {"resourceVersion": "9"}, "items": [POD, POD]}).encode(),
            b'{"items": [ {"metadata":{"name":"\\u00e9"}} , null, [{}] ],"metadata":{"resourceVersion":"1"}}',
        ],
        decode=_objects,
        refuses=(NoListError,),
        words=(b"null", b"\\ud800", b'\\"', b'"items":['),
    ),
)
