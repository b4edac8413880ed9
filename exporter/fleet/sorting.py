"""The orders of lists: of each the first is the default."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Row = TypeVar("Row")

# By the parameter in the URL that names the order of a list.
ORDERS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "nodes": {
        # Nodes that do not answer come first: their waste is unknown.
        "waste": lambda node: (
            not node.silent,
            -node.compute.wasted.total,
            -node.memory.wasted.total,
            node.key,
        ),
        "memory": lambda node: (not node.silent, -node.memory.wasted.total, node.key),
        "gpus": lambda node: (-node.gpus.total, node.key),
        "name": lambda node: node.key,
    },
    "namespaces": {
        "waste": lambda row: (-row.compute.wasted.total, -row.memory.wasted.total, row.name),
        "memory": lambda row: (-row.memory.wasted.total, row.name),
        "hours": lambda row: (-row.hours.wasted.total, row.name),
        "name": lambda row: row.name,
    },
    "idle": {
        "longest": lambda row: (-(row.seconds or 0), row.holder.namespace, row.holder.pod),
        "memory": lambda row: (-(row.memory_used or 0), -(row.seconds or 0)),
        "compute": lambda row: (-(row.compute_held or 0), -(row.seconds or 0)),
    },
}


def known_order(of: str, order: str) -> str:
    """Return an order of a list, its default one if there is none of that name."""
    return order if order in ORDERS[of] else next(iter(ORDERS[of]))


def in_order(of: str, rows: Sequence[Row], order: str = "") -> list[Row]:
    """Return rows of a list in an order."""
    return sorted(rows, key=ORDERS[of][known_order(of, order)])
