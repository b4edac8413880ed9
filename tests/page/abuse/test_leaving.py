"""Clients that leave at every point, in every way: nothing of them stays in the server."""

import asyncio
import gc
import logging
import socket

import pytest

from exporter.web.kit.http import connection
from tests.page.abuse.clients import reset
from tests.page.web.access import serving
from tests.waiting import LIMIT_SECONDS, wait_until_async

STREAM = b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n"
PAGE = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


async def open_client(site) -> socket.socket:
    """Connect without blocking the loop that serves."""
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", site.port))
    return client


async def received(client: socket.socket) -> bytes:
    """Return the next bytes of an answer, none at its end."""
    async with asyncio.timeout(LIMIT_SECONDS):
        return await asyncio.get_running_loop().sock_recv(client, 65536)


def _end(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


WAYS = {"resets": reset, "closes": socket.socket.close, "closes its half": _end}


@pytest.mark.parametrize("leave", WAYS.values(), ids=WAYS)
async def test_leaving_at_any_byte_leaves_nothing(caplog, leave):
    """After each byte of a request and of its answer: tasks and places are given back, nothing is logged."""
    async with serving() as site:
        assert (await site.get())[0] == 200
        # That of the connection that just ended may be among them.
        before = len(asyncio.all_tasks())
        with caplog.at_level(logging.INFO):
            clients = [await open_client(site) for _ in range(len(STREAM) + 10)]
            for sent, client in enumerate(clients):
                client.send(STREAM[:sent])
            for client in clients:
                await asyncio.sleep(0)
                leave(client)
            if leave is not _end:
                await wait_until_async(
                    lambda: site.server.connections == 0 and len(asyncio.all_tasks()) <= before
                )
        assert (await site.get())[0] == 200
        assert caplog.records == []
        for client in clients:
            client.close()


async def test_a_client_that_closes_its_half_gets_its_answers(monkeypatch):
    """As ``nc -N`` does behind its requests."""
    monkeypatch.setattr(connection, "_AFTER_EOF_SECONDS", LIMIT_SECONDS)
    async with serving() as site:
        client = await open_client(site)
        client.send(PAGE % b"metrics" * 3)
        client.shutdown(socket.SHUT_WR)
        answers = b""
        while answers.count(b"\r\n\r\npage") < 3:
            part = await received(client)
            assert part, answers
            answers += part
        client.close()


async def test_a_stream_ends_when_its_reader_closes_its_half(monkeypatch):
    """An answer without an end is not kept for a client that has closed its half: most often it is gone."""
    monkeypatch.setattr(connection, "_AFTER_EOF_SECONDS", 0.05)
    async with serving() as site:
        client = await open_client(site)
        client.send(STREAM)
        assert await received(client)
        client.shutdown(socket.SHUT_WR)
        while await received(client):
            pass
        client.close()
        await wait_until_async(lambda: site.server.connections == 0)


def _connections() -> int:
    """Return the number of connections in memory, also of those that have ended."""
    # By type and not by ``isinstance``, which runs code of objects that stand for others.
    return sum(type(kept) is connection.Connection for kept in gc.get_objects())


async def test_no_cycle_is_left_of_clients_that_left():
    """Connections need no garbage collection: a flood of them adds up to nothing."""
    async with serving() as site:
        await site.get()
        gc.collect()
        # Servers of other tests may be running.
        before = _connections()
        gc.disable()
        try:
            for sent in range(0, len(PAGE), 4):
                client = await open_client(site)
                client.send(PAGE[:sent])
                await asyncio.sleep(0)
                reset(client)
            await wait_until_async(lambda: site.server.connections == 0)
            # The loop still has what it was about to call when the last of them left.
            await wait_until_async(lambda: _connections() <= before + 1)
        finally:
            gc.enable()
