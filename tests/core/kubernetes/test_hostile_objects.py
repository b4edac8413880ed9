"""Every field of every object is spoiled: a hostile one costs at most its own object."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from exporter.kubernetes.device_claims import read_claim, read_class, read_slice
from exporter.kubernetes.scheduling import read_cluster_node, read_placed_pod, read_waiting_pod
from exporter.waiting.answer import Answering
from exporter.waiting.gpu_facts import GpuFacts, IdlePod
from exporter.waiting.objects import Objects, PodKey
from tests.core.kubernetes import scheduling_objects

Json = dict[str, Any]
HOSTILE: tuple[Any, ...] = (None, True, -7, 1 << 70, "", "x" * 1000, "\ud800", [], [None], {}, {"a": [None]})
KINDS = ("NODE", "POD", "CLAIM", "SLICE", "CLASS")
FACTS = GpuFacts(at=0.0, idle=(IdlePod(PodKey("ml", "other"), "n1", 60.0),))
PLACED: Json = deepcopy(scheduling_objects.POD)
PLACED["spec"]["nodeName"] = "n1"


def judge(read: dict[str, Json]) -> Any:
    """Read one object of each kind, and look for what would help the pod that waits."""
    node, waiting = read_cluster_node(read["NODE"]), read_waiting_pod(read["POD"])
    placed = read_placed_pod(read["POD"] | {"spec": PLACED["spec"]})
    claim, piece, kind = read_claim(read["CLAIM"]), read_slice(read["SLICE"]), read_class(read["CLASS"])
    objects = Objects(
        nodes={} if node is None else {node.name: node},
        placed=() if placed is None else (placed,),
        waiting=() if waiting is None else (waiting,),
        claims={} if claim is None else {(claim.namespace, claim.name): claim},
        slices=() if piece is None else (piece,),
        classes={} if kind is None else {kind.name: kind},
    )
    return None if waiting is None else Answering(objects, FACTS, 0.0).answer(waiting)


def paths(thing: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value of an object."""
    yield path
    for key in thing if isinstance(thing, dict) else range(len(thing)) if isinstance(thing, list) else ():
        yield from paths(thing[key], (*path, key))


def spoiled(thing: Json, path: tuple[Any, ...], value: Any) -> Json:
    """Return an object with another value at a path."""
    made = deepcopy(thing)
    parent: Any = made
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_every_spoiled_field_is_read_or_left_out(kind: str) -> None:
    whole: dict[str, Json] = {name: getattr(scheduling_objects, name) for name in KINDS}
    count = 0
    for path in paths(whole[kind]):
        for value in HOSTILE if path else ():
            judge(whole | {kind: spoiled(whole[kind], path, value)})
            count += 1

    assert count > len(HOSTILE) * 5


@pytest.mark.parametrize("value", [None, 7, "cpu", [], {"a": "b"}])
def test_only_the_spoiled_part_is_lost(value: Any) -> None:
    """A pod with an odd list of tolerations still has its requests, and a node its labels."""
    read: dict[str, Callable[[Json], Any]] = {"NODE": read_cluster_node, "POD": read_waiting_pod}
    pod = read["POD"](spoiled(scheduling_objects.POD, ("spec", "tolerations"), value))
    node = read["NODE"](spoiled(scheduling_objects.NODE, ("spec", "taints"), value))

    assert (pod.tolerations, pod.requests["cpu"], pod.claims) == ((), 2001, ("c1", "c2"))
    assert (node.taints, node.labels, node.allocatable["cpu"]) == ((), {"zone": "a"}, 4000)
