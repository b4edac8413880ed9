"""Pods that keep others out of their part of the cluster, by required anti-affinity: guards.

A part is the nodes that have one value of a label, such as a zone. Format:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#inter-pod-affinity-and-anti-affinity
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeAlias

from exporter.waiting.objects import AvoidedPods, ClusterNode, Objects, PlacedPod, WaitingPod

Part: TypeAlias = tuple[str, str | None]
"""The label and its value; None is no part."""


class Guards:
    """The guards of a cluster."""

    def __init__(self, objects: Objects) -> None:
        self._pods = tuple(pod for pod in objects.placed if pod.avoids)
        self._nodes = objects.nodes

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._pods)

    @cached_property
    def topologies(self) -> tuple[str, ...]:
        """The labels of nodes by which guards mean a part of the cluster."""
        return tuple(sorted({avoided.topology for pod in self._pods for avoided in pod.avoids}))

    def avoided(self, node: ClusterNode) -> Iterator[AvoidedPods]:
        """Yield what is kept out of a node."""
        for topology, value in self._parts(node):
            for avoids in self._by_part.get((topology, value), ()):
                yield from (each for each in avoids if each.topology == topology)

    def beside(self, node: ClusterNode) -> Iterable[PlacedPod]:
        """Return guards on other nodes that keep out of a node all that those there keep out, each once."""
        alike = (each for part in self._parts(node) for each in self._by_part.get(part, {}).values())
        return {id(each): each for few in alike for each in few if each.node != node.name}.values()

    def seen_of(self, pod: WaitingPod) -> Hashable:
        """Return all of a pod that guards look at: most of its labels are asked for by none of them."""
        named = frozenset((key, pod.labels[key]) for key in self._labels if key in pod.labels)
        return (named, pod.key.namespace) if self else ()

    def _parts(self, node: ClusterNode) -> Iterator[Part]:
        return ((topology, node.labels.get(topology)) for topology in self.topologies)

    @cached_property
    def _by_part(self) -> Mapping[Part, Mapping[tuple[AvoidedPods, ...], list[PlacedPod]]]:
        """Guards by their part of the cluster, and by what they avoid: of those alike, two on two nodes."""
        found: defaultdict[Part, dict[tuple[AvoidedPods, ...], list[PlacedPod]]] = defaultdict(dict)
        for guard in self._pods:
            place = self._nodes.get(guard.node)
            labels = {} if place is None else place.labels
            for avoided in guard.avoids:
                if (value := labels.get(avoided.topology)) is not None:
                    alike = found[avoided.topology, value].setdefault(guard.avoids, [])
                    if not alike or (len(alike) == 1 and alike[0].node != guard.node):
                        alike.append(guard)
        return found

    @cached_property
    def _labels(self) -> frozenset[str]:
        avoided = (each for pod in self._pods for each in pod.avoids)
        return frozenset(condition.key for each in avoided for condition in each.labels or ())
