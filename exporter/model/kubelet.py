"""What the kubelet and the process table of the node say."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class PodName(NamedTuple):
    """A pod by namespace and name."""

    namespace: str
    name: str


class ContainerRef(NamedTuple):
    """A container by the names that Kubernetes gives it. ``container`` is "" where only the pod is known."""

    namespace: str
    pod: str
    container: str

    @property
    def pod_name(self) -> PodName:
        """Return the name of the container's pod."""
        return PodName(self.namespace, self.pod)


class Allocation(NamedTuple):
    """One device id that the kubelet gave to a container, in the spelling of the device plugin."""

    holder: ContainerRef
    resource: str
    device_id: str


@dataclass(frozen=True, slots=True, order=True)
class ClaimedDevice:
    """One device of a resource claim (DRA) that the kubelet gave to a container.

    ``share_id`` tells several shares of one device apart, "" where it has none. ``cdi`` are the CDI names
    that came with it; the kubelet may list those of other devices of the claim too.
    """

    holder: ContainerRef
    driver: str
    pool: str
    device: str
    claim_namespace: str = ""
    claim: str = ""
    share_id: str = ""
    cdi: tuple[str, ...] = ()


class OfferedDevice(NamedTuple):
    """One device id that a device plugin offers on this node, healthy and allocatable."""

    resource: str
    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """The kubelet's device accounting, sorted and free of NUMA duplicates.

    ``offered`` is None if the kubelet cannot report it (pod-resources v1alpha1, old kubelets): the number of
    replicas of a GPU is then unknown too. ``earlier`` were offered before their plugin
    was away, and not since. ``withdrawn`` were offered since their plugin was started, and are
    not now: they are unhealthy. Of resources in ``kept`` the kubelet offers nothing now, and ``offered`` has
    what it offered last. ``read_at`` is Unix time in seconds; with allocations carried over
    from before a restart of the kubelet it is that of the oldest. ``listed`` are the containers in the
    kubelet's list, with devices or without, and each pod in it, with "" as container. ``kubelet_start`` is
    another number after each start of the kubelet.
    """

    allocated: tuple[Allocation, ...]
    offered: tuple[OfferedDevice, ...] | None
    api_version: str
    read_at: float
    claims: tuple[ClaimedDevice, ...] = ()
    withdrawn: tuple[OfferedDevice, ...] = ()
    kept: frozenset[str] = frozenset()
    earlier: tuple[OfferedDevice, ...] = ()
    listed: frozenset[ContainerRef] = frozenset()
    kubelet_start: int = 0

    @property
    def pods(self) -> frozenset[PodName]:
        """Return the pods in the kubelet's list by namespace and name."""
        return frozenset(each.pod_name for each in self.listed if not each.container)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A container as the pod asks for it. ``limits`` are its extended resources, in whole numbers."""

    name: str
    init: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDetails:
    """What a pod's object says beyond its names. ``containers`` stand in the order of the object, init first.

    ``phase`` is that of Kubernetes: Pending, Running, Succeeded, Failed, Unknown.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[ContainerSpec, ...] = ()
    phase: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObject:
    """What the object of this node says in the Kubernetes API.

    ``capacity`` counts the devices of each extended resource, ``allocatable`` those of them that are healthy.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """A pod of this node. ``container_ids`` maps the runtime's 64-hex id to the container's name.

    ``containers`` are the names known, () where only the pod is. ``details`` is None where the source of
    the name does not have the pod's object.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[str, ...] = ()
    container_ids: Mapping[str, str] = field(default_factory=dict)
    details: PodDetails | None = None

    @property
    def pod_name(self) -> PodName:
        """Return namespace and name."""
        return PodName(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """Where a process runs.

    ``known`` False: it could not be found out (gone, unreadable, or a reused pid). With ``known`` True
    and ``pod_uid`` None it runs in no pod. ``container_id`` is 64 hex digits; it may be known of a process of
    which the pod is not. ``outer`` are the pods in which the pod itself runs, each with its container, from
    the next one outwards: a kubelet in a pod has pods of its own. ``command`` is the kernel's
    short name of the process, None where that could not be read; the process may choose it.
    """

    pid: int
    known: bool
    pod_uid: str | None = None
    container_id: str | None = None
    command: str | None = None
    outer: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """Who runs on the node: processes by pid and pods by uid.

    ``process_view``: pids mean the same to the driver, in ``--proc-root`` and to this process; without it no
    per-process number can be trusted. ``process_view_reason`` says why in words, ``process_view_code`` by a
    reason code. ``pods`` is None when no source of pod names answers. ``superseded`` are uids of pods whose
    name another pod has now.
    ``running`` has the ids of the containers with processes by pod uid, without those of sandboxes; None if
    the process table was not searched in this poll.
    """

    places: Mapping[int, ProcessPlace]
    pods: Mapping[str, PodIdentity] | None
    process_view: bool
    process_view_reason: str = ""
    process_view_code: str = ""
    superseded: frozenset[str] = frozenset()
    running: Mapping[str, frozenset[str]] | None = None


# kubectl's copy of the whole object; managers write as much in others.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# So much of one object is kept; Kubernetes itself lets an object have four times as much.
MOST_ANNOTATIONS = 1 << 16
# A sum of container limits of extended resources is a whole number; large ones have a suffix.
_QUANTITY = re.compile(r"([0-9]{1,18})(?:[eE]([0-9]{1,2})|(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?")
_SUFFIXES: dict[str, int] = {"": 1} | {
    suffix: base**power
    for base, suffixes in ((1000, "k M G T P E"), (1024, "Ki Mi Gi Ti Pi Ei"))
    for power, suffix in enumerate(suffixes.split(), start=1)
}


def quantity(text: str) -> int | None:
    """Read a quantity of Kubernetes that is a whole number (``2``, ``16Gi``); None for any other."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, exponent, suffix = match.groups()
    if exponent is not None:
        return int(number + "0" * int(exponent))
    return int(number) * _SUFFIXES[suffix or ""]


def extended_resources(limits: Mapping[str, str]) -> dict[str, int]:
    """Keep the limits that are extended resources: those with a domain in their name."""
    found = {name: quantity(text) for name, text in limits.items() if "/" in name}
    return {name: amount for name, amount in found.items() if amount is not None}


def kept_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Leave out what is far too long to be about a GPU: of too many the longest.

    Whoever may make pods may fill the annotations of each, and those of all pods are kept at once.
    """
    kept, room = set[str](), MOST_ANNOTATIONS
    for name in sorted(annotations.keys() - {LAST_APPLIED}, key=lambda name: (len(annotations[name]), name)):
        room -= len(name) + len(annotations[name])
        if room < 0:
            break
        kept.add(name)
    return {name: text for name, text in annotations.items() if name in kept}
