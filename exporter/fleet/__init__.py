"""The cluster, from Prometheus, as records: nodes, namespaces, idle holders, unhealthy GPUs, and totals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from exporter.fleet.amounts import UNKNOWN_AMOUNT, UNKNOWN_SLICES, Amount, Share, Units, whole
from exporter.model import ContainerRef


class NodeKey(NamedTuple):
    """A node: its name, and its cluster if Prometheus has a label ``cluster``."""

    cluster: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}" if self.cluster else self.name


class Target(NamedTuple):
    """A target of Prometheus: an exporter, by its identifying labels."""

    cluster: str
    job: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node by its newest data; None is not known."""

    key: NodeKey
    target: Target
    age: float | None  # of this data in seconds, None if it is older than any query
    silent: str = ""  # why there is no current data, "" if the node answers
    gpus: Amount = UNKNOWN_AMOUNT
    models: tuple[tuple[str, int], ...] | None = None  # GPUs by model
    unhealthy: Amount = UNKNOWN_AMOUNT  # GPUs with a condition
    sharing: tuple[str, ...] | None = None
    slices: Units = UNKNOWN_SLICES  # of the vendors' own plug-ins
    units: tuple[Units, ...] | None = None  # of sharing systems, by resource
    # Those that hold or use a GPU. A GPU whose holders are unknown is one that is missing.
    containers: Amount = UNKNOWN_AMOUNT
    idle_holders: Amount = UNKNOWN_AMOUNT
    idle_compute: Amount = UNKNOWN_AMOUNT  # shares of physical GPUs that they hold
    memory_total: Amount = UNKNOWN_AMOUNT  # bytes
    memory: Share = field(default_factory=Share)  # bytes
    compute: Share = field(default_factory=Share)  # shares of physical GPUs
    released: bool | None = None  # whether its driver is released

    @property
    def unrecorded(self) -> bool:
        """Whether a node that answers lacks records: it, or the recording rules, are new."""
        of_gpus = (self.unhealthy, self.memory_total)
        lacks_sums = bool(self.gpus.value) and all(amount.value is None for amount in of_gpus)
        return not self.silent and (self.containers.value is None or lacks_sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What the pods of one namespace hold and use."""

    name: str
    holders: int | None  # None if it is unknown which containers hold their GPU
    all_holders: bool = True  # if not, there may be more
    memory: Share = field(default_factory=Share)  # bytes
    compute: Share = field(default_factory=Share)  # shares of physical GPUs
    hours: Share = field(default_factory=Share)  # GPU-hours over the window

    @property
    def holder_count(self) -> Amount:
        """The number of holders."""
        return UNKNOWN_AMOUNT if self.holders is None else Amount(self.holders, 1, int(not self.all_holders))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleHolder:
    """A container that holds a device and has not computed on it; None is not known."""

    node: NodeKey
    holder: ContainerRef
    uuid: str
    mig_uuid: str
    gpu: str  # index on its node, "" if not reported
    resource: str  # "" if not reported
    seconds: float | None  # since it last computed
    memory_held: float | None  # bytes
    memory_used: float | None  # bytes
    compute_held: float | None  # shares of physical GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class SickGpu:
    """A GPU that needs attention."""

    node: NodeKey
    uuid: str
    gpu: str
    model: str
    severity: Literal["bad", "note"]  # ``bad``: unhealthy; ``note``: needs maintenance
    reasons: tuple[str, ...]  # the worst first


class IdleTotals(NamedTuple):
    """Totals of all idle holders of the cluster, also of those not listed; None is not known."""

    holders: int | None = None
    compute_held: float | None = None
    complete: bool = True  # if not, both are lower bounds: of some holders it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The cluster; None is not known."""

    at: float  # Unix time of Prometheus
    window: float  # of GPU-hours, in seconds
    nodes: tuple[Node, ...] = ()
    namespaces: tuple[Namespace, ...] | None = ()
    all_namespaces: bool = True  # if not, there may be others that hold GPUs
    idle: tuple[IdleHolder, ...] | None = ()  # the largest idle holders in each order
    idle_totals: IdleTotals = field(default_factory=IdleTotals)
    sick: tuple[SickGpu, ...] = ()  # the unhealthy GPUs, all of them if ``all_sick``
    all_sick: bool = True
    problems: tuple[tuple[str, str], ...] = ()  # failed queries and their errors

    @property
    def answering(self) -> tuple[Node, ...]:
        """The nodes with current data."""
        return tuple(node for node in self.nodes if not node.silent)

    @property
    def silent(self) -> tuple[Node, ...]:
        """The nodes without current data."""
        return tuple(node for node in self.nodes if node.silent)

    @property
    def namespace_count(self) -> Amount:
        """The number of namespaces that hold GPUs."""
        count = len(self.namespaces or ())
        return Amount(count, count, int(self.namespaces is None or not self.all_namespaces))

    @property
    def bad(self) -> Amount:
        """The number of unhealthy GPUs of severity ``bad``."""
        count = sum(gpu.severity == "bad" for gpu in self.sick)
        return Amount(count, count, int(not self.all_sick))

    @property
    def idle_holders(self) -> Amount:
        """The number of idle holders, at least the listed ones."""
        counted, listed = self.idle_totals.holders, len(self.idle or ())
        if counted is None:
            return Amount(listed, listed, 1)
        return Amount(max(counted, listed), 1, int(not self.idle_totals.complete))

    @property
    def idle_unlisted(self) -> str:
        """What is not known of the idle holders, as a sentence; "" if nothing is."""
        counted, others = self.idle_totals.holders, "other " if self.idle else ""
        if self.idle is None:
            return "Idle holders are not known."
        if counted is None:
            return f"The number of {others}idle holders is not known."
        if counted and not self.idle:
            return f"Idle holders are not listed; there are {self.idle_holders.text(whole)}."
        return "" if self.idle_totals.complete else "Of some holders it is not known whether they are idle."


Row = TypeVar("Row")
Key = Callable[[Any], Any]


def _size(amount: Amount) -> float:
    return -amount.total


NODES: Mapping[str, Key] = {
    # Nodes that do not answer come first: their waste is unknown.
    "waste": lambda node: (not node.silent, _size(node.compute.wasted), _size(node.memory.wasted), node.key),
    "memory": lambda node: (not node.silent, _size(node.memory.wasted), node.key),
    "gpus": lambda node: (_size(node.gpus), node.key),
    "name": lambda node: node.key,
}
NAMESPACES: Mapping[str, Key] = {
    "waste": lambda row: (_size(row.compute.wasted), _size(row.memory.wasted), row.name),
    "memory": lambda row: (_size(row.memory.wasted), row.name),
    "hours": lambda row: (_size(row.hours.wasted), row.name),
    "name": lambda row: row.name,
}
IDLE: Mapping[str, Key] = {
    "longest": lambda row: (-(row.seconds or 0), row.holder.namespace, row.holder.pod),
    "memory": lambda row: (-(row.memory_used or 0), -(row.seconds or 0)),
    "compute": lambda row: (-(row.compute_held or 0), -(row.seconds or 0)),
}
ORDERS: Mapping[str, Mapping[str, Key]] = {"nodes": NODES, "namespaces": NAMESPACES, "idle": IDLE}
"""The orders of each table, by the parameter in the URL that names one."""


def chosen(keys: Mapping[str, Key], order: str) -> str:
    """Return the name of the order used when this one is requested."""
    return order if order in keys else next(iter(keys))


def in_order(rows: Sequence[Row], keys: Mapping[str, Key], order: str = "") -> list[Row]:
    """Return rows in one of the orders in ``keys``; an unknown order is the default one."""
    return sorted(rows, key=keys[chosen(keys, order)])
