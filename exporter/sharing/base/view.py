"""The input of the sharing systems: one poll's devices, ids, pods and files."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from exporter.model import (
    Allocations,
    ContainerFile,
    ContainerRef,
    ContainerSpec,
    GpuReading,
    HostDevices,
    NodeObject,
    PodDetails,
    PodIdentity,
    Problem,
    ResourceHealth,
    SystemFiles,
    only,
    unambiguous,
)
from exporter.model.kubelet import PodName
from exporter.sharing.base.inventory import Inventory

log = logging.getLogger(__name__)
# Anyone who may annotate pods could fill the log.
MOST_LINES = 100
OVER = frozenset({"Succeeded", "Failed"})
NO_FILES = SystemFiles()


class Objections:
    """Counts and logs problems, each when it first appears."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by reason, since the start
        self._standing: frozenset[tuple[str, str]] = frozenset()

    def turn(self, problems: Iterable[Problem]) -> None:
        """Count the problems that are new in this poll, and log up to MOST_LINES of them.

        A changed text is not a new problem: its author could change it at every poll.
        """
        current = sorted(frozenset(problems))
        fresh = [problem for problem in current if (problem.reason, problem.about) not in self._standing]
        self.counts.update(problem.reason for problem in fresh)
        for problem in fresh[:MOST_LINES]:
            log.warning("skipped %s: %s", problem.about, problem.text)
        if len(fresh) > MOST_LINES:
            log.warning("skipped %d more unreadable entries", len(fresh) - MOST_LINES)
        self._standing = frozenset((problem.reason, problem.about) for problem in current)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts about the node other than its devices and the kubelet's ids."""

    pods: Mapping[str, PodIdentity] | None = None  # by uid; None if no source has them
    node: NodeObject | None = None  # None if no source has it
    files: Mapping[str, SystemFiles] = field(default_factory=dict)  # by name of the system that reads them
    host: HostDevices = field(default_factory=HostDevices)
    own_uid: str = ""  # uid of the exporter's own pod
    patterns: tuple[re.Pattern[str], ...] = ()  # full names of NVIDIA resources that were renamed
    ignored_drivers: tuple[re.Pattern[str], ...] = ()  # full names of DRA drivers whose devices are no GPUs
    all_listed: bool = True  # False if the kubelet's list lacks a running pod, which may hold any device


