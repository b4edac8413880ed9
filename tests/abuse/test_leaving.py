"""Clients that leave at every point, in every way: nothing of them stays behind in the server."""

import asyncio
import gc
import logging
import socket

import pytest

from tests.abuse.clients import RESET
from tests.web.access import serving, until

ASKED = b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n"
PAGE = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


async def open_client(site) -> socket.socket:
    """Connect without blocking the loop that serves."""
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", site.port))
    return client


def _resets(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


def _ends(client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)


WAYS = {"resets": _resets, "closes": socket.socket.close, "says that no more will come": _ends}


@pytest.mark.parametrize("leave", WAYS.values(), ids=WAYS)
async def test_leaving_at_any_byte_leaves_nothing(caplog, leave):
    """After each byte of a request, and of its answer, a client may go: tasks and places are given back."""
    async with serving() as site:
        assert (await site.get())[0] == 200
        # That of the connection that just ended may be among them.
        before = len(asyncio.all_tasks())
        with caplog.at_level(logging.INFO):
            clients = [await open_client(site) for _ in range(len(ASKED) + 10)]
            for sent, client in enumerate(clients):
                client.send(ASKED[:sent])
            for client in clients:
                await asyncio.sleep(0)
                leave(client)
            if leave is not _ends:

                async def gone() -> bool:
                    return site.server.connections == 0 and len(asyncio.all_tasks()) <= before

                await until(gone)
        assert (await site.get())[0] == 200
        assert caplog.records == []
        for client in clients:
            client.close()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [PAGE % b"", PAGE % b"metrics" * 3], ids=["one request", "three"])
async def test_who_says_that_no_more_will_come_gets_what_was_asked_for(sent):
    """A client that closes its half behind its requests, as ``nc -N`` does, is answered, and let go then."""
    async with serving() as site:
        client = await open_client(site)
        client.send(sent)
        client.shutdown(socket.SHUT_WR)
        said = b""
        async with asyncio.timeout(10):
            while part := await asyncio.get_running_loop().sock_recv(client, 65536):
                said += part
        client.close()
        assert said.count(b"\r\n\r\npage") == sent.count(b"GET")
        assert site.server.connections == 0


@pytest.mark.slow
async def test_a_stream_ends_soon_when_its_reader_says_that_no_more_will_come():
    """An answer without an end is not kept for who has closed its half: most often nobody is there."""
    async with serving() as site:
        client = await open_client(site)
        client.send(ASKED)
        await asyncio.sleep(0.1)
        client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(5):
            while await asyncio.get_running_loop().sock_recv(client, 65536):
                pass
        client.close()


@pytest.mark.slow
async def test_no_cycle_is_left_of_who_left():
    """Connections need no garbage collection: a flood of them adds up to nothing."""
    async with serving() as site:
        await site.get()
        gc.collect()
        gc.disable()
        try:
            for sent in range(0, len(PAGE), 4):
                client = await open_client(site)
                client.send(PAGE[:sent])
                await asyncio.sleep(0)
                _resets(client)

            async def gone() -> bool:
                return site.server.connections == 0

            async def let_go() -> bool:
                return [type(each).__name__ for each in gc.get_objects()].count("Connection") <= 1

            await until(gone)
            # The loop still has what it was about to call when the last of them left.
            await until(let_go)
        finally:
            gc.enable()
