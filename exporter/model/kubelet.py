"""What the kubelet and the process table of the node say."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class ContainerRef:
    """A container by the names that Kubernetes gives it. ``container`` is "" where only the pod is known."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """One device id that the kubelet gave to a container, in the spelling of the device plugin."""

    holder: ContainerRef
    resource: str
    device_id: str


@dataclass(frozen=True, slots=True, order=True)
class OfferedDevice:
    """One device id that a device plugin offers on this node, healthy and allocatable."""

    resource: str
    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """The kubelet's device accounting, sorted and free of NUMA duplicates.

    ``offered`` is None where the kubelet cannot tell (pod-resources v1alpha1, old kubelets): then the
    number of replicas of a GPU is not known either. ``read_at`` is Unix time in seconds.
    """

    allocated: tuple[Allocation, ...]
    offered: tuple[OfferedDevice, ...] | None
    api_version: str
    read_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PodIdentity:
    """A pod of this node. ``container_ids`` maps the runtime's 64-hex id to the container's name.

    ``containers`` are the names known, () where only the pod is.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[str, ...] = ()
    container_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """Where a process runs.

    ``known`` False: it could not be found out (gone, unreadable, or a reused pid). With ``known`` True
    and ``pod_uid`` None it runs in no pod. ``container_id`` is 64 hex digits.
    """

    pid: int
    known: bool
    pod_uid: str | None = None
    container_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workloads:
    """Who runs on the node: processes by pid and pods by uid.

    ``process_view`` says that pids mean the same to the driver, to ``--proc-root`` and to us; without it
    no per-process number can be trusted, and ``process_view_reason`` tells why. ``pods`` is None when no
    source of pod names answers.
    """

    places: Mapping[int, ProcessPlace]
    pods: Mapping[str, PodIdentity] | None
    process_view: bool
    process_view_reason: str = ""
