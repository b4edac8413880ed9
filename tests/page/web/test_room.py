"""How much of an answer a connection takes before its client has read any."""

import asyncio
import socket
from contextlib import ExitStack

import pytest
from aiohttp import web

from exporter.web.kit.application import build_app
from exporter.web.kit.http.connections import WIDE
from exporter.web.kit.http.handler import Limits
from exporter.web.kit.http.responses import PORTION, ROOM
from tests.page.web.access import LOOK, Site, serving
from tests.page.web.test_limits import GET, open_socket
from tests.waiting import wait_until_async

TWICE = GET * 2
# As large as a page of metrics of a full node, compressed.
LARGE = ROOM - 4 * 1024


class Counted:
    """An application with an answer of ``size`` bytes, which counts those that it was asked for."""

    def __init__(self, size: int) -> None:
        self.asked = 0
        self._body = b"x" * size
        self.app = build_app([web.get("/", self._answer)])

    async def _answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(body=self._body)

    async def asks(self, count: int) -> bool:
        """Whether as many answers were requested, and still no more a moment later."""
        await wait_until_async(lambda: self.asked >= count)
        await asyncio.sleep(10 * LOOK)
        return self.asked == count


async def _let_in(site: Site, count: int) -> None:
    await wait_until_async(lambda: site.server.connections == count)


@pytest.mark.parametrize(("size", "at_once"), [(LARGE, 2), (2 * ROOM, 1)])
async def test_the_first_connections_buffer_a_whole_page(size: int, at_once: int):
    """The next request begins although nothing was read."""
    counted = Counted(size)
    async with serving(app=counted.app) as site:
        with open_socket(site, window=1) as client:
            client.sendall(TWICE)
            assert await counted.asks(at_once)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this kernel waits as long as it likes")
async def test_a_client_that_does_not_read_a_buffered_answer_is_cut_off():
    counted = Counted(LARGE)
    async with serving(app=counted.app, limits=Limits(behind=0.5, idle=600)) as site:
        with open_socket(site, window=1) as client:
            client.sendall(GET)
            assert await counted.asks(1)
            await _let_in(site, 0)


async def test_later_connections_buffer_a_portion():
    """Until one of the first has gone."""
    counted = Counted(LARGE)
    async with serving(app=counted.app) as site:
        with ExitStack() as first:
            crowd = [first.enter_context(open_socket(site)) for _ in range(WIDE)]
            await _let_in(site, WIDE)
            with open_socket(site, window=1) as late:
                late.sendall(TWICE)
                assert PORTION < LARGE
                assert await counted.asks(1)
                crowd[0].close()
                await _let_in(site, WIDE)
                with open_socket(site, window=1) as later:
                    later.sendall(TWICE)
                    assert await counted.asks(3)
