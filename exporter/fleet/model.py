"""The cluster as records, None is not known: nodes, namespaces, idle holders and unhealthy GPUs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

from exporter.fleet import amounts
from exporter.fleet.amounts import UNKNOWN_AMOUNT, UNKNOWN_SHARE, UNKNOWN_SLICES, Amount, Share, Units, whole
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
class NodeSums:
    """The GPUs of one node, or of several together."""

    gpus: Amount = UNKNOWN_AMOUNT
    slices: Units = UNKNOWN_SLICES  # of the vendors' own plug-ins
    units: tuple[Units, ...] | None = None  # of sharing systems, by resource
    memory_total: Amount = UNKNOWN_AMOUNT  # bytes
    memory: Share = UNKNOWN_SHARE  # bytes
    compute: Share = UNKNOWN_SHARE  # shares of physical GPUs
    idle_holders: Amount = UNKNOWN_AMOUNT
    idle_compute: Amount = UNKNOWN_AMOUNT  # shares of physical GPUs that they hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(NodeSums):
    """One node by its newest data."""

    key: NodeKey
    target: Target
    age: float | None  # of this data in seconds, None if it is older than any query
    silent: str = ""  # why there is no current data, "" if the node answers
    models: tuple[tuple[str, int], ...] | None = None  # GPUs by model
    unhealthy: Amount = UNKNOWN_AMOUNT  # GPUs with a condition
    sharing: tuple[str, ...] | None = None
    # Those that hold or use a GPU. A GPU whose holders are unknown is one that is missing.
    containers: Amount = UNKNOWN_AMOUNT
    released: bool | None = None  # whether its driver is released

    @property
    def unrecorded(self) -> bool:
        """Whether a node that answers lacks records: it, or the recording rules, are new."""
        lacks_sums = self.unhealthy.value is None and self.memory_total.value is None
        lacks_gpus = bool(self.gpus.value) and lacks_sums
        return not self.silent and (self.containers.value is None or lacks_gpus)


def total_of_nodes(nodes: Sequence[Node]) -> NodeSums:
    """Return the sums of nodes."""
    return NodeSums(
        gpus=amounts.total_amount(node.gpus for node in nodes),
        slices=amounts.total_of("", [node.slices for node in nodes]),
        units=amounts.total_units(node.units for node in nodes),
        memory_total=amounts.total_amount(node.memory_total for node in nodes),
        memory=amounts.total_share(node.memory for node in nodes),
        compute=amounts.total_share(node.compute for node in nodes),
        idle_holders=amounts.total_amount(node.idle_holders for node in nodes),
        idle_compute=amounts.total_amount(node.idle_compute for node in nodes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """The holders in one namespace."""

    name: str
    holders: int | None  # None if it is unknown which containers hold their GPU
    all_holders: bool = True  # if not, there may be more
    memory: Share = UNKNOWN_SHARE  # bytes
    compute: Share = UNKNOWN_SHARE  # shares of physical GPUs
    hours: Share = UNKNOWN_SHARE  # GPU-hours over the window

    @property
    def holder_count(self) -> Amount:
        """The number of holders."""
        return UNKNOWN_AMOUNT if self.holders is None else Amount(self.holders, 1, int(not self.all_holders))


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleHolder:
    """A container that holds a device and has not computed on it."""

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


# Without slots, for its cached property.
@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The cluster."""

    at: float  # Unix time of Prometheus
    window: float  # of GPU-hours, in seconds
    nodes: tuple[Node, ...] = ()
    namespaces: tuple[Namespace, ...] | None = ()
    all_namespaces: bool = True  # if not, there may be others that hold GPUs
    idle: tuple[IdleHolder, ...] | None = ()  # the largest idle holders in each order

    sick: tuple[SickGpu, ...] = ()  # the unhealthy GPUs, all of them if ``all_sick``
    all_sick: bool = True
    problems: tuple[tuple[str, str], ...] = ()  # failed queries and their errors
    # All namespaces that kube-state-metrics reports, if it is scraped; None if the query failed.
    cluster_namespaces: frozenset[str] | None = frozenset()
    only: tuple[str, ...] = ()  # namespaces of the namespaces and idle holders here; () if they are of all
    all_idle: bool = False  # of some namespaces: whether all of their idle holders are listed

    @cached_property
    def total(self) -> NodeSums:
        """The sums of all nodes."""
        return total_of_nodes(self.nodes)

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
    def unlisted_namespaces(self) -> str:
        """What is known of the chosen namespaces that are not listed, as a sentence; "" if all are."""
        listed = {row.name for row in self.namespaces or ()}
        others = [name for name in self.only if name not in listed]
        if not others:
            return ""
        if self.all_namespaces:
            return f"No container in {', '.join(others)} holds a GPU."
        return f"It is not known whether {', '.join(others)} {'hold' if others[1:] else 'holds'} GPUs."

    @property
    def bad(self) -> Amount:
        """The number of unhealthy GPUs of severity ``bad``."""
        count = sum(gpu.severity == "bad" for gpu in self.sick)
        return Amount(count, count, int(not self.all_sick))

    @property
    def idle_counted(self) -> Amount:
        """The number of idle holders as recorded, or as listed of some namespaces."""
        if not self.only:
            return self.total.idle_holders
        listed = len(self.idle or ())
        return Amount(listed, 1) if self.all_idle else Amount(listed, listed, 1)

    @property
    def idle_compute(self) -> Amount:
        """What they hold, in shares of physical GPUs."""
        if not self.only:
            return self.total.idle_compute
        held = [idle.compute_held for idle in self.idle or ()]
        known = [compute for compute in held if compute is not None]
        unlisted = int(not self.all_idle)
        return Amount(sum(known), len(known), len(held) - len(known) + unlisted)

    @property
    def idle_complete(self) -> bool:
        """Whether it is known of all holders whether they are idle, and what these hold."""
        return not (self.idle_counted.missing or self.idle_compute.missing)

    @property
    def idle_holders(self) -> Amount:
        """The number of idle holders, at least the listed ones."""
        counted, listed = self.idle_counted.value, len(self.idle or ())
        if counted is None:
            return Amount(listed, listed, 1)
        return Amount(max(counted, listed), 1, int(not self.idle_complete))

    @property
    def idle_unlisted(self) -> str:
        """What is not known of the idle holders, as a sentence; "" if all is known."""
        if self.idle is None:
            return "Idle holders are not known."
        if self.only and not self.all_idle:
            return "There may be other idle holders: only the largest of the cluster are listed."
        if self.idle_counted.value is None:
            others = "other " if self.idle else ""
            return f"The number of {others}idle holders is not known."
        if self.idle_counted.value and not self.idle:
            return f"Idle holders are not listed; there are {self.idle_holders.text(whole)}."
        return "" if self.idle_complete else "Of some holders it is not known whether they are idle."


