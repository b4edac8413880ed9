"""Nodes and pods that are alike for a filter, which is then asked once for all of them.

A large cluster has thousands of nodes, but few sets of taints and of labels that pods ask for. Of amounts it
only matters whether they suffice.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from exporter.waiting.affinity import asked_labels
from exporter.waiting.devices import Devices
from exporter.waiting.filters import ClusterState, Filter, Finding
from exporter.waiting.objects import ClusterNode, WaitingPod

Split = tuple[list[tuple[Finding, list[int]]], list[int]]
"""Findings, each with its nodes, and the nodes without one; a node is its place among the nodes."""
_NOT_ASKED: Final = Finding(unjudged=("not asked yet",))


class _Kinds(NamedTuple):
    """Nodes by their kind: those of one kind are alike."""

    of_nodes: Sequence[int]  # the kind of each node
    examples: Sequence[ClusterNode]  # a node of each kind


class Findings:
    """What the filters find on the nodes of a cluster."""

    def __init__(self, state: ClusterState, devices: Devices, nodes: Sequence[ClusterNode]) -> None:
        self._state, self._devices, self._nodes = state, devices, nodes
        self._kinds: dict[Hashable, _Kinds] = {}
        self._amounts: dict[str, list[tuple[int, int]]] = {}
        self._found: dict[Hashable, list[Finding | None]] = {}
        self._arrange: Mapping[str, Callable[[WaitingPod], _Kinds]] = {
            "NodeUnschedulable": self._by_cordon,
            "TaintToleration": self._by_taints,
            "NodeAffinity": self._by_labels,
            "NodeResourcesFit": self._by_amounts,
            "InterPodAffinity": self._by_topology,
        }

    def split(self, name: str, judged: Filter, pod: WaitingPod, nodes: list[int]) -> Split:
        """Return the findings of a filter of the scheduler, by its name, on some nodes."""
        if len(self._nodes) == 1:
            # There is nothing to share.
            finding = judged(pod, self._nodes[0], self._state)
            return ([], nodes) if finding is None else ([(finding, nodes)], [])
        if name == "DynamicResources":
            return self._of_devices(judged, pod, nodes)
        kinds = self._arrange[name](pod)
        seen = (name, self._seen(name, pod))
        if seen not in self._found:
            self._found[seen] = [judged(pod, example, self._state) for example in kinds.examples]
        found, kind_of = self._found[seen], kinds.of_nodes
        if not any(found):
            return [], nodes
        by_kind: dict[int, list[int]] = {}
        for node in nodes:
            if found[kind_of[node]] is not None:
                by_kind.setdefault(kind_of[node], []).append(node)
        split = [(finding, each) for kind, each in by_kind.items() if (finding := found[kind]) is not None]
        return split, [node for node in nodes if found[kind_of[node]] is None]

    def _of_devices(self, judged: Filter, pod: WaitingPod, nodes: list[int]) -> Split:
        """Return the findings on single nodes: each has devices of its own."""
        found = self._found.setdefault(self._devices.asked(pod), [_NOT_ASKED] * len(self._nodes))
        split: defaultdict[Finding, list[int]] = defaultdict(list)
        rest = []
        for node in nodes:
            if found[node] is _NOT_ASKED:
                found[node] = judged(pod, self._nodes[node], self._state)
            if (finding := found[node]) is None:
                rest.append(node)
            else:
                split[finding].append(node)
        return list(split.items()), rest

    def _seen(self, name: str, pod: WaitingPod) -> Hashable:
        """Return all that a filter sees of a pod."""
        match name:
            case "NodeAffinity":
                return (frozenset(pod.selector.items()), pod.affinity)
            case "NodeResourcesFit":
                return self._asked_amounts(pod)
            case "InterPodAffinity":
                return self._state.guards.seen_of(pod)
        return pod.tolerations

    def _asked_amounts(self, pod: WaitingPod) -> Hashable:
        # Pods that preemption makes room for count by their priority.
        place = (pod.uid, pod.priority) if self._state.nominated else ()
        return (frozenset(pod.requests.items()), *place)

    def _by_keys(self, why: Hashable, keys: Callable[[], Iterable[Hashable]]) -> _Kinds:
        """Return the kinds of nodes by keys, one for each node; ``why`` says what these depend on."""
        if why not in self._kinds:
            kinds: dict[Hashable, int] = {}
            of_nodes = [kinds.setdefault(key, len(kinds)) for key in keys()]
            examples = dict(zip(reversed(of_nodes), reversed(self._nodes), strict=True))
            self._kinds[why] = _Kinds(of_nodes, [examples[kind] for kind in range(len(kinds))])
        return self._kinds[why]

    def _by_cordon(self, _: WaitingPod) -> _Kinds:
        return self._by_keys("cordon", lambda: (node.cordoned for node in self._nodes))

    def _by_taints(self, _: WaitingPod) -> _Kinds:
        return self._by_keys("taints", lambda: (node.taints for node in self._nodes))

    def _by_labels(self, pod: WaitingPod) -> _Kinds:
        asked = asked_labels(pod.selector, pod.affinity)
        named = any(term.fields for term in pod.affinity or ())
        return self._by_keys(
            ("labels", asked, named),
            lambda: self._labels(asked, [node.name for node in self._nodes if named]),
        )

    def _by_topology(self, _: WaitingPod) -> _Kinds:
        return self._by_keys("topology", lambda: self._labels(self._state.guards.topologies, ()))

    def _labels(self, names: Iterable[str], node_names: Sequence[str]) -> Iterable[Hashable]:
        """Yield labels of each node by their names, with the node's name if these are given."""
        own: Sequence[str] = node_names or [""] * len(self._nodes)
        for node, own_name in zip(self._nodes, own, strict=True):
            yield (own_name, *map(node.labels.get, names))

    def _by_amounts(self, pod: WaitingPod) -> _Kinds:
        return self._by_keys(("amounts", self._asked_amounts(pod)), lambda: self._keys_of_amounts(pod))

    def _keys_of_amounts(self, pod: WaitingPod) -> Iterable[Hashable]:
        """Return what of each node decides whether it has what a pod requests."""
        columns = (self._shortages(name, needed) for name, needed in pod.requests.items())
        return zip(*columns, self._odd, strict=True)

    def _shortages(self, name: str, needed: int) -> list[bool | None]:
        """Return of each node with too little of a resource whether it has any, and None of all others."""
        if name not in self._amounts:
            self._amounts[name] = [self._state.amounts(node, name) for node in self._nodes]
        return [capacity > 0 if free < needed else None for free, capacity in self._amounts[name]]

    @cached_property
    def _odd(self) -> Sequence[Hashable]:
        """What else of each node decides on requests: amounts that cannot be read, and pods to come."""
        unreadable, nominated = self._state.unreadable, self._state.nominated
        return [
            (node.unread, node.name in unreadable, node.name if node.name in nominated else "")
            for node in self._nodes
        ]
