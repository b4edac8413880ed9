"""The hub's usage when Prometheus fails now and then, and when many ask."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from aiohttp import ClientPayloadError, web
from aiohttp.test_utils import TestClient, TestServer

from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.routes import FleetPages, make_hub_app
from exporter.fleet.pages.usage import UsagePages
from exporter.fleet.prometheus import Prometheus, PrometheusError, Sample
from exporter.fleet.usage.period import DAY
from exporter.fleet.usage.prices import Price, Prices
from exporter.fleet.watch import FleetRead
from exporter.web.kit.live.broadcaster import Ticker
from tests.fleet.shown import words
from tests.fleet.waiting_cluster import waiting_pages

NOW = 1_761_955_200.0  # 2025-11-01
PRICES = Prices(currency="EUR", account="lab", prices=(Price(model="L4", price=1.0),))


class Flaky:
    """A Prometheus with a GPU that two namespaces hold; ``failing`` are texts of queries that fail."""

    def __init__(self) -> None:
        self.failing = ""
        self.now, self.most = 0, 0
        self.asked = 0

    async def query(self, expression: str, _at: float | None = None) -> list[Sample]:
        self.asked += 1
        if self.failing and self.failing in expression:
            raise PrometheusError("Prometheus did not answer within 10 s")
        if expression.startswith("count(group"):
            return [Sample({}, 1.0)]
        if "usage_seconds" in expression:
            return [
                Sample({"value": "allocation", "class": "held"}, 7200.0),
                Sample({"value": "use", "class": "unmeasured"}, 7200.0),
            ]
        if "gpuslice_usage:" not in expression:
            return []
        if "container:" in expression:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return []
        return [
            Sample({"namespace": name, "model": model, "value": "held"}, 3600.0)
            for name, model in (("ml", "L4"), ("lab", "T4"))
        ]


def browsed(
    prometheus: Flaky, browse: Callable[[TestClient[web.Request, web.Application]], Awaitable[None]],
    only: tuple[str, ...] = (), prices: Prices = PRICES,
) -> None:  # fmt: skip
    """Run a browser of the usage of a hub with this Prometheus."""

    async def run() -> None:
        pages = UsagePages(cast("Prometheus", prometheus), prices, only, clock=lambda: NOW)
        app = make_hub_app(FleetPages(FleetRead, NodeUrl()), Ticker(), waiting=waiting_pages(), usage=pages)
        async with TestClient(TestServer(app)) as client:
            await browse(client)

    asyncio.run(run())


def test_a_query_that_failed_is_sent_again_with_the_next_request() -> None:
    prometheus = Flaky()
    prometheus.failing = "namespace:gpuslice_usage:"

    async def browse(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/api/v1/usage?month=2025-10") as response:
            document = await response.json()
            assert (document["groups"], len(document["problems"])) == (None, 1)
        prometheus.failing = ""
        async with client.get("/api/v1/usage?month=2025-10") as response:
            document = await response.json()
            assert {group["name"] for group in document["groups"]} == {"ml", "lab"}
        asked = prometheus.asked
        async with client.get("/api/v1/usage?month=2025-10"):
            assert prometheus.asked == asked

    browsed(prometheus, browse)


def test_unknown_groups_are_no_empty_table() -> None:
    prometheus = Flaky()
    prometheus.failing = "namespace:gpuslice_usage:"

    async def browse(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/api/v1/usage?month=2025-10&format=csv") as response:
            assert response.status == 503
            assert "did not answer within 10 s" in await response.text()
        async with client.get("/usage?month=2025-10", headers={"Accept": "text/html"}) as response:
            text = words(await response.text())
            assert len(re.findall("Not known:", text)) == 1
            assert "within 10 s." in text
            assert "within 10 s.." not in text

    browsed(prometheus, browse)


def test_a_bill_of_some_namespaces_needs_no_price_of_others() -> None:
    async def browse(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/api/v1/usage?month=2025-10&format=focus") as response:
            assert response.status == 200

    browsed(Flaky(), browse, only=("ml",))


def test_a_device_without_a_price_refuses_the_bill() -> None:
    async def browse(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/api/v1/usage?month=2025-10&format=focus") as response:
            assert response.status == 404
            assert "needs a price for T4" in await response.text()

    browsed(Flaky(), browse)


def test_a_bill_without_one_of_its_days_is_no_whole_file() -> None:
    prometheus = Flaky()

    async def browse(client: TestClient[web.Request, web.Application]) -> None:
        async with client.get("/api/v1/usage?month=2025-10"):
            prometheus.failing = f"@ {NOW - 20 * DAY:.0f}"
        with pytest.raises(ClientPayloadError):
            async with client.get("/api/v1/usage?month=2025-10&format=focus") as response:
                await response.read()

    browsed(prometheus, browse, only=("ml",))


def test_the_headers_of_a_bill_cost_no_bill() -> None:
    prometheus = Flaky()

    async def browse(client: TestClient[web.Request, web.Application]) -> None:
        async with client.head("/api/v1/usage?month=2025-10&format=focus") as response:
            assert response.status == 200
        assert prometheus.most == 0

    browsed(prometheus, browse, only=("ml",))


def test_many_bills_are_read_a_few_days_at_a_time() -> None:
    prometheus = Flaky()

    async def browse(client: TestClient[web.Request, web.Application]) -> None:
        async def ask() -> str:
            async with client.get("/api/v1/usage?month=2025-10&format=focus") as response:
                return await response.text()

        assert len(set(await asyncio.gather(*(ask() for _ in range(20))))) == 1

    browsed(prometheus, browse, only=("ml",))
    # Two days at a time, each with the values ``held`` and ``unshared``.
    assert 2 <= prometheus.most <= 4
