"""Ways that need another request: a larger slice that is free, or a smaller one that would do."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from exporter.model.mig_placements import ProfileSize, profile_size
from exporter.waiting.gpu_facts import GpuFacts, SmallerRequest
from exporter.waiting.lack import MOST_FOUND, Search
from exporter.waiting.objects import WaitingPod
from exporter.waiting.trial import Change
from exporter.waiting.verdict import Verdict
from exporter.waiting.way import Found, Way
from exporter.waiting.ways_by_gpus import MIG
from exporter.wording import TIMES

_GPU: Final = "nvidia.com/gpu"
# A replica set has the name of its deployment, and a hash.
_HASH: Final = re.compile(r"-[a-z0-9]{1,10}")


def larger(search: Search) -> Found:
    """Return the larger MIG slices that are free where the pod would fit, the smallest first."""
    found: list[tuple[tuple[object, ...], Way]] = []
    for resource, count in search.pod.requests.items():
        wanted = _size(resource)
        if wanted is None or count <= 0:
            continue
        larger_ones = {
            other: size
            for other, size in _sizes(search).items()
            if size.compute >= wanted.compute and size.gigabytes >= wanted.gigabytes and other != resource
        }
        for node, other in _free(search, larger_ones, resource, count):
            if len(found) >= MOST_FOUND:
                break
            size = larger_ones[other]
            verdict = _instead(search, node, resource, other)
            if verdict.answer != "no":
                free = search.free(node, other)
                are = "is" if free == 1 else "are"
                way = Way(
                    kind="larger",
                    node=node,
                    what=f"ask for {count} {TIMES} {other} instead of {resource}: "
                    f"{free} {are} free on {node}",
                    asked="its owner",
                    source="objects",
                    resource=other,
                    instead_of=resource,
                    unjudged=search.unjudged(verdict),
                )
                found.append(((bool(way.unjudged), size, node), way))
    return Found([way for _, way in sorted(found, key=lambda each: each[0])], [])


def smaller(search: Search) -> Found:
    """Return the smaller MIG slices that would do for the workload of the pod, and are free."""
    ways = []
    for advice in advised(search.facts, search.pod):
        resource, size = f"{MIG}{advice.profile}", profile_size(advice.profile)
        for asked, count in search.pod.requests.items():
            held = _size(asked)
            less = asked == _GPU or (held is not None and size is not None and size < held)
            if not less or count <= 0:
                continue
            for node, _ in _free(search, {resource}, asked, count):
                verdict = _instead(search, node, asked, resource)
                if verdict.answer != "no":
                    free = search.free(node, resource)
                    ways.append(
                        Way(
                            kind="smaller",
                            node=node,
                            what=f"ask for {count} {TIMES} {resource}, which would do by the advice "
                            f"({advice.confidence} confidence): {free} free on {node}",
                            asked="its owner",
                            source="advice",
                            resource=resource,
                            instead_of=asked,
                            unjudged=search.unjudged(verdict),
                        )
                    )
    return Found(sorted(ways, key=lambda way: (bool(way.unjudged), way.node)), [])


def advised(facts: GpuFacts, pod: WaitingPod) -> tuple[SmallerRequest, ...]:
    """Return what would fit the workload of a pod by the advice."""
    names = _workloads(pod)
    return tuple(
        each for each in facts.smaller or () if each.namespace == pod.key.namespace and each.workload in names
    )


def _workloads(pod: WaitingPod) -> frozenset[str]:
    """Return the names that the workload of a pod may have in the advice."""
    kind, _, name = pod.owner.partition(" ")
    if not name:
        return frozenset({pod.key.name})
    head, hyphen, last = name.rpartition("-")
    hashed = kind == "ReplicaSet" and _HASH.fullmatch(f"{hyphen}{last}")
    return frozenset({name, head} if hashed else {name})


def _size(resource: str) -> ProfileSize | None:
    return profile_size(resource.removeprefix(MIG)) if resource.startswith(MIG) else None


def _sizes(search: Search) -> Mapping[str, ProfileSize]:
    """Return the sizes of all MIG resources of the cluster."""
    sizes = {resource: _size(resource) for resource in search.judge.state.offers}
    return {resource: size for resource, size in sizes.items() if size is not None}


def _free(search: Search, others: Iterable[str], asked: str, count: int) -> list[tuple[str, str]]:
    """Return where so many of other resources are free, node by node, if nothing else than one is missing."""
    return sorted(
        (offered.node, other)
        for other in others
        for offered in search.offers(other)
        if offered.free >= count and search.lacking.get(offered.node) == {asked}
    )


def _instead(search: Search, node: str, asked: str, other: str) -> Verdict:
    """Return the verdict on a node if the pod asked for another resource."""
    requests = dict(search.pod.requests)
    count = requests.pop(asked)
    requests[other] = requests.get(other, 0) + count
    return search.try_change(Change(node=node, requests=requests))
