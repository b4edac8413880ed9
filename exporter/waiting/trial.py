"""Changes of one node carried out in thought, to see whether a waiting pod would then fit it.

Only that pod is judged: others that wait may take what becomes free.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from exporter.waiting.device_changes import DeviceChanges
from exporter.waiting.filters import CORDON, ClusterState
from exporter.waiting.objects import (
    Amounts,
    ClusterNode,
    DeviceName,
    PlacedPod,
    PodKey,
    ResourceClaim,
    WaitingPod,
)
from exporter.waiting.verdict import Judge, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is different of a node, or of the pod."""

    node: str
    gone: AbstractSet[PodKey] = frozenset()  # pods that have left it
    # What it offers more of each resource, less if negative.
    offers: Mapping[str, int] = field(default_factory=dict)
    uncordoned: bool = False
    untainted: AbstractSet[DeviceName] = frozenset()  # devices that have no taint any more
    requests: Amounts | None = None  # of the pod, instead of its own
    claims: tuple[ResourceClaim, ...] = ()  # of the pod, instead of its own of the same names


class Trials:
    """Judges pods after changes of a node."""

    def __init__(self, state: ClusterState) -> None:
        self._objects, self._state, self._nominated = state.objects, state, state.nominated
        self.devices = DeviceChanges(self._objects)
        by_node: defaultdict[str, list[PlacedPod]] = defaultdict(list)
        for pod in self._objects.placed:
            by_node[pod.node].append(pod)
        self._by_node = dict(by_node)
        self._named: dict[str, Mapping[PodKey, PlacedPod]] = {}
        ending: defaultdict[str, list[PlacedPod]] = defaultdict(list)
        for pod in self._objects.placed:
            if pod.ending and all(pod.key):
                ending[pod.node].append(pod)
        # Pods that are ending, by node, in the order of the nodes' names.
        self.ending: Mapping[str, Sequence[PlacedPod]] = dict(sorted(ending.items()))

    def pod(self, node: str, key: PodKey) -> PlacedPod | None:
        """Return a pod of a node by name, None if it is not there."""
        if node not in self._named:
            self._named[node] = {pod.key: pod for pod in self._by_node.get(node, ())}
        return self._named[node].get(key)

    def after(self, pod: WaitingPod, change: Change) -> Verdict:
        """Return the verdict of a pod on the node after a change."""
        stay = [each for each in self._by_node.get(change.node, ()) if each.key not in change.gone]
        nodes = self._objects.nodes
        place = nodes[change.node]
        # Other nodes matter only as places of pods that keep others out of their part of the cluster.
        elsewhere = self._state.guards.beside(place)
        places = {each.node: nodes[each.node] for each in elsewhere}
        objects = replace(
            self.devices.after(pod, change.node, change.gone, change.untainted, change.claims),
            nodes={**places, change.node: _changed(place, change)},
            placed=(*stay, *elsewhere),
            waiting=self._nominated.get(change.node, ()),
        )
        asking = pod if change.requests is None else replace(pod, requests=change.requests)
        ((verdict, _),) = Judge(objects, (change.node,)).judge(asking).groups
        return verdict


def _changed(node: ClusterNode, change: Change) -> ClusterNode:
    allocatable = dict(node.allocatable)
    for name, count in change.offers.items():
        allocatable[name] = max(allocatable.get(name, 0) + count, 0)
    if not change.uncordoned:
        return replace(node, allocatable=allocatable)
    # The node controller puts a taint on a cordoned node, and takes it away with the cordon.
    taints = tuple(taint for taint in node.taints if (taint.key, taint.effect) != (CORDON.key, CORDON.effect))
    return replace(node, allocatable=allocatable, taints=taints, cordoned=False)
