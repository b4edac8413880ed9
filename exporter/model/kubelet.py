"""Records of the kubelet, of Kubernetes objects, and of the node's process table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.model.memory_limits import CgroupTree
from exporter.model.quantity import whole_quantity

_SEVERITY = {"": -1, "Healthy": 0, "Unknown": 1}
# kubectl's copy of the whole object.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Characters kept of one object's annotations; Kubernetes allows 256 KiB.
MOST_ANNOTATIONS = 1 << 16


class PodName(NamedTuple):
    """A pod by namespace and name."""

    namespace: str
    name: str


class ContainerRef(NamedTuple):
    """A container by its Kubernetes names."""

    namespace: str
    pod: str
    container: str  # "" if only the pod is known

    @property
    def pod_name(self) -> PodName:
        return PodName(self.namespace, self.pod)


class Allocation(NamedTuple):
    """One device id that the kubelet allocated to a container, as spelled by the device plugin."""

    holder: ContainerRef
    resource: str
    device_id: str


@dataclass(frozen=True, slots=True, order=True)
class ClaimedDevice:
    """One device of a resource claim (DRA) that the kubelet allocated to a container."""

    holder: ContainerRef
    driver: str
    pool: str
    device: str
    claim_namespace: str = ""
    claim: str = ""
    share_id: str = ""  # distinguishes several shares of one device; "" if it has none
    # CDI device names; the kubelet may also list those of other devices of the claim.
    cdi: tuple[str, ...] = ()


class HeldClaim(NamedTuple):
    """A device of a resource claim that a container holds, by the names of the Kubernetes API."""

    namespace: str
    name: str
    request: str  # name of the request in the claim; "" if unknown
    driver: str
    pool: str
    device: str


class OfferedDevice(NamedTuple):
    """One healthy, allocatable device id that a device plugin offers on this node."""

    resource: str
    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """The kubelet's device accounting, sorted and free of NUMA duplicates."""

    allocated: tuple[Allocation, ...]
    # None if the kubelet cannot report it (pod-resources v1alpha1): replicas of a GPU are then unknown too.
    offered: tuple[OfferedDevice, ...] | None
    api_version: str
    # Unix time of the answer; of the oldest answer if allocations are kept across a kubelet restart.
    read_at: float
    claims: tuple[ClaimedDevice, ...] = ()
    # Offered since their plugin started, and no longer: they are unhealthy.
    withdrawn: tuple[OfferedDevice, ...] = ()
    # Resources that the kubelet does not offer now; ``offered`` has their last offer.
    kept: frozenset[str] = frozenset()
    earlier: tuple[OfferedDevice, ...] = ()  # offered before their plugin restarted, and not since
    # Containers in the kubelet's list, with or without devices, and its pods, with container "".
    listed: frozenset[ContainerRef] = frozenset()
    kubelet_start: int = 0  # changes with each start of the kubelet

    @property
    def pods(self) -> frozenset[PodName]:
        """The pods in the kubelet's list, by namespace and name."""
        return frozenset(ref.pod_name for ref in self.listed if not ref.container)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A container in a pod's spec."""

    name: str
    init: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)  # extended resources


class ResourceHealth(NamedTuple):
    """The health of one device of a container, as the kubelet writes it into the pod's status (KEP-4680).

    Source: ``ResourceStatus`` and ``ResourceHealth`` of
    https://github.com/kubernetes/api/blob/master/core/v1/types.go
    """

    container: str
    # The extended resource, or ``claim:<name in the pod>``, with ``/<request>`` if the container names one.
    resource: str
    device_id: str  # the device plugin's id; for a claim a CDI name, or driver/pool/device
    health: str  # Healthy, Unhealthy or Unknown


