"""Nodes made for a test, and the page of a cluster as HTML and as text."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from aiohttp.test_utils import TestClient, TestServer

from exporter.fleet.model import Node, NodeKey, Target
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.page import FleetScene, fleet_drawing
from exporter.fleet.pages.routes import FleetPages, make_hub_app
from exporter.fleet.pages.tables import Orders
from exporter.fleet.pages.usage import UsagePages
from exporter.fleet.pages.waiting_routes import WaitingPages
from exporter.fleet.prometheus import Prometheus, Sample
from exporter.fleet.usage.prices import Price, Prices
from exporter.fleet.waiting_watch import WaitingRead
from exporter.fleet.watch import FleetRead
from exporter.web.kit.html import page
from exporter.web.kit.live.broadcaster import Ticker


def node(name: str = "n1", cluster: str = "", **values: Any) -> Node:
    """Return a node that answers."""
    target = Target(cluster, "gpus", f"{name}:9836")
    return Node(key=NodeKey(cluster, name), target=target, **({"age": 4.0} | values))


def html(read: FleetRead, now: float, **orders: Any) -> str:
    """Return the page of a read."""
    return page(fleet_drawing(FleetScene(read, now, NodeUrl(), Orders(**orders))), "")


class Response(NamedTuple):
    """A response of the hub."""

    status: int
    headers: Mapping[str, str]
    text: str


async def asked(read: FleetRead, path: str, only: tuple[str, ...] = (), **headers: str) -> Response:
    """Return the response of a hub with this read to a request; ``only`` are the namespaces that it shows."""
    pages = FleetPages(lambda: read, NodeUrl(), only=only)
    waiting = WaitingPages(WaitingRead, tuple, NodeUrl())
    app = make_hub_app(pages, Ticker(), waiting=waiting, usage=usage_pages())
    async with TestClient(TestServer(app)) as client, client.get(path, headers=headers) as response:
        return Response(response.status, dict(response.headers), await response.text())


class _Balances:
    """A Prometheus with an hour of balances, and nothing else."""

    async def query(self, expression: str, _at: float | None = None) -> list[Sample]:
        if expression.startswith("count("):
            return [Sample({}, 1.0)]
        classes = {"allocation": "free", "use": "idle_free"}
        if "usage_seconds" not in expression or "labels:" in expression:
            return []
        return [Sample({"value": value, "class": name}, 3600.0) for value, name in classes.items()]


def usage_pages() -> UsagePages:
    """Return pages of usage in 2103, so that all months up to 2099 have passed."""
    prices = Prices(currency="EUR", account="lab", prices=(Price(model="*", price=1.0),))
    return UsagePages(cast("Prometheus", _Balances()), prices, clock=lambda: 4.2e9)


def words(markup: str) -> str:
    """Return the text of HTML."""
    return " ".join(re.sub(r"<[^>]+>", " ", markup).split())
