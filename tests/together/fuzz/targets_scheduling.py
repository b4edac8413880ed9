"""Objects that scheduling depends on, as the API server hands them out, and the texts in them."""

import json
from typing import Any

from exporter.kubernetes.collection import _json
from exporter.kubernetes.device_claims import read_claim, read_class, read_slice
from exporter.kubernetes.scheduling import read_cluster_node, read_placed_pod, read_waiting_pod
from exporter.model.quantity import amount, billionths
from exporter.waiting.cel import SelectorError, matches
from exporter.waiting.cel_syntax import NotSimpleError, parse
from exporter.waiting.objects import DeviceName, Objects, OfferedDraDevice, Version
from exporter.waiting.verdict import Judge
from tests.core.kubernetes import scheduling_objects
from tests.together.fuzz.target import Target

_KINDS = ("NODE", "POD", "CLAIM", "SLICE", "CLASS")
_DEVICE = OfferedDraDevice(
    name=DeviceName("d", "n1", "gpu-0"),
    attributes={"d/type": "gpu", "d/index": 3, "d/healthy": True, "d/version": Version("1.2.3")},
    capacity={"d/memory": billionths("40Gi")},
)
_SELECTORS = (
    "device.driver == 'd' && device.attributes['d'].type in ['gpu', 'mig']",
    "!has(device.attributes['d'].uuid) || device.attributes['d'].index > 2",
    "device.capacity['d'].memory.compareTo(quantity('30Gi')) >= 0",
    "device.attributes['d'].version.isLessThan(semver('2.0.0-rc.1'))",
)


def _judged(content: bytes) -> Any:
    """Read objects of all kinds, and judge the pod that waits."""
    read = _json(content)
    node_, pod, claim_, slice_, class_ = (_json(json.dumps(read.get(kind)).encode()) for kind in _KINDS)
    node, waiting, placed = read_cluster_node(node_), read_waiting_pod(pod), read_placed_pod(pod)
    claim, piece, kind = read_claim(claim_), read_slice(slice_), read_class(class_)
    objects = Objects(
        nodes={} if node is None else {node.name: node},
        placed=() if placed is None else (placed,),
        waiting=() if waiting is None else (waiting,),
        claims={} if claim is None else {(claim.namespace, claim.name): claim},
        slices=() if piece is None else (piece,),
        classes={} if kind is None else {kind.name: kind},
    )
    verdicts = None if waiting is None else Judge(objects).judge(waiting)
    return objects, verdicts, None if verdicts is None else verdicts.message()


def _quantity(content: bytes) -> Any:
    size = billionths(content.decode(errors="replace"))
    return size, amount("cpu", size), amount("memory", size)


def _selected(content: bytes) -> bool:
    parse.cache_clear()
    return matches(content.decode(errors="replace"), _DEVICE)


TARGETS = (
    Target(
        name="api-scheduling",
        covers=(
            "exporter.kubernetes.scheduling",
            "exporter.kubernetes.pod_requests",
            "exporter.kubernetes.device_claims",
        ),
        seeds=lambda: [
            json.dumps({kind: getattr(scheduling_objects, kind) for kind in _KINDS}).encode(),
            json.dumps({"NODE": scheduling_objects.NODE, "POD": scheduling_objects.POD}).encode(),
        ],
        decode=_judged,
        words=(b"null", b'"nodeName":"n1"', b'"All"', b'"c1"', b'"resourceClaims":['),
        cost=2,
    ),
    Target(
        name="quantity",
        covers=("exporter.model.quantity",),
        seeds=lambda: [b"1500m", b"40Gi", b"0.5", b"12e-3"],
        decode=_quantity,
        refuses=(ValueError,),
        words=(b"Ki", b"E", b"e9", b".", b"-"),
    ),
    Target(
        name="device-selector",
        covers=("exporter.waiting.cel", "exporter.waiting.cel_syntax"),
        seeds=lambda: [each.encode() for each in _SELECTORS],
        decode=_selected,
        refuses=(NotSimpleError, SelectorError),
        words=(b"&&", b"||", b"!", b"in", b"has(", b"device.attributes['d']", b".type", b"[", b"true"),
    ),
)