class NamedRequest(NamedTuple):
    """A request of a resource claim that a container names in its pod's object, and so has the devices of."""

    container: str
    claim: str  # the ResourceClaim in the pod's namespace
    request: str  # "" means all requests of the claim


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDetails:
    """The object of a pod, without its names."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[ContainerSpec, ...] = ()  # in the order of the object, init containers first
    phase: str = ""  # Pending, Running, Succeeded, Failed or Unknown
    # () if the kubelet does not report it: before Kubernetes 1.36 it is off by default.
    health: tuple[ResourceHealth, ...] = ()
    requests: tuple[NamedRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObject:
    """The object of this node in the Kubernetes API."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    # Devices by extended resource: all, and the healthy ones.
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """A pod of this node."""

    uid: str
    namespace: str
    name: str
    containers: tuple[str, ...] = ()  # names of its containers; () if unknown
    # Container names by the runtime's id of 64 hex digits.
    container_ids: Mapping[str, str] = field(default_factory=dict)
    details: PodDetails | None = None  # None if the source of the name does not have the pod's object

    @property
    def pod_name(self) -> PodName:
        return PodName(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """The pod and container of a process."""

    pid: int
    known: bool  # False if the place is unknown: the process is gone or unreadable, or its pid was reused
    pod_uid: str | None = None  # None with ``known`` True: it runs in no pod
    container_id: str | None = None  # 64 hex digits; may be known without the pod
    # The kernel's short name of the process, which the process can choose; None if unreadable.
    command: str | None = None
    # Pod UID and container id of the pods around its pod, innermost first: a kubelet can run in a pod.
    outer: tuple[tuple[str, str | None], ...] = ()
    # True if there is no such process any more; its place is then that of an earlier poll, or unknown.
    ended: bool = False
    # Start of the process on the boot clock in seconds, None if unknown; no part of its place.
    started: float | None = field(default=None, compare=False)
    # If its place is unknown: UIDs of the pods that it may be in, by its ancestors and descendants.
    kin: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """Processes, pods and cgroups of the node."""

    places: Mapping[int, ProcessPlace]  # by pid
    pods: Mapping[str, PodIdentity] | None  # by UID; None if no source of pod names answers
    # Whether pids mean the same to the driver, in ``--proc-root`` and to the exporter. Otherwise the use of
    # processes cannot be attributed, and the reason is given in words and as a code.
    process_view: bool
    process_view_reason: str = ""
    process_view_code: str = ""
    superseded: frozenset[str] = frozenset()  # UIDs of pods that were replaced by a pod with the same name
    # By pod UID, ids of the containers with processes, without sandboxes; None if not searched in this poll.
    running: Mapping[str, frozenset[str]] | None = None
    # Pids in a process list of this poll that a second list lacks: they ended before their place was read.
    gone: frozenset[int] = frozenset()
    cgroups: CgroupTree | None = None  # None if they were not read in this poll


def worst_health(reported: Iterable[str]) -> str:
    """Return the worst of some healths; "" if none is known. A word other than these three is the worst."""
    return max(reported, key=lambda health: (_SEVERITY.get(health, len(_SEVERITY)), health), default="")


def is_unhealthy(health: str) -> bool:
    """Return whether the kubelet reports a device as bad: neither healthy nor unknown, nor unreported."""
    return _SEVERITY.get(health, len(_SEVERITY)) > _SEVERITY["Unknown"]


def extended_resources(limits: Mapping[str, str]) -> dict[str, int]:
    """Return the limits that are extended resources, which have a domain in their name."""
    amounts = {name: whole_quantity(text) for name, text in limits.items() if "/" in name}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def bounded_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the shortest annotations that fit into MOST_ANNOTATIONS, names included.

    The limit bounds memory: users who create pods can fill the annotations of each.
    """
    kept, room = set[str](), MOST_ANNOTATIONS
    for name in sorted(annotations.keys() - {LAST_APPLIED}, key=lambda name: (len(annotations[name]), name)):
        room -= len(name) + len(annotations[name])
        if room < 0:
            break
        kept.add(name)
    return {name: text for name, text in annotations.items() if name in kept}
