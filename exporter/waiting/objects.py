"""The objects of a cluster as far as scheduling depends on them, as small records.

Amounts of resources are in the scheduler's units: millicores of ``cpu``, bytes of memory and storage, and
counts of all other resources; fractions are rounded up. Formats of the objects: API reference of Kubernetes,
https://kubernetes.io/docs/reference/kubernetes-api/
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

Amounts: TypeAlias = Mapping[str, int]
"""Amounts by resource name, such as ``cpu``, ``memory`` and ``nvidia.com/mig-3g.40gb``."""


UNJUDGED: Final = {
    "host ports": "NodePorts",
    "volumes": "VolumeBinding",
    "topology spread": "PodTopologySpread",
    "pod affinity": "InterPodAffinity",
    "features of the node": "NodeDeclaredFeatures",
    "pod group": "GangScheduling",
    "unreadable requests": "NodeResourcesFit",
}
"""The filter of the default scheduler that decides on what is not judged here, by its words."""


class PodKey(NamedTuple):
    """A pod, by name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Taint(NamedTuple):
    """A taint of a node."""

    key: str
    value: str
    effect: str  # NoSchedule, PreferNoSchedule, NoExecute


class Toleration(NamedTuple):
    """A toleration of a pod; an empty key with the operator Exists matches all taints."""

    key: str
    operator: str  # Equal, Exists, Lt, Gt; "" is Equal
    value: str
    effect: str  # "" matches all effects


class Requirement(NamedTuple):
    """A condition on one label, or on one field, of a node."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist, Gt, Lt
    values: tuple[str, ...]


class NodeTerm(NamedTuple):
    """Conditions that must all hold; a term without any matches no node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()  # only metadata.name exists


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node of the cluster."""

    name: str
    labels: Mapping[str, str]
    allocatable: Amounts
    unread: tuple[str, ...] = ()  # resources whose amounts cannot be read
    taints: tuple[Taint, ...] = ()
    cordoned: bool = False  # spec.unschedulable


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """One request of a resource claim (DRA)."""

    name: str
    device_class: str
    count: int | None = 1  # None: all devices that match
    selectors: tuple[str, ...] = ()  # CEL expressions
    tolerations: tuple[Toleration, ...] = ()  # of taints of devices
    # What is not read here: alternatives, capacity, admin access …; each as words.
    unread: tuple[str, ...] = ()


class Version(str):
    """A semantic version, which CEL does not compare with text."""

    __slots__ = ()


class DeviceName(NamedTuple):
    """A device of a DRA driver."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaim:
    """A resource claim; ``allocated`` is None while it has no devices."""

    namespace: str
    name: str
    requests: tuple[ClaimRequest, ...]
    allocated: tuple[DeviceName, ...] | None = None  # without those for administration, which others may have
    node: str = ""  # the node that its allocation is bound to, "" if it is to none or to several
    nodes: tuple[NodeTerm, ...] | None = None  # terms, one of which matches such a node; None: all nodes
    ending: bool = False  # it is being deleted
    # Names of the pods that use it, without which it gives its devices back; None: others than pods do too.
    users: frozenset[str] | None = frozenset()
    owner: str = ""  # name of the pod that it was generated for and is deleted with, "" if it stays
    unread: tuple[str, ...] = ()  # constraints, configuration with effect on the choice …; each as words


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedDraDevice:
    """A device of a ResourceSlice, with its attributes as CEL sees them."""

    name: DeviceName
    attributes: Mapping[str, str | int | bool]  # by "domain/name"; versions are of the type Version
    capacity: Mapping[str, int]  # in billionths, by "domain/name"
    # What it takes of counters that devices of its pool share, such as memory slices of a GPU: in billionths,
    # by "set/counter".
    counters: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()  # also those without effect
    shared: bool = False  # whether several claims may have it at once, each a part of its capacity
    unread: tuple[str, ...] = ()  # multiple allocations, binding conditions …; each as words


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSlice:
    """The devices that a DRA driver offers on one node; ``node`` is "" if it is for several nodes."""

    driver: str
    pool: str
    generation: int
    slices_of_pool: int
    node: str
    devices: tuple[OfferedDraDevice, ...]
    nodes: tuple[NodeTerm, ...] | None = None  # without ``node``: terms of the nodes; None: all nodes
    counters: Mapping[str, int] = field(default_factory=dict)  # that devices of the pool share, as there
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A device class: conditions that a device must meet, as CEL expressions."""

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""  # the extended resource by which a pod may ask for it, "" if none


class AvoidedPods(NamedTuple):
    """Pods that a placed pod keeps out of its part of the cluster, by required anti-affinity."""

    topology: str  # the label whose value makes the part, such as kubernetes.io/hostname
    namespaces: frozenset[str]
    labels: tuple[Requirement, ...] | None  # conditions that must all hold; None: no pod
    # Whether it is for all namespaces; None if only labels of namespaces decide that, which are not read.
    everywhere: bool | None = False


class PlacedPod(NamedTuple):
    """A pod that has a node and has not ended: only what it takes there is kept."""

    node: str
    requests: Amounts
    ending: bool = False  # it is being deleted, so that its resources are free soon
    avoids: tuple[AvoidedPods, ...] = ()
    readable: bool = True  # whether all its requests could be read
    key: PodKey = PodKey("", "")  # its name, empty if several pods are taken together
    ends: float | None = None  # Unix time by which it should have ended, if it is ending and that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod without a node, whose condition PodScheduled is False."""

    key: PodKey
    uid: str
    created: float | None  # Unix time, None if it cannot be read
    since: float | None  # Unix time at which the condition became False, None likewise
    reason: Literal["Unschedulable", "SchedulingGated"]
    requests: Amounts  # of all containers, init containers and overhead, as the scheduler sums them
    priority: int | None = 0  # None: it is not known
    scheduler: str = "default-scheduler"
    nominated: str = ""  # the node that preemption makes room on for this pod
    gates: tuple[str, ...] = ()  # scheduling gates that hold it back
    selector: Mapping[str, str]
    affinity: tuple[NodeTerm, ...] | None = None  # required terms, one of which must match; None without any
    tolerations: tuple[Toleration, ...] = ()
    # Claims by name, with "" for one that was not made of its template yet.
    claims: tuple[str, ...] = ()
    owner: str = ""  # kind and name of the controller, such as "Job train"
    labels: Mapping[str, str]
    # What the pod has and is not judged here: keys of UNJUDGED, or other words.
    unjudged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """All objects of a cluster at one time. None: this kind cannot be read; empty: it is not served."""

    nodes: Mapping[str, ClusterNode]
    placed: tuple[PlacedPod, ...]
    waiting: tuple[WaitingPod, ...]
    claims: Mapping[tuple[str, str], ResourceClaim] | None = None  # by namespace and name
    slices: tuple[ResourceSlice, ...] | None = None
    classes: Mapping[str, DeviceClass] | None = None
    # Whether DeviceTaintRules exist, or cannot be read: then no unallocated claim is said to fit.
    device_taint_rules: bool = False
