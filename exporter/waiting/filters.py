"""The filters of the default scheduler, each a pure function of a pod and a node.

A filter returns None if the node passes, else why not, or what cannot be judged. They follow Kubernetes 1.37;
those that are not here (volumes, topology spread, host ports …) are not judged. See
https://kubernetes.io/docs/reference/scheduling/config/#scheduling-plugins
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from exporter.waiting.affinity import any_term_matches, integer, labels_match, selected
from exporter.waiting.guards import Guards
from exporter.waiting.objects import (
    AvoidedPods,
    ClusterNode,
    Objects,
    Taint,
    Toleration,
    WaitingPod,
)

CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of the extended resource that each device class has by its name."""
KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep a new pod out of a node, or away from a device."""


class Reason(NamedTuple):
    """Why a node is out."""

    message: str  # as the scheduler writes it in its message
    words: str
    resource: str = ""  # the resource that does not suffice
    offered: bool = False  # whether the node has any of it, be it free or not


class Finding(NamedTuple):
    """Result of a filter for a node that does not pass: the reasons, or what it cannot judge."""

    reasons: tuple[Reason, ...] = ()
    unjudged: tuple[str, ...] = ()
    # Whether the scheduler may meet an error, which ends its attempt for all nodes.
    may_abort: bool = False


class Offered(NamedTuple):
    """A resource on a node."""

    node: str
    free: int
    capacity: int


@dataclass(frozen=True)
class ClusterState:
    """The objects of a cluster, arranged for the filters."""

    objects: Objects
    # By node: what its pods take together, without pods that preemption makes room for.
    taken: Mapping[str, Mapping[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        taken: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for pod in self.objects.placed:
            add(taken[pod.node], pod.requests)
        object.__setattr__(self, "taken", dict(taken))

    def amounts(self, node: ClusterNode, resource: str) -> tuple[int, int]:
        """Return how much of a resource is free on a node, and how much it has."""
        capacity = node.allocatable.get(resource, 0)
        return capacity - self.taken.get(node.name, {}).get(resource, 0), capacity

    @cached_property
    def offers(self) -> Mapping[str, tuple[Offered, ...]]:
        """The nodes that have an extended resource, in the order of their names, by the resource."""
        found: defaultdict[str, list[Offered]] = defaultdict(list)
        for _, node in sorted(self.objects.nodes.items()):
            for name, capacity in node.allocatable.items():
                if "/" in name and capacity > 0:
                    found[name].append(Offered(node.name, *self.amounts(node, name)))
        return {name: tuple(each) for name, each in found.items()}

    def taken_for(self, pod: WaitingPod, node: str) -> Mapping[str, int]:
        """Return what is taken on a node for a pod; others that preemption makes room for come first."""
        taken = self.taken.get(node, {})
        for other in self.nominated.get(node, ()) if self.nominated else ():
            if other.uid != pod.uid and (other.priority or 0) >= (pod.priority or 0):
                taken = dict(taken)
                add(taken, other.requests)
        return taken

    @cached_property
    def nominated(self) -> Mapping[str, tuple[WaitingPod, ...]]:
        """Pods that preemption makes room for, by node."""
        found: dict[str, tuple[WaitingPod, ...]] = {}
        for pod in self.objects.waiting:
            if pod.nominated:
                found[pod.nominated] = (*found.get(pod.nominated, ()), pod)
        return found

    @cached_property
    def classes_of_resources(self) -> Mapping[str, tuple[str, ...]]:
        """Device classes by the extended resource through which a pod may ask for them."""
        found: dict[str, tuple[str, ...]] = {}
        for each in (self.objects.classes or {}).values():
            for resource in filter(None, (each.extended_resource, f"{IMPLICIT}{each.name}")):
                found[resource] = (*found.get(resource, ()), each.name)
        return found

    @cached_property
    def unreadable(self) -> frozenset[str]:
        """Nodes on which more is taken than could be read."""
        return frozenset(pod.node for pod in self.objects.placed if not pod.readable)

    @cached_property
    def guards(self) -> Guards:
        """Pods that keep others out of their part of the cluster."""
        return Guards(self.objects)

    def by_claims(self, pod: WaitingPod, node: ClusterNode) -> Mapping[str, int]:
        """Return the requested resources that a node does not count itself and device classes have."""
        if not self.classes_of_resources:
            return {}
        return {
            name: count
            for name, count in pod.requests.items()
            if count and name in self.classes_of_resources and node.allocatable.get(name, 0) <= 0
        }


Filter = Callable[[WaitingPod, ClusterNode, ClusterState], Finding | None]


def cordon(pod: WaitingPod, node: ClusterNode, _: ClusterState) -> Finding | None:
    """Return a finding if the node is cordoned, and the pod does not tolerate that."""
    tolerated = not node.cordoned or tolerates(pod.tolerations, CORDON)
    return _tainted(tolerated, Reason("node(s) were unschedulable", "cordoned"))


def taints(pod: WaitingPod, node: ClusterNode, _: ClusterState) -> Finding | None:
    """Return a finding if a taint keeps the pod out: the first that it does not tolerate."""
    unclear: Finding | None = None
    for taint in node.taints:
        tolerated = taint.effect not in KEEPS_OUT or tolerates(pod.tolerations, taint)
        value = f"={taint.value}" if taint.value else ""
        words = f"taint {taint.key}{value}:{taint.effect}"
        finding = _tainted(tolerated, Reason("node(s) had untolerated taint(s)", words))
        if finding is not None and finding.reasons:
            return finding
        unclear = unclear or finding
    return unclear


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool | None:
    """Return whether a taint is tolerated; None if only by ``Gt`` or ``Lt``, which are off by default."""
    answer: bool | None = False
    for each in tolerations:
        if tolerated := _tolerates(each, taint):
            return True
        answer = None if tolerated is None else answer
    return answer


def _tolerates(toleration: Toleration, taint: Taint) -> bool | None:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            limit, number = integer(toleration.value), integer(taint.value)
            above = toleration.operator == "Gt"
            compared = limit is not None and number is not None and number != limit
            return None if compared and (number > limit) == above else False  # type: ignore[operator]
    return False


def _tainted(tolerated: bool | None, reason: Reason) -> Finding | None:
    if tolerated is None:
        return Finding(unjudged=("tolerations by Gt and Lt",))
    return None if tolerated else Finding((reason,))


def node_affinity(pod: WaitingPod, node: ClusterNode, _: ClusterState) -> Finding | None:
    """Return a finding if the node selector or the required node affinity does not match."""
    message = "node(s) didn't match Pod's node affinity/selector"
    if not selected(pod.selector, node):
        missing = [f"{key}={value}" for key, value in pod.selector.items() if node.labels.get(key) != value]
        return Finding((Reason(message, f"node selector {', '.join(sorted(missing))}"),))
    if pod.affinity is not None and not any_term_matches(pod.affinity, node):
        return Finding((Reason(message, "required node affinity"),))
    return None


def resources(pod: WaitingPod, node: ClusterNode, state: ClusterState) -> Finding | None:
    """Return a finding with each resource of which too little is free.

    Extended resources that the node does not have, and a device class has, are a matter of ``claims``.
    """
    taken, delegated = state.taken_for(pod, node.name), state.by_claims(pod, node)
    reasons: list[Reason] = []
    unjudged = ["requests of pods there"] if node.name in state.unreadable else []
    for name, needed in pod.requests.items():
        capacity = node.allocatable.get(name, 0)
        free = capacity - taken.get(name, 0)
        if needed <= 0 or needed <= free or name in delegated:
            continue
        if name in node.unread:
            unjudged.append(f"how much {name} the node has")
        elif state.objects.classes is None and capacity <= 0 and "/" in name:
            unjudged.append(f"whether a device class has {name}")
        else:
            reasons.append(_insufficient(name, offered=capacity > 0))
    return Finding(tuple(reasons), tuple(unjudged)) if reasons or unjudged else None


def is_device(resource: str) -> bool:
    """Return whether a resource is an extended one, as device plugins offer them."""
    return "/" in resource


def _insufficient(name: str, *, offered: bool) -> Reason:
    """Return the reason without amounts, so that it is the same for all nodes that are alike."""
    message = "Too many pods" if name == "pods" else f"Insufficient {name}"
    words = f"without {name}" if is_device(name) and not offered else f"short of {name}"
    return Reason(message, words, name, offered)


def anti_affinity(pod: WaitingPod, node: ClusterNode, state: ClusterState) -> Finding | None:
    """Return a finding if a pod that runs keeps this pod out of its part of the cluster."""
    answers = {_kept_out(each, pod) for each in state.guards.avoided(node)} - {False}
    if True in answers:
        message = "node(s) didn't satisfy existing pods anti-affinity rules"
        return Finding((Reason(message, "anti-affinity of a pod that runs"),))
    return Finding(unjudged=("labels of namespaces in the anti-affinity of pods",)) if answers else None


def _kept_out(avoided: AvoidedPods, pod: WaitingPod) -> bool | None:
    if avoided.labels is None or not labels_match(avoided.labels, pod.labels):
        return False
    return True if pod.key.namespace in avoided.namespaces else avoided.everywhere


def add(taken: dict[str, int], requests: Mapping[str, int]) -> None:
    """Add requests to what is taken."""
    for name, count in requests.items():
        taken[name] = taken.get(name, 0) + count
