"""Claims and devices (DRA) as they are after a change of one node, as far as they matter there.

A claim that was generated for a pod is deleted with it. Another one gives its devices back with the last pod
that uses it. Source: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from exporter.waiting.cel import SelectorError, matches
from exporter.waiting.cel_syntax import NotSimpleError
from exporter.waiting.filters import KEEPS_OUT
from exporter.waiting.objects import (
    DeviceName,
    Objects,
    OfferedDraDevice,
    PodKey,
    ResourceClaim,
    ResourceSlice,
    WaitingPod,
)

PoolName: TypeAlias = tuple[str, str]
"""Driver and name of a pool."""


class Size(NamedTuple):
    """How large a device is, which is comparable for devices of one driver."""

    driver: str
    capacity: frozenset[tuple[str, int]]


class DeviceChanges:
    """The claims and devices of a cluster, by what a change of one node affects."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._sizes: dict[tuple[str, ...], Mapping[str, AbstractSet[Size]]] = {}

    def held(self, pod: PodKey) -> Sequence[ResourceClaim]:
        """Return the claims with devices that a pod uses."""
        return [
            claim
            for claim in self._of_pods.get(pod, ())
            if claim.allocated and pod.name in (claim.users or ())
        ]

    @cached_property
    def tainted(self) -> Mapping[str, Sequence[OfferedDraDevice]]:
        """The devices that have a taint with effect, by their node, in the order of the nodes' names."""
        found: defaultdict[str, list[OfferedDraDevice]] = defaultdict(list)
        for piece in self._objects.slices or ():
            for device in piece.devices if piece.node else ():
                if any(taint.effect in KEEPS_OUT for taint in device.taints):
                    found[piece.node].append(device)
        return dict(sorted(found.items()))

    def sizes(self, selectors: tuple[str, ...]) -> Mapping[str, AbstractSet[Size]]:
        """Return the sizes of devices that surely meet all selectors, by node; "" is for several nodes."""
        if selectors not in self._sizes:
            found: defaultdict[str, set[Size]] = defaultdict(set)
            for piece in self._objects.slices or ():
                for device in piece.devices:
                    if _meets(selectors, device):
                        size = Size(device.name.driver, frozenset(device.capacity.items()))
                        found[piece.node].add(size)
            self._sizes[selectors] = dict(sorted(found.items()))
        return self._sizes[selectors]

    def after(
        self,
        pod: WaitingPod,
        node: str,
        gone: AbstractSet[PodKey],
        untainted: AbstractSet[DeviceName],
        asked: Iterable[ResourceClaim],
    ) -> Objects:
        """Return the objects with the claims and slices that matter to a pod on a node, after a change.

        ``gone``: pods that have left; ``untainted``: devices without their taints; ``asked``: claims instead
        of those of the pod with the same names.
        """
        claims, slices = self._objects.claims, self._objects.slices
        if slices:
            slices = tuple(_without_taints(each, untainted) for each in self._slices_at(node))
        if claims:
            pools = {(each.driver, each.pool) for each in slices or ()}
            keys = {key for pool in pools for key in self._claims_of_pools.get(pool, ())}
            keys |= {(pod.key.namespace, name) for name in pod.claims}
            leaving = {(claim.namespace, claim.name) for key in gone for claim in self._of_pods.get(key, ())}
            changed = {key: _claim_after(claims[key], gone) for key in keys & leaving}
            kept = {key: claims[key] for key in keys & claims.keys()} | changed
            instead = {(each.namespace, each.name): each for each in asked}
            claims = {key: each for key, each in (kept | instead).items() if each is not None}
        return replace(self._objects, claims=claims, slices=slices)

    @cached_property
    def _of_pods(self) -> Mapping[PodKey, Sequence[ResourceClaim]]:
        """The claims that each pod uses, or that are deleted with it."""
        found: defaultdict[PodKey, list[ResourceClaim]] = defaultdict(list)
        for claim in (self._objects.claims or {}).values():
            for name in {*(claim.users or ()), claim.owner} - {""}:
                found[PodKey(claim.namespace, name)].append(claim)
        return found

    @cached_property
    def _claims_of_pools(self) -> Mapping[PoolName, AbstractSet[tuple[str, str]]]:
        found: defaultdict[PoolName, set[tuple[str, str]]] = defaultdict(set)
        for key, claim in (self._objects.claims or {}).items():
            for device in claim.allocated or ():
                found[device.driver, device.pool].add(key)
        return found

    def _slices_at(self, node: str) -> Iterable[ResourceSlice]:
        """Yield all slices of the pools that have devices for a node."""
        for pool in sorted(self._pools_at.get(node, set()) | self._pools_at.get("", set())):
            yield from self._pools[pool]

    @cached_property
    def _pools(self) -> Mapping[PoolName, Sequence[ResourceSlice]]:
        found: defaultdict[PoolName, list[ResourceSlice]] = defaultdict(list)
        for each in self._objects.slices or ():
            found[each.driver, each.pool].append(each)
        return found

    @cached_property
    def _pools_at(self) -> Mapping[str, set[PoolName]]:
        """The pools by the nodes that they have devices for, those for several nodes under ""."""
        found: defaultdict[str, set[PoolName]] = defaultdict(set)
        for each in self._objects.slices or ():
            found[each.node].add((each.driver, each.pool))
        return found


def released(claim: ResourceClaim, gone: AbstractSet[PodKey]) -> bool:
    """Return whether a claim of pods gives its devices back once these are gone."""
    names = {key.name for key in gone if key.namespace == claim.namespace}
    return claim.users is not None and claim.users <= names


def _claim_after(claim: ResourceClaim, gone: AbstractSet[PodKey]) -> ResourceClaim | None:
    """Return a claim once pods are gone, None if it is deleted."""
    ends = PodKey(claim.namespace, claim.owner) in gone
    if not released(claim, gone):
        # It is deleted with the last pod that uses it.
        return replace(claim, ending=claim.ending or ends)
    if ends or claim.ending:
        return None
    return replace(claim, allocated=None, node="", nodes=None, users=frozenset())


def _without_taints(piece: ResourceSlice, untainted: AbstractSet[DeviceName]) -> ResourceSlice:
    if untainted.isdisjoint(device.name for device in piece.devices):
        return piece
    devices = (replace(each, taints=()) if each.name in untainted else each for each in piece.devices)
    return replace(piece, devices=tuple(devices))


def _meets(selectors: Iterable[str], device: OfferedDraDevice) -> bool:
    try:
        return all(matches(each, device) for each in selectors)
    except (NotSimpleError, SelectorError):
        return False
