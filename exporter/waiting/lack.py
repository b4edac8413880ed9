"""What a waiting pod lacks on each node, and how it is tried whether a change would supply that."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from exporter.waiting.gpu_facts import GpuFacts
from exporter.waiting.objects import Amounts, PodKey, WaitingPod
from exporter.waiting.trial import Change, Trials
from exporter.waiting.verdict import ABORTS, PodVerdicts, Verdict

RESOURCES: Final = "NodeResourcesFit"
# In a large cluster, ways on thousands of nodes would only repeat the answer.
MOST_FOUND: Final = 50


def is_device(resource: str) -> bool:
    """Return whether a resource is an extended one, as device plugins offer them."""
    return "/" in resource


def devices_of(pod: WaitingPod) -> dict[str, int]:
    """Return the extended resources that a pod asks for."""
    return {name: count for name, count in pod.requests.items() if is_device(name) and count > 0}


@dataclass(frozen=True)
class Search:
    """A pod, its verdicts, and all that ways are looked for in."""

    pod: WaitingPod
    verdicts: PodVerdicts
    trials: Trials
    taken: Mapping[str, Mapping[str, int]]  # by node and resource
    allocatable: Mapping[str, Amounts]  # by node
    facts: GpuFacts

    @cached_property
    def lacking(self) -> Mapping[str, Mapping[str, int]]:
        """The nodes that only resources keep the pod from, each with how much of each resource is missing."""
        return {
            each.node: {
                reason.resource: reason.needed - max(reason.free, 0)
                for reason in each.reasons
                if reason.resource
            }
            for each in self.verdicts.verdicts
            if each.answer == "no" and each.filter == RESOURCES
        }

    @cached_property
    def _aborts(self) -> tuple[str, ...]:
        """The doubt that the scheduler meets an error on some node, if it may."""
        return (ABORTS,) if any(ABORTS in each.unjudged for each in self.verdicts.verdicts) else ()

    def free(self, node: str, resource: str) -> int:
        """Return how much of a resource is free on a node."""
        return self.allocatable[node].get(resource, 0) - self.taken.get(node, {}).get(resource, 0)

    def try_change(self, change: Change) -> Verdict:
        """Return the verdict on the node after a change, with the doubts that the pod has on all nodes."""
        return self.trials.after(self.pod, change)

    def unjudged(self, verdict: Verdict) -> tuple[str, ...]:
        """Return what is not judged of the pod after a change."""
        return tuple(dict.fromkeys((*verdict.unjudged, *self._aborts)))


def listed(pods: tuple[PodKey, ...]) -> str:
    """Return names of pods as text."""
    names = [str(pod) for pod in pods]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
