"""Nodes made for a test, and the page of a cluster as HTML and as text."""

import re
from typing import Any

from exporter.fleet.model import Node, NodeKey, Target
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.page import FleetScene, fleet_drawing
from exporter.fleet.pages.tables import Orders
from exporter.fleet.watch import FleetRead
from exporter.web.kit.html import page


def node(name: str = "n1", cluster: str = "", **values: Any) -> Node:
    """Return a node that answers."""
    target = Target(cluster, "gpus", f"{name}:9836")
    return Node(key=NodeKey(cluster, name), target=target, **({"age": 4.0} | values))


def html(read: FleetRead, now: float, **orders: str) -> str:
    """Return the page of a read."""
    return page(fleet_drawing(FleetScene(read, now, NodeUrl(), Orders(**orders))), "")


def words(markup: str) -> str:
    """Return the text of HTML."""
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())
