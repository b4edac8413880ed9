"""The records of a cluster: nodes, namespaces, idle holders, unhealthy GPUs, and their totals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from exporter.fleet.amounts import UNTOLD, UNTOLD_SLICES, Amount, Share, Units
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
    """One node as of its newest data.

    ``age`` is that of this data in seconds, None where it is older than anything that was asked for.
    ``silent`` tells why nothing is known now, "" where the node answers. ``models`` counts its GPUs by model.
    ``slices`` are those of the vendors' own plug-ins, ``units`` what sharing systems give out, by resource.
    ``released``: its driver is given up on purpose. Bytes and shares of physical GPUs. None is not known.
    """

    key: NodeKey
    target: Target
    age: float | None
    silent: str = ""
    gpus: Amount = UNTOLD
    models: tuple[tuple[str, int], ...] | None = None
    sharing: tuple[str, ...] | None = None
    slices: Units = UNTOLD_SLICES
    units: tuple[Units, ...] | None = None
    memory_total: Amount = UNTOLD
    memory: Share = field(default_factory=Share)
    compute: Share = field(default_factory=Share)
    released: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What the pods of one namespace hold and use; ``hours`` are GPU-hours over the window, where known.

    ``holders`` is None where nobody knows which of those who use a GPU hold it.
    """

    name: str
    holders: int | None
    memory: Share = field(default_factory=Share)
    compute: Share = field(default_factory=Share)
    hours: Share = field(default_factory=Share)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleHolder:
    """A container that holds a device and has not computed on it for ``seconds`` seconds.

    ``gpu`` is the index of the GPU on its node, "" where it is not told, as of ``resource``. None is not
    known.
    """

    node: NodeKey
    holder: ContainerRef
    uuid: str
    mig_uuid: str
    gpu: str
    resource: str
    seconds: float | None
    memory_held: float | None
    memory_used: float | None
    compute_held: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SickGpu:
    """A GPU that somebody should look at, and why, the worst first.

    ``severity`` is ``bad`` where it cannot be relied on, ``note`` where it can.
    """

    node: NodeKey
    uuid: str
    gpu: str
    model: str
    severity: Literal["bad", "note"]
    reasons: tuple[str, ...]


class IdleTotals(NamedTuple):
    """Totals of all idle holders of the cluster, also of those not listed; None is not known."""

    holders: int | None = None
    memory_used: float | None = None
    compute_held: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The cluster at Unix time ``at`` of Prometheus.

    ``idle`` are the greatest idle holders in each order that they can be listed in. ``sick`` are all sick
    GPUs only with ``all_sick``. None is not known. ``problems`` names what could not be asked, and why; what
    stands on it is not known. ``window`` is that of GPU-hours, in seconds.
    """

    at: float
    window: float
    nodes: tuple[Node, ...] = ()
    namespaces: tuple[Namespace, ...] | None = ()
    idle: tuple[IdleHolder, ...] | None = ()
    idle_totals: IdleTotals = field(default_factory=IdleTotals)
    sick: tuple[SickGpu, ...] = ()
    all_sick: bool = True
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def answering(self) -> tuple[Node, ...]:
        """The nodes with current data."""
        return tuple(node for node in self.nodes if not node.silent)

    @property
    def silent(self) -> tuple[Node, ...]:
        """The nodes without current data."""
        return tuple(node for node in self.nodes if node.silent)

    @property
    def bad(self) -> Amount:
        """The number of unhealthy GPUs of severity ``bad``."""
        found = sum(gpu.severity == "bad" for gpu in self.sick)
        return Amount(found, found, int(not self.all_sick))

    @property
    def idle_holders(self) -> Amount:
        """The number of idle holders; at least the listed ones if the count failed."""
        counted = self.idle_totals.holders
        if counted is not None:
            return Amount(counted, 1)
        listed = len(self.idle or ())
        return Amount(listed, listed, 1)


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
    "waste": lambda each: (_size(each.compute.wasted), _size(each.memory.wasted), each.name),
    "memory": lambda each: (_size(each.memory.wasted), each.name),
    "hours": lambda each: (_size(each.hours.wasted), each.name),
    "name": lambda each: each.name,
}
IDLE: Mapping[str, Key] = {
    "longest": lambda each: (-(each.seconds or 0), each.holder.namespace, each.holder.pod),
    "memory": lambda each: (-(each.memory_used or 0), -(each.seconds or 0)),
    "compute": lambda each: (-(each.compute_held or 0), -(each.seconds or 0)),
}
ORDERS: Mapping[str, Mapping[str, Key]] = {"nodes": NODES, "namespaces": NAMESPACES, "idle": IDLE}
"""The orders of each table, by the parameter in the URL that names one."""


def nodes_in(rows: Sequence[Node], order: str) -> list[Node]:
    """Return nodes in an order; an unknown order is the default one."""
    return _sorted(rows, NODES, order)


def namespaces_in(rows: Sequence[Namespace], order: str) -> list[Namespace]:
    """Return namespaces in an order."""
    return _sorted(rows, NAMESPACES, order)


def idle_in(rows: Sequence[IdleHolder], order: str) -> list[IdleHolder]:
    """Return idle holders in an order."""
    return _sorted(rows, IDLE, order)


def chosen(keys: Mapping[str, Key], order: str) -> str:
    """Return the name of the order used when this one is requested."""
    return order if order in keys else next(iter(keys))


def _sorted(rows: Sequence[Row], keys: Mapping[str, Key], order: str) -> list[Row]:
    return sorted(rows, key=keys[chosen(keys, order)])
