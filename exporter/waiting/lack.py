"""What a waiting pod lacks on each node, and how it is tried whether a change would supply that."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from exporter.waiting.filters import Offered, is_device
from exporter.waiting.gpu_facts import GpuFacts
from exporter.waiting.objects import PodKey, ResourceClaim, WaitingPod
from exporter.waiting.trial import Change, Trials
from exporter.waiting.verdict import ABORTS, Judge, PodVerdicts, Verdict

RESOURCES: Final = "NodeResourcesFit"
DEVICES: Final = "DynamicResources"
# In a large cluster, ways on thousands of nodes would only repeat the answer.
MOST_FOUND: Final = 50
Item = TypeVar("Item")


def devices_of(pod: WaitingPod) -> dict[str, int]:
    """Return the extended resources that a pod asks for."""
    return {name: count for name, count in pod.requests.items() if is_device(name) and count > 0}


@dataclass(frozen=True)
class Search:
    """A pod, its verdicts, and all that ways are looked for in."""

    pod: WaitingPod
    verdicts: PodVerdicts
    judge: Judge
    trials: Trials
    facts: GpuFacts
    now: float  # Unix time

    @cached_property
    def lacking(self) -> Mapping[str, AbstractSet[str]]:
        """The nodes that only resources or claims keep the pod from, each with its missing resources."""
        found: dict[str, AbstractSet[str]] = {}
        for verdict, nodes in self.verdicts.groups:
            if verdict.answer == "no" and verdict.filter in {RESOURCES, DEVICES}:
                found.update(
                    dict.fromkeys(
                        nodes, frozenset(each.resource for each in verdict.reasons if each.resource)
                    )
                )
        return found

    def missing(self, node: str) -> Mapping[str, int]:
        """Return how much of each resource is missing on a node of ``lacking``; nothing of others."""
        lacking = self.lacking.get(node, frozenset())
        return {
            name: needed - max(self.free(node, name), 0)
            for name, needed in self.pod.requests.items()
            if name in lacking
        }

    @property
    def cordoned(self) -> Iterator[str]:
        """The nodes whose cordon keeps the pod out, without those that lack resources as well."""
        for verdict, nodes in self.verdicts.groups:
            if verdict.answer == "no" and verdict.filter == "NodeUnschedulable":
                yield from self.judge.with_resources(self.pod, nodes)

    @cached_property
    def _aborts(self) -> tuple[str, ...]:
        """The doubt that the scheduler meets an error on some node, if it may."""
        return (ABORTS,) if any(ABORTS in each.unjudged for each, _ in self.verdicts.groups) else ()

    def lacks_devices(self, node: str) -> bool:
        """Return whether devices (DRA) are missing for the claims of the pod on a node of ``lacking``."""
        if node in self._short_of_devices:
            return True
        return node in self.lacking and self.judge.lacks_devices(self.pod, node)

    @cached_property
    def _short_of_devices(self) -> AbstractSet[str]:
        """The nodes that nothing but claims keeps the pod from."""
        groups = self.verdicts.groups
        return {node for verdict, nodes in groups if verdict.filter == DEVICES for node in nodes}

    @property
    def claims(self) -> Sequence[ResourceClaim]:
        """The claims of the pod that have no devices yet."""
        claims = self.judge.state.objects.claims or {}
        own = (claims.get((self.pod.key.namespace, name)) for name in self.pod.claims)
        return [each for each in own if each is not None and each.allocated is None]

    def free(self, node: str, resource: str) -> int:
        """Return how much of a resource is free on a node for the pod."""
        state = self.judge.state
        return self.capacity(node, resource) - state.taken_for(self.pod, node).get(resource, 0)

    def capacity(self, node: str, resource: str) -> int:
        """Return how much of a resource a node has."""
        return self.judge.state.objects.nodes[node].allocatable.get(resource, 0)

    def offers(self, resource: str) -> Sequence[Offered]:
        """Return the nodes that have an extended resource, in the order of their names."""
        return self.judge.state.offers.get(resource, ())

    def try_change(self, change: Change) -> Verdict:
        """Return the verdict on the node after a change, with the doubts that the pod has on all nodes."""
        return self.trials.after(self.pod, change)

    def unjudged(self, verdict: Verdict) -> tuple[str, ...]:
        """Return what is not judged of the pod after a change."""
        return tuple(dict.fromkeys((*verdict.unjudged, *self._aborts)))


def fewest(items: Sequence[Item], suffice: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return the first item that suffices alone; else some that do together; none if not even all do."""
    if not items or not suffice(items):
        return []
    for each in items if items[1:] else ():
        if suffice([each]):
            return [each]
    return spared(items, suffice)


def spared(items: Sequence[Item], suffice: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return those of items that suffice which are needed; the last ones are spared first."""
    together = list(items)
    for each in reversed(items):
        fewer = [other for other in together if other is not each]
        together = fewer if suffice(fewer) else together
    return together


def listed(pods: tuple[PodKey, ...]) -> str:
    """Return names of pods as text."""
    return names_as_text([str(pod) for pod in pods])


def names_as_text(names: Sequence[str]) -> str:
    """Return names as text: a, b and c."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