Row = TypeVar("Row")


def _most_unused(row: Any) -> tuple[float, float]:
    return -row.compute.wasted.total, -row.memory.wasted.total


# By the parameter in the URL that names the order of a list; the first order of each is the default.
ORDERS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "nodes": {
        # Nodes that do not answer come first: their waste is unknown.
        "waste": lambda node: (not node.silent, *_most_unused(node), node.key),
        "memory": lambda node: (not node.silent, -node.memory.wasted.total, node.key),
        "gpus": lambda node: (-node.gpus.total, node.key),
        "name": lambda node: node.key,
    },
    "namespaces": {
        "waste": lambda namespace: (*_most_unused(namespace), namespace.name),
        "memory": lambda namespace: (-namespace.memory.wasted.total, namespace.name),
        "hours": lambda namespace: (-namespace.hours.wasted.total, namespace.name),
        "name": lambda namespace: namespace.name,
    },
    "idle": {
        "longest": lambda idle: (-(idle.seconds or 0), idle.holder.namespace, idle.holder.pod),
        "memory": lambda idle: (-(idle.memory_used or 0), -(idle.seconds or 0)),
        "compute": lambda idle: (-(idle.compute_held or 0), -(idle.seconds or 0)),
    },
}


def known_order(of: str, order: str) -> str:
    """Return the name of an order of a list: ``order`` if the list has it, else its default order."""
    return order if order in ORDERS[of] else next(iter(ORDERS[of]))


def in_order(of: str, rows: Sequence[Row], order: str = "") -> list[Row]:
    """Return rows of a list in an order."""
    return sorted(rows, key=ORDERS[of][known_order(of, order)])
