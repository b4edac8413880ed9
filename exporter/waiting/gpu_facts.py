"""What is known of GPUs, slices and their holders beside the objects of the cluster, as records.

None is unknown, and nothing is concluded from it. Nodes are those of the objects, by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.model.mig_geometry import Span
from exporter.waiting.objects import PodKey


class IdlePod(NamedTuple):
    """A pod that holds slices, none of which it has computed on lately."""

    key: PodKey
    node: str
    seconds: float  # since it last computed on any of them


class MigGpu(NamedTuple):
    """A healthy GPU in MIG mode that has free memory slices, or that no container holds."""

    node: str
    gpu: str  # index on the node
    uuid: str
    model: str
    used: tuple[Span, ...]  # places of all its GPU instances
    held: bool  # whether a container holds any of them
    offered: Mapping[str, int]  # slices by resource that its MIG devices are now


class SickDevice(NamedTuple):
    """Slices of a GPU that its device plugin reports as unhealthy."""

    node: str
    gpu: str  # index on the node
    uuid: str
    unhealthy: Mapping[str, int]  # slices by resource
    condition: str  # why, "" if it is not known


class SharedGpu(NamedTuple):
    """GPUs of a node that containers share in replicas."""

    node: str
    resource: str
    sharing: str  # time-slicing, mps


class SmallerRequest(NamedTuple):
    """What would fit the pods of a workload by the advice, if that is less than they ask for."""

    namespace: str
    workload: str  # the name of their owner, or of the pod
    profile: str  # a MIG profile
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """All of that, at one time."""

    at: float  # Unix time
    idle: tuple[IdlePod, ...] | None = None
    mig: tuple[MigGpu, ...] | None = None
    # By model and MIG profile, how many GPU instances of it fit on an empty GPU.
    instances: Mapping[tuple[str, str], int] = field(default_factory=dict)
    sick: tuple[SickDevice, ...] | None = None
    shared: tuple[SharedGpu, ...] | None = None
    smaller: tuple[SmallerRequest, ...] | None = None
    silent: Mapping[str, str] = field(default_factory=dict)  # nodes without current data, and why
    problems: tuple[str, ...] = ()  # what could not be read, as texts without a full stop
