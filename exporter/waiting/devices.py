"""Whether the devices of a node can serve the resource claims (DRA) of a pod.

The scheduler tries all choices of devices, so claims can be served exactly if their requests can be matched
with free devices. With doubts, about a device or a request, the only answer left is "no": if not even all
doubtful devices together would do. Format:
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-slice-v1/
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from exporter.waiting.affinity import any_term_matches
from exporter.waiting.cel import SelectorError, matches
from exporter.waiting.cel_syntax import NotSimpleError
from exporter.waiting.filters import ClusterState, Finding, Reason
from exporter.waiting.objects import (
    ClaimRequest,
    ClusterNode,
    DeviceName,
    OfferedDraDevice,
    ResourceClaim,
    ResourceSlice,
    WaitingPod,
)

MOST_DEVICES: Final = 32
"""Devices that one claim can have. The scheduler reports an error for more."""
_MOST_SEARCHED: Final = 256
_ELSEWHERE: Final = Reason("resourceclaim not available on the node", "a claim has its devices elsewhere")
_TOO_FEW: Final = Reason("cannot allocate all claims", "too few devices that match the claims are free")


class Pool(NamedTuple):
    """The devices of a pool that a node can use."""

    devices: tuple[OfferedDraDevice, ...]
    complete: bool  # an incomplete pool is being updated, and no device of it is used


@dataclass(slots=True)
class Doubts:
    """What could not be judged, and whether the scheduler may meet an error."""

    words: dict[str, None] = field(default_factory=dict)
    may_abort: bool = False

    def add(self, *words: str, abort: bool = False) -> None:
        self.words.update(dict.fromkeys(words))
        self.may_abort = self.may_abort or abort

    def finding(self, *reasons: Reason) -> Finding | None:
        """Return them with the reasons for "no", None if there is neither."""
        if not reasons and not self.words:
            return None
        return Finding(reasons, tuple(self.words), self.may_abort)


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
        search = _Search(self, tuple(self.pools(node)), doubts)
        for requests, unread in wanted:
            doubts.add(*unread)
            if not search.take_up(requests):
                return False
        return search.matched()

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
            whole = sum(each.generation == newest for each in pool) == chosen[0].slices_of_pool
            yield _pool(chosen, complete=complete or whole)

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


def _pool(slices: Sequence[ResourceSlice], *, complete: bool) -> Pool:
    devices = [_doubtful(device, each.unread) for each in slices for device in each.devices]
    if len({device.name for device in devices}) < len(devices):
        devices = [_doubtful(device, ("devices of one name",)) for device in devices]
    return Pool(tuple(devices), complete)


def _doubtful(device: OfferedDraDevice, doubts: tuple[str, ...]) -> OfferedDraDevice:
    return replace(device, unread=(*device.unread, *doubts)) if doubts else device


@dataclass(slots=True)
class _Search:
    """The search for devices of one node for all claims of a pod."""

    devices: Devices
    pools: tuple[Pool, ...]
    doubts: Doubts
    taken: set[DeviceName] = field(default_factory=set)
    wanted: list[ClaimRequest] = field(default_factory=list)

    def take_up(self, requests: Sequence[ClaimRequest]) -> bool:
        """Take up the requests of a claim; return False if one for all devices cannot be served."""
        size = 0
        for request in requests:
            self.doubts.add(*request.unread)
            if request.unread:
                continue
            if request.count is not None:
                self.wanted.append(request)
                size += request.count
                continue
            chosen = self._all(request)
            if chosen is not None and (not chosen or chosen & (self.devices.in_use | self.taken)):
                return False
            self.taken |= chosen or set()
            size += len(chosen or ())
        if size > MOST_DEVICES:
            self.doubts.add(f"a claim of more than {MOST_DEVICES} devices", abort=True)
        return True

    def _all(self, request: ClaimRequest) -> set[DeviceName] | None:
        """Return all devices that meet a request, None if that is in doubt."""
        if not all(pool.complete for pool in self.pools):
            self.doubts.add("a pool of devices that is being updated", abort=True)
            return None
        doubts = Doubts()
        devices = (device for pool in self.pools for device in pool.devices)
        chosen = {device.name for device in devices if self._meets(request, device, doubts)}
        self.doubts.add(*doubts.words, abort=doubts.may_abort)
        return None if doubts.words else chosen

    def matched(self) -> bool:
        """Return whether the requests with a count can be matched with free devices."""
        used = self.devices.in_use | self.taken
        pools = [pool for pool in self.pools if pool.complete]
        free = [device for pool in pools for device in pool.devices if device.name not in used]
        size = sum(request.count or 0 for request in self.wanted)
        if size > len(free):
            return False
        if size > _MOST_SEARCHED:
            self.doubts.add(f"claims of more than {_MOST_SEARCHED} devices")
            return True
        slots: list[list[int]] = []
        for request in self.wanted:
            places = [place for place, device in enumerate(free) if self._meets(request, device, self.doubts)]
            slots.extend([places] * (request.count or 0))
        return assigned(slots)

    def _meets(self, request: ClaimRequest, device: OfferedDraDevice, doubts: Doubts) -> bool:
        """Return whether a device meets a request; a doubtful one does, and is noted."""
        kind = (self.devices.state.objects.classes or {}).get(request.device_class)
        found = Doubts()
        for expression in (*(kind.selectors if kind is not None else ()), *request.selectors):
            try:
                if not matches(expression, device):
                    # An error before this one ends the attempt of the scheduler.
                    doubts.add(*found.words, abort=found.may_abort)
                    return False
            except NotSimpleError:
                found.add("a selector of devices that is not simple", abort=True)
            except SelectorError:
                found.add("a selector that fails for a device", abort=True)
        doubts.add(*found.words, *device.unread, abort=found.may_abort)
        return True


def assigned(slots: Sequence[Sequence[int]]) -> bool:
    """Return whether each slot can have a place of its own; each slot lists its possible places.

    A slot whose places are taken moves others, along the path by which all keep one.
    """
    owner: dict[int, int] = {}

    def place(slot: int, tried: set[int]) -> bool:
        for each in slots[slot]:
            if each not in tried:
                tried.add(each)
                if each not in owner or place(owner[each], tried):
                    owner[each] = slot
                    return True
        return False

    return all(place(slot, set()) for slot in range(len(slots)))
