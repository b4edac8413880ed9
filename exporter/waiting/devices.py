"""Whether the devices of a node can serve the resource claims (DRA) of a pod.

The scheduler tries all choices of devices, so claims can be served exactly if their requests can be matched
with free devices. With doubts, about a device or a request, the only answer left is "no": if not even all
doubtful devices together would do. Format:
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-slice-v1/
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from exporter.waiting.affinity import any_term_matches
from exporter.waiting.device_search import Doubts, Pool, Search
from exporter.waiting.filters import ClusterState, Finding, Reason, add
from exporter.waiting.objects import (
    ClaimRequest,
    ClusterNode,
    DeviceName,
    OfferedDraDevice,
    ResourceClaim,
    ResourceSlice,
    WaitingPod,
)

_ELSEWHERE: Final = Reason("resourceclaim not available on the node", "a claim with its devices elsewhere")
_TOO_FEW: Final = Reason("cannot allocate all claims", "without enough free devices of DRA drivers")


@dataclass(frozen=True)
class Devices:
    """The devices of a cluster, arranged for claims."""

    state: ClusterState

    def before(self, pod: WaitingPod) -> Reason | None:
        """Return why no node is looked at: a claim, or the device class of a request, is missing."""
        objects = self.state.objects
        for name in pod.claims:
            claim = (objects.claims or {}).get((pod.key.namespace, name))
            if objects.claims is not None and (claim is None or claim.ending):
                return _missing(name, claim)
        for request in (each for claim in self._claims(pod, allocated=False) for each in claim.requests):
            if objects.classes is not None and request.device_class not in {"", *objects.classes}:
                text = f"request {request.name}: device class {request.device_class} does not exist"
                return Reason(text, text)
        return None

    def claims(self, pod: WaitingPod, node: ClusterNode, _: ClusterState) -> Finding | None:
        """Return a finding if a node cannot serve all claims of a pod, or if that cannot be judged."""
        doubts = Doubts()
        if pod.claims and self.state.objects.claims is None:
            doubts.add("resource claims")
        wanted = [(each.requests, each.unread) for each in self._claims(pod, allocated=False)]
        if extended := self._extended(pod, node, doubts):
            wanted.append((extended, ()))
        held = self._claims(pod, allocated=True)
        doubts.add(*(words for each in held for words in each.unread))
        if wanted and not self._can_serve(wanted, node, doubts):
            return doubts.finding(_TOO_FEW)
        if any(each.nodes is not None and not any_term_matches(each.nodes, node) for each in held):
            return doubts.finding(_ELSEWHERE)
        return doubts.finding()

    def asked(self, pod: WaitingPod) -> Hashable:
        """Return all that ``before`` and ``claims`` see of a pod, without the names of its own claims."""
        found = [(each.owner in {"", pod.key.name}, each) for each in self._claims(pod, allocated=False)]
        free = tuple((each.requests, each.unread, own or each.owner) for own, each in found)
        held = tuple((each.namespace, each.name) for each in self._claims(pod, allocated=True))
        classes = self.state.classes_of_resources
        extended = tuple((name, count) for name, count in pod.requests.items() if name in classes)
        return (bool(pod.claims), free, held, extended, self.before(pod))

    def _claims(self, pod: WaitingPod, *, allocated: bool) -> list[ResourceClaim]:
        claims = self.state.objects.claims or {}
        found = (claims.get((pod.key.namespace, name)) for name in pod.claims)
        return [each for each in found if each is not None and (each.allocated is not None) == allocated]

    def _extended(self, pod: WaitingPod, node: ClusterNode, doubts: Doubts) -> tuple[ClaimRequest, ...]:
        """Return what extended resources of a pod that device classes have ask of a node."""
        requests = []
        for name, count in self.state.by_claims(pod, node).items():
            first, *others = self.state.classes_of_resources[name]
            if others:
                doubts.add(f"which device class has {name}")
            requests.append(ClaimRequest(name=name, device_class=first, count=count))
        return tuple(requests)

    def _can_serve(
        self,
        wanted: Sequence[tuple[tuple[ClaimRequest, ...], tuple[str, ...]]],
        node: ClusterNode,
        doubts: Doubts,
    ) -> bool:
        """Return whether devices can serve all requests of some claims; with doubts in their favor."""
        objects = self.state.objects
        if objects.slices is None or objects.classes is None:
            doubts.add("devices of DRA drivers")
            return True
        if objects.device_taint_rules:
            doubts.add("device taint rules")
        pools = tuple(self.pools(node))
        if any(pool.complete and not pool.usable for pool in pools):
            doubts.add("a pool of devices that is not valid")
        search = Search(self.in_use, objects.classes, pools, doubts)
        for requests, unread in wanted:
            doubts.add(*unread)
            search.take_up(requests)
        return search.matched()

    def for_alone(self, pod: WaitingPod) -> "Devices":
        """Return the devices as if there were no claims but those of a pod."""
        objects = self.state.objects
        keys = {(pod.key.namespace, name) for name in pod.claims}
        claims = (
            None
            if objects.claims is None
            else {key: objects.claims[key] for key in keys & objects.claims.keys()}
        )
        return Devices(ClusterState(replace(objects, claims=claims, placed=())))

    def lack(self, pod: WaitingPod, node: ClusterNode) -> bool:
        """Return whether a node cannot serve all claims of a pod."""
        finding = self.claims(pod, node, self.state)
        return finding is not None and bool(finding.reasons)

    @cached_property
    def in_use(self) -> frozenset[DeviceName]:
        """The devices that claims have."""
        claims = (self.state.objects.claims or {}).values()
        return frozenset(device for claim in claims for device in claim.allocated or ())

    def pools(self, node: ClusterNode) -> Iterator[Pool]:
        """Yield the pools with devices for a node, as far as their newest generation has any."""
        usable: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
        for each in (*self._of_nodes.get(node.name, ()), *self._shared):
            if each.node or each.unread or each.nodes is None or any_term_matches(each.nodes, node):
                usable[each.driver, each.pool].append(each)
        for name, slices in usable.items():
            newest = max(each.generation for each in slices)
            chosen = [each for each in slices if each.generation == newest]
            pool = self._pools[name]
            complete = len(chosen) == chosen[0].slices_of_pool
            if not complete and any(each.generation > newest for each in pool):
                continue
            current = [each for each in pool if each.generation == newest]
            whole = complete or len(current) == chosen[0].slices_of_pool
            valid = whole and _valid(chosen, current)
            yield Pool(name, tuple(_usable(chosen)), whole, valid, self._counters(current))

    def _counters(self, pool: Sequence[ResourceSlice]) -> Mapping[str, int]:
        """Return what is left of the counters that the devices of a pool share."""
        left: dict[str, int] = {}
        for each in pool:
            add(left, each.counters)
        for device in (device for each in pool for device in each.devices if device.name in self.in_use):
            add(left, {name: -size for name, size in device.counters.items() if name in left})
        return left

    @cached_property
    def _pools(self) -> Mapping[tuple[str, str], list[ResourceSlice]]:
        pools: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
        for each in self.state.objects.slices or ():
            pools[each.driver, each.pool].append(each)
        return pools

    @cached_property
    def _of_nodes(self) -> Mapping[str, list[ResourceSlice]]:
        nodes: defaultdict[str, list[ResourceSlice]] = defaultdict(list)
        for each in self.state.objects.slices or ():
            nodes[each.node].append(each)
        return nodes

    @property
    def _shared(self) -> Sequence[ResourceSlice]:
        return self._of_nodes.get("", ())


def _missing(name: str, claim: ResourceClaim | None) -> Reason:
    """Return why a pod is not even tried, so that the scheduler has no message."""
    if claim is not None:
        return Reason("", f"claim {name} is being deleted")
    return Reason("", f"there is no claim {name}" if name else "a claim was not made of its template yet")


def _usable(slices: Sequence[ResourceSlice]) -> Iterator[OfferedDraDevice]:
    for each in slices:
        for device in each.devices:
            yield replace(device, unread=(*device.unread, *each.unread)) if each.unread else device


def _valid(slices: Sequence[ResourceSlice], pool: Sequence[ResourceSlice]) -> bool:
    """Return whether devices have names of their own, and counters that their pool has."""
    names = [device.name for each in slices for device in each.devices]
    counters = {name for each in pool for name in each.counters}
    used = {name for each in pool for device in each.devices for name in device.counters}
    return len(set(names)) == len(names) and used <= counters
