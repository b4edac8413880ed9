"""One pod of the cluster as records: its containers on their devices, and those that it had."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from exporter.advice.model import Advice
from exporter.fleet.gpus import Gpu, Holder
from exporter.fleet.model import Node, NodeKey
from exporter.model import ContainerRef, ContainerRow, Memory

DAYS = 7
"""How far back a pod is looked for."""
PodState: TypeAlias = Literal["holds", "held", "unknown", "none"]


class Xid(NamedTuple):
    """The last error of a kind on a GPU."""

    mig_uuid: str  # "" if no MIG device caused it
    code: int
    at: float  # Unix time


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevice:
    """A container of the pod on a device."""

    node: Node
    url: str  # of its page
    gpu: Gpu
    holder: Holder
    row: ContainerRow  # that of ``holder`` with its totals
    others: tuple[Holder, ...]  # the other known containers on the device
    pod_uid: str
    profile: str  # of the MIG device or partition, "" if none is reported
    memory: Memory | None  # of the device
    xids: tuple[Xid, ...] | None  # on the device while it had it, the newest first; None if not reported


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBefore:
    """A container of the pod on a device that it no longer has."""

    holder: ContainerRef
    node: NodeKey
    url: str  # of its page, "" if its node is not known
    uuid: str
    mig_uuid: str
    gpu: str
    resource: str
    model: str
    until: float | None  # Unix time of its last sample, to a minute or better; None if that is unknown
    why_unknown: str  # why it is unknown whether it still has the device, "" if it has not


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFound:
    """What is known of a pod."""

    at: float  # Unix time of Prometheus
    namespace: str
    pod: str
    devices: tuple[PodDevice, ...] = ()
    before: tuple[PodBefore, ...] = ()  # the newest first; () if it has devices
    silent: tuple[Node, ...] = ()  # nodes that do not answer
    advices: tuple[Advice, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()  # failed queries and their errors

    @property
    def state(self) -> PodState:
        """Whether it holds or uses a device, did so, or that is unknown."""
        if self.devices:
            return "holds"
        if self.before:
            return "unknown" if any(device.why_unknown for device in self.before) else "held"
        return "unknown" if self.silent or self.problems else "none"
