"""The orders of lists: of each the first is the default."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Row = TypeVar("Row")


def _most_unused(row: Any) -> tuple[float, float]:
    return -row.compute.wasted.total, -row.memory.wasted.total


# By the parameter in the URL that names the order of a list.
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
    """Return an order of a list, its default one if there is none of that name."""
    return order if order in ORDERS[of] else next(iter(ORDERS[of]))


def in_order(of: str, rows: Sequence[Row], order: str = "") -> list[Row]:
    """Return rows of a list in an order."""
    return sorted(rows, key=ORDERS[of][known_order(of, order)])
