"""The exporter in this process: a fake node, the real poller, and the real HTTP server on a free port."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from aiohttp import ClientSession

from exporter.advice.kept import Keeper
from exporter.advice.node_windows import advice_of_node
from exporter.config import ListenAddress, load_settings
from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario
from exporter.doctor.checks import Doctor
from exporter.history.ended import EndedHolders
from exporter.history.ring import History
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from exporter.web.kit.http.server import Server
from exporter.web.node.app import make_app
from tests.core.poller.bench import budget_of
from tests.site import site_of
from tests.waiting import LIMIT_SECONDS

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TEXT = "text/plain; version=0.0.4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A node that is served at ``url`` (without a slash at its end); only ``poll`` polls it."""

    node: FakeNode
    poller: Poller
    client: ClientSession
    url: str

    async def poll(self, second: float) -> None:
        """Set the time of the node and poll it."""
        await self.node.step(second)
        await self.poller.poll()


@asynccontextmanager
async def serving(
    scenario: Scenario, *, deadline: float = LIMIT_SECONDS, began: float | None = None, **changes: Any
) -> AsyncIterator[Served]:
    """Serve a node; a poll waits for each source for ``deadline`` seconds, ``changes`` are settings.

    ``began`` is the Unix time of second 0; without it, each poll is at the time of the clock. The client has
    no Accept and no Accept-Encoding of its own, and decodes nothing.
    """
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = replace(
            load_settings({"listen": "127.0.0.1:0"}, {}), node_name=node.name, **asdict(node.paths) | changes
        )
        poller = Poller(
            settings,
            Sources(settings, node.nvml, budget=budget_of(settings, deadline)),
            demo=True,
            clock=lambda: node.time,
            wall=time.time if began is None else lambda: began + node.time,
        )
        history = History(settings.history_retention, settings.poll_interval)
        poller.subscribe(history.record)
        doctor = Doctor(lambda: poller.evidence, settings)
        poller.subscribe(doctor.record)
        keeper = Keeper()
        poller.subscribe(keeper.record)
        ended = EndedHolders(settings.history_retention)
        poller.subscribe(ended.record)
        site = site_of(
            lambda: poller.snapshot,
            lambda: poller.restart_reason,
            doctor.report,
            history,
            lambda snapshot, only: advice_of_node(snapshot, keeper, only),
            ended=ended,
        )
        poller.subscribe(site.ticker.tick)
        server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
        url = await server.start()
        try:
            unsaid = ("Accept", "Accept-Encoding")
            async with ClientSession(auto_decompress=False, skip_auto_headers=unsaid) as client:
                yield Served(node=node, poller=poller, client=client, url=url.removesuffix("/"))
        finally:
            await server.stop()
            # Calls that hang in a fault would keep the poller from closing.
            node.nvml.release()
            await poller.close()
