"""The orders that the tables of a cluster can stand in; the first of each needs not be asked for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from exporter.fleet.amounts import Amount
from exporter.fleet.model import IdleHolder, Namespace, Node

Row = TypeVar("Row")
Key = Callable[[Any], Any]


def _size(amount: Amount) -> float:
    return -amount.total


NODES: Mapping[str, Key] = {
    # What does not answer comes first: nobody knows what it wastes.
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
    """Put nodes in an order; one that is not known is the first."""
    return _sorted(rows, NODES, order)


def namespaces_in(rows: Sequence[Namespace], order: str) -> list[Namespace]:
    """Put namespaces in an order."""
    return _sorted(rows, NAMESPACES, order)


def idle_in(rows: Sequence[IdleHolder], order: str) -> list[IdleHolder]:
    """Put idle holders in an order."""
    return _sorted(rows, IDLE, order)


def chosen(keys: Mapping[str, Key], order: str) -> str:
    """Name the order that rows stand in when this one is asked for."""
    return order if order in keys else next(iter(keys))


def _sorted(rows: Sequence[Row], keys: Mapping[str, Key], order: str) -> list[Row]:
    return sorted(rows, key=keys[chosen(keys, order)])