class View:
    """The node in one poll, as the systems see it. Systems add what they cannot read to ``problems``."""

    def __init__(
        self, gpus: tuple[GpuReading, ...], allocations: Allocations, facts: NodeFacts | None = None
    ) -> None:
        self.inventory = Inventory(gpus)
        self.facts = facts or NodeFacts()
        self.problems: list[Problem] = []
        known = self.facts.pods or {}
        live = [pod for pod in known.values() if pod.details is None or pod.details.phase not in OVER]
        self.pods = tuple(sorted(live, key=lambda pod: (pod.pod_name, pod.uid)))
        self._by_name = unambiguous((pod.pod_name, pod) for pod in self.pods)
        over = {pod.pod_name for pod in known.values()} - {pod.pod_name for pod in live}
        # All claims that the kubelet lists, including those of the exporter's pod and of pods that are over.
        self.listed_claims = allocations.claims
        own = known[self.facts.own_uid].pod_name if self.facts.own_uid in known else None
        self.allocations = _of_others(allocations, over, own)
        self.held = _held(self.allocations)

    @cached_property
    def offered(self) -> dict[str, list[str]]:
        """The allocatable ids by resource; made on demand, because a plugin may have tens of thousands."""
        ids: dict[str, list[str]] = defaultdict(list)
        for resource, device_id in self.allocations.offered or ():
            ids[resource].append(device_id)
        return dict(ids)

    @cached_property
    def devices_by_claim(self) -> dict[tuple[str, str], dict[ContainerRef, set[tuple[str, str, str, str]]]]:
        """The (driver, pool, device, share) of each claim, by its namespace and name, and by container."""
        devices: dict[tuple[str, str], dict[ContainerRef, set[tuple[str, str, str, str]]]] = {}
        for claimed in self.allocations.claims:
            device = claimed.driver, claimed.pool, claimed.device, claimed.share_id
            by_container = devices.setdefault((claimed.claim_namespace, claimed.claim), {})
            by_container.setdefault(claimed.holder, set()).add(device)
        return devices

    @property
    def details_known(self) -> bool:
        """Return True if the source of the pods has their labels and annotations."""
        known = self.facts.pods is not None
        return known and (not self.pods or any(pod.details is not None for pod in self.pods))

    @property
    def node_annotations(self) -> Mapping[str, str]:
        """Return the annotations of the node, {} if they are unknown."""
        return self.facts.node.annotations if self.facts.node is not None else {}

    @property
    def node_labels(self) -> Mapping[str, str]:
        """Return the labels of the node, {} if they are unknown."""
        return self.facts.node.labels if self.facts.node is not None else {}

    def pod(self, holder: ContainerRef) -> PodIdentity | None:
        """Return the pod of a container; None if it is unknown, or if two pods have had its name."""
        return self._by_name.get(holder.pod_name)

    def details(self, holder: ContainerRef) -> PodDetails | None:
        """Return the details of a container's pod, None if they are unknown."""
        pod = self.pod(holder)
        return pod.details if pod is not None else None

    def health(self, holder: ContainerRef) -> Iterable[ResourceHealth]:
        """Return the health of a container's devices, as far as the kubelet reports it."""
        details = self.details(holder)
        reported = details.health if details is not None else ()
        return (entry for entry in reported if entry.container == holder.container)

    def annotations(self, holder: ContainerRef) -> Mapping[str, str]:
        """Return the annotations of a container's pod, {} if they are unknown."""
        details = self.details(holder)
        return details.annotations if details is not None else {}

    def main_containers(self, holder: ContainerRef) -> list[str]:
        """Return the names of the containers of a container's pod without init containers, [] if unknown."""
        details = self.details(holder)
        return main_containers(details.containers) if details is not None else []

    def file(self, system: str, holder: ContainerRef) -> ContainerFile | None:
        """Return a container's file of a system; None if no file, or several, can be the container's."""
        pod = self.pod(holder)
        if pod is None:
            return None
        return only(file for file in self.files(system).containers if _is_of(file, pod, holder.container))

    def files(self, system: str) -> SystemFiles:
        """Return the contents of a system's files; empty if they were not read."""
        return self.facts.files.get(system, NO_FILES)

    def object_to(self, system: str, what: str, about: str, text: str) -> None:
        """Add a problem: ``what`` is one word, ``about`` names the thing, ``text`` is the cause."""
        self.problems.append(Problem(f"{system}_{what}".replace("-", "_"), about, text))


def main_containers(containers: Iterable[ContainerSpec]) -> list[str]:
    """Return the names of the containers that are not init containers."""
    return [container.name for container in containers if not container.init]


def _of_others(allocations: Allocations, over: Collection[PodName], own: PodName | None) -> Allocations:
    """Return the allocations without pods that are over, and without claims of the exporter's own pod.

    Old kubelets list a pod that is over until it is deleted; the exporter's claims are for monitoring.
    """
    allocated, claims = allocations.allocated, allocations.claims
    # A plugin may have tens of thousands of ids.
    if over:
        allocated = tuple(held for held in allocated if held.holder.pod_name not in over)
    without = {*over, own}
    kept = tuple(claim for claim in claims if claim.holder.pod_name not in without)
    return replace(allocations, allocated=allocated, claims=kept)


def _held(allocations: Allocations) -> dict[ContainerRef, dict[str, frozenset[str]]]:
    """Return the ids of every container by resource."""
    held: dict[ContainerRef, dict[str, set[str]]] = {}
    for holder, resource, device_id in allocations.allocated:
        held.setdefault(holder, {}).setdefault(resource, set()).add(device_id)
    return {
        holder: {resource: frozenset(ids) for resource, ids in by_resource.items()}
        for holder, by_resource in held.items()
    }


def _is_of(file: ContainerFile, pod: PodIdentity, container: str) -> bool:
    if file.pod_uid and file.pod_uid != pod.uid:
        return False
    if file.container:
        return bool(file.pod_uid) and file.container == container
    if not file.container_id:
        return False
    names = {name for key, name in pod.container_ids.items() if key.startswith(file.container_id)}
    return names == {container}
