"""What the sharing systems look at: one poll's devices, ids, pods and files."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from exporter.model import (
    Allocations,
    ContainerFile,
    ContainerRef,
    GpuReading,
    HostDevices,
    NodeObject,
    PodDetails,
    PodIdentity,
    SystemFiles,
)
from exporter.sharing.base.inventory import Inventory

log = logging.getLogger(__name__)
# Whoever may annotate pods may also do so without end.
MOST_LINES = 100


class Problem(NamedTuple):
    """A thing that cannot be read: a short word for the kind of it, its name, and what is wrong with it."""

    reason: str
    about: str
    text: str


class Objections:
    """Remembers from poll to poll what was objected to; ``counts`` is by reason, since the start."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._standing: frozenset[tuple[str, str]] = frozenset()

    def turn(self, problems: Iterable[Problem]) -> None:
        """Take the problems of one poll: those that are new count, and the first of them are logged.

        A thing that is bad in another way than before is no new one: whoever writes it might change it for
        every poll.
        """
        current = sorted(frozenset(problems))
        fresh = [problem for problem in current if (problem.reason, problem.about) not in self._standing]
        self.counts.update(problem.reason for problem in fresh)
        for problem in fresh[:MOST_LINES]:
            log.warning("skipped %s: %s", problem.about, problem.text)
        if len(fresh) > MOST_LINES:
            log.warning("skipped %d more unreadable entries", len(fresh) - MOST_LINES)
        self._standing = frozenset((problem.reason, problem.about) for problem in current)


OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What is known beside the devices and the kubelet's ids.

    ``pods`` by uid and ``node`` are None where no source tells of them. ``files`` are by the name of the
    system that reads them. ``own_uid`` is the uid of the pod that this program runs in, ``patterns`` match
    whole names of resources that are NVIDIA's under another name. ``all_listed`` is False if a running pod is
    in no list of the kubelet: it may hold any device.
    """

    pods: Mapping[str, PodIdentity] | None = None
    node: NodeObject | None = None
    files: Mapping[str, SystemFiles] = field(default_factory=dict)
    host: HostDevices = field(default_factory=HostDevices)
    own_uid: str = ""
    patterns: tuple[re.Pattern[str], ...] = ()
    all_listed: bool = True


class View:
    """The node as the systems see it in one poll; what they cannot read they note in ``problems``.

    ``told_claims`` are all that the kubelet tells, our own pod's and those of pods that are over too.
    """

    def __init__(
        self, gpus: tuple[GpuReading, ...], allocations: Allocations, facts: NodeFacts | None = None
    ) -> None:
        self.inventory = Inventory(gpus)
        self.facts = facts or NodeFacts()
        self.problems: list[Problem] = []
        pods = (self.facts.pods or {}).values()
        self.pods = tuple(sorted(filter(_is_live, pods), key=lambda pod: (pod.namespace, pod.name, pod.uid)))
        self._by_name = _by_name(self.pods)
        over = {(pod.namespace, pod.name) for pod in pods if not _is_live(pod)}
        over -= {(pod.namespace, pod.name) for pod in self.pods}
        self.told_claims = allocations.claims
        self.allocations = _of_live(_without_own_claims(allocations, self.facts), over)
        self.held = _held(self.allocations)

    @cached_property
    def offered(self) -> dict[str, list[str]]:
        """The ids on offer by resource: a plugin may offer tens of thousands, which are others' business."""
        ids: dict[str, list[str]] = defaultdict(list)
        for device in self.allocations.offered or ():
            ids[device.resource].append(device.device_id)
        return dict(ids)

    @property
    def details_known(self) -> bool:
        """Whether pods tell their labels and annotations."""
        known = self.facts.pods is not None
        return known and (not self.pods or any(pod.details is not None for pod in self.pods))

    def pod(self, holder: ContainerRef) -> PodIdentity | None:
        """Return the pod of a container; None where it is not known, or where two have had its name."""
        return self._by_name.get(_name(holder))

    def details(self, holder: ContainerRef) -> PodDetails | None:
        """Return what the object of a container's pod says."""
        pod = self.pod(holder)
        return pod.details if pod is not None else None

    def file(self, system: str, holder: ContainerRef) -> ContainerFile | None:
        """Return the file that a system keeps of a container; None where none, or several, would be its."""
        pod, files = self.pod(holder), self.facts.files.get(system)
        if pod is None or files is None:
            return None
        fitting = [file for file in files.containers if _is_of(file, pod, holder.container)]
        return fitting[0] if len(fitting) == 1 else None

    def object_to(self, system: str, what: str, about: str, text: str) -> None:
        """Note what cannot be read: ``what`` is one word, ``about`` names the thing, ``text`` says why."""
        self.problems.append(Problem(f"{system}_{what}".replace("-", "_"), about, text))


def _without_own_claims(allocations: Allocations, facts: NodeFacts) -> Allocations:
    """Leave out the claims of our own pod, which may look at devices and holds none."""
    own = (facts.pods or {}).get(facts.own_uid)
    names = (own.namespace, own.name) if own is not None else None
    kept = tuple(claim for claim in allocations.claims if _name(claim.holder) != names)
    return allocations if len(kept) == len(allocations.claims) else replace(allocations, claims=kept)


def _of_live(allocations: Allocations, over: Collection[tuple[str, str]]) -> Allocations:
    """Leave out what pods had that are over: old kubelets list them until they are deleted."""
    if not over:
        return allocations
    return replace(
        allocations,
        allocated=tuple(
            allocation for allocation in allocations.allocated if _name(allocation.holder) not in over
        ),
        claims=tuple(claim for claim in allocations.claims if _name(claim.holder) not in over),
    )


def _name(holder: ContainerRef) -> tuple[str, str]:
    return holder.namespace, holder.pod


def _held(allocations: Allocations) -> dict[ContainerRef, dict[str, frozenset[str]]]:
    """Return the ids of every container, by resource."""
    held: dict[ContainerRef, dict[str, set[str]]] = {}
    for allocation in allocations.allocated:
        held.setdefault(allocation.holder, {}).setdefault(allocation.resource, set()).add(
            allocation.device_id
        )
    return {
        holder: {resource: frozenset(ids) for resource, ids in by_resource.items()}
        for holder, by_resource in held.items()
    }


def _is_live(pod: PodIdentity) -> bool:
    return pod.details is None or pod.details.phase not in OVER


def _by_name(pods: tuple[PodIdentity, ...]) -> dict[tuple[str, str], PodIdentity]:
    by_name: dict[tuple[str, str], list[PodIdentity]] = {}
    for pod in pods:
        by_name.setdefault((pod.namespace, pod.name), []).append(pod)
    return {name: namesakes[0] for name, namesakes in by_name.items() if len(namesakes) == 1}


def _is_of(file: ContainerFile, pod: PodIdentity, container: str) -> bool:
    if file.pod_uid and file.pod_uid != pod.uid:
        return False
    if file.container:
        return bool(file.pod_uid) and file.container == container
    if not file.container_id:
        return False
    names = {name for key, name in pod.container_ids.items() if key.startswith(file.container_id)}
    return names == {container}
