"""Limits of a server: clients that send or read too slowly, send too much, or are too many."""

import asyncio
import gc
import logging
import resource
import socket
import ssl
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
from aiohttp import web

from exporter.web.kit.application import build_app
from exporter.web.kit.http.connection import Limits, client_of, max_connections
from exporter.web.kit.http.refusals import SENT_AT_ONCE
from exporter.web.kit.http.responses import security_headers
from tests.page.web.access import serving, small_app
from tests.page.web.certificates import Authority
from tests.waiting import LIMIT_SECONDS, wait_until_async

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
ENDLESS = GET.replace(b"/ ", b"/endless ", 1)
SOON = 0.2
LARGE = 20_000_000
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01"
# Limits that no busy machine reaches.
PATIENT = Limits(head=1000, idle=4000, behind=2000)


def open_socket(site, peer="127.0.0.1", *, window=None):
    """Connect from an address of this machine, maybe with a receive buffer of this size."""
    client = socket.socket()
    if window is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    client.bind((peer, 0))
    client.settimeout(LIMIT_SECONDS)
    client.connect(("127.0.0.1", site.port))
    return client


def rest(client):
    """Read until the connection ends, in whatever way."""
    received = b""
    with suppress(ConnectionError):
        while part := client.recv(65536):
            received += part
    client.close()
    return received


async def ended(client):
    """Wait for the end of a connection; return what came before."""
    return await asyncio.to_thread(rest, client)


def answer(client):
    """Request the page, and read it."""
    client.sendall(GET)
    received = b""
    while not received.endswith(b"page"):
        part = client.recv(65536)
        if not part:
            raise ConnectionError
        received += part
    return received


def connections_of(site):
    """Return the open connections of a server."""
    return list(site.server._connections._open.values())


async def gone(site):
    """Wait until the server has no connection."""
    await wait_until_async(lambda: site.server.connections == 0)


@pytest.mark.parametrize(
    "sent", [b"", b"G", b"GET / HTTP/1.1\r\n", GET[:-2], b"GET / HTTP/1.1\r\nHost: x\r\nA: "]
)
async def test_an_incomplete_request_is_cut_off(sent):
    """Also if more of it keeps coming."""
    async with serving(limits=Limits(head=SOON, idle=600)) as site:
        client = open_socket(site)
        client.sendall(sent)

        async def drip():
            with suppress(OSError):
                while sent.endswith(b"A: "):
                    await asyncio.sleep(SOON / 10)
                    client.send(b"x")

        dripping = asyncio.create_task(drip())
        assert await ended(client) == b""
        dripping.cancel()


async def test_an_incomplete_second_request_is_cut_off():
    """The time for the next request counts from its first byte."""
    async with serving(limits=PATIENT) as site:
        client = open_socket(site)
        (connection,) = await wait_until_async(lambda: connections_of(site))
        assert await asyncio.to_thread(answer, client)
        await wait_until_async(lambda: not connection._answering)
        assert connection._timer is None
        client.sendall(GET[:10])
        first = await wait_until_async(lambda: connection._timer)
        client.sendall(GET[10:20])
        await wait_until_async(lambda: connection._head.size == 20)
        assert connection._timer is first
        client.sendall(GET[20:])
        assert b"page" in await asyncio.to_thread(client.recv, 65536)
        assert first.cancelled()
        connection._limits = replace(PATIENT, head=SOON)
        client.sendall(GET[:10])
        assert await ended(client) == b""


async def test_connections_without_requests_are_closed():
    async with serving(limits=Limits(head=600, idle=SOON)) as site:
        client = open_socket(site)
        assert await asyncio.to_thread(answer, client)
        assert await ended(client) == b""


@pytest.mark.parametrize("before", [b"", GET * 3])
async def test_a_stream_has_no_time_limit(before):
    """Whatever was requested right before on the same connection."""
    async with serving(limits=PATIENT) as site:
        client = open_socket(site)
        client.sendall(before + ENDLESS)
        received = b""
        while received.count(b"still here") < 2:
            received += await asyncio.to_thread(client.recv, 65536)
        (connection,) = connections_of(site)
        assert connection._timer is None
        while received.count(b"still here") < 10:
            part = await asyncio.to_thread(client.recv, 65536)
            assert part
            received += part
        client.close()


def large_app(size=LARGE):
    """Return an application with an answer of many megabytes, whole or as a stream."""
    body = b"x" * size

    async def whole(_request):
        return web.Response(body=body)

    async def stream(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, size, 65536):
            await response.write(body[start : start + 65536])
        return response

    return build_app([web.get("/", whole), web.get("/stream", stream)])


async def test_retired_connections_end():
    """At once without a request, and a stream after the time that a request has to arrive."""
    async with serving(limits=PATIENT) as site:
        idle, stream = open_socket(site), open_socket(site)
        assert await asyncio.to_thread(answer, idle)
        stream.sendall(ENDLESS)
        assert await asyncio.to_thread(stream.recv, 1)
        for connection in connections_of(site):
            connection._limits = replace(PATIENT, head=SOON)
        site.server._connections.retire()
        assert await ended(idle) == b""
        assert b"still here" in await ended(stream)


@pytest.mark.parametrize("path", [b"/", b"/stream"])
@pytest.mark.parametrize("closing", [b"", b"Connection: close\r\n"])
@pytest.mark.parametrize("size", [SENT_AT_ONCE - 4096, LARGE])
async def test_a_client_that_does_not_read_is_cut_off(path, closing, size):
    """Also if all of its answer is in the kernel's buffer, and the connection is about to be closed."""
    async with serving(app=large_app(size), limits=replace(PATIENT, behind=SOON)) as site:
        client = open_socket(site, window=1)
        client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + closing + b"\r\n")
        await wait_until_async(lambda: connections_of(site))
        await gone(site)
        assert len(await ended(client)) < size


async def test_a_large_answer_is_whole():
    """Its length is known beforehand, also by a HEAD request."""
    async with serving(app=large_app()) as site:
        head, _, body = (await site.raw(GET.replace(b"Host", b"Connection: close\r\nHost"))).partition(
            b"\r\n\r\n"
        )
        assert b"Content-Length: %d\r\n" % LARGE in head
        assert body == b"x" * LARGE
        asked = GET.replace(b"GET", b"HEAD").replace(b"Host", b"Connection: close\r\nHost")
        head, _, body = (await site.raw(asked)).partition(b"\r\n\r\n")
        assert b"Content-Length: %d\r\n" % LARGE in head
        assert body == b""


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """Return the path of a web configuration with a certificate."""
    folder = tmp_path_factory.mktemp("tls")
    Authority(folder, "ca").certify("tls")
    (folder / "web.yml").write_text("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n")
    return folder / "web.yml"


async def test_large_answers_to_many_clients_are_not_copied():
    """The buffers of fifty clients that do not read take far less than one answer."""
    async with serving(app=large_app(), limits=PATIENT) as site:
        clients = [open_socket(site, window=1) for _ in range(50)]
        for client in clients:
            client.sendall(GET)
        await wait_until_async(lambda: [each.writing_paused for each in connections_of(site)] == [True] * 50)
        buffered = [each.transport.get_write_buffer_size() for each in connections_of(site)]
        assert 0 < sum(buffered) < LARGE
        for client in clients:
            client.close()


async def test_a_failed_handshake_leaves_nothing_for_the_garbage_collector(tls):
    gc.collect()
    gc.disable()
    try:
        async with serving(tls) as site:
            for _ in range(5):
                client = open_socket(site)
                client.sendall(HALF_HELLO)
                await asyncio.sleep(0.01)
                client.close()
            await wait_until_async(
                lambda: not any(isinstance(each, ssl.SSLObject) for each in gc.get_objects())
            )
    finally:
        gc.enable()


async def test_an_incomplete_handshake_is_cut_off(tls):
    async with serving(tls, limits=Limits(handshake=SOON)) as site:
        for sent in (b"", HALF_HELLO):
            client = open_socket(site)
            client.sendall(sent)
            assert await ended(client) == b""
        await gone(site)


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 40 + b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
    ],
)
async def test_malformed_requests_get_our_text_and_no_log_line(caplog, request_):
    """A 400 with our headers and none of the parser's words."""
    async with serving() as site:
        with caplog.at_level(logging.INFO):
            head, _, body = (await site.raw(request_)).partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.0 400 Bad Request", b"HTTP/1.1 400 Bad Request"))
        for name, value in security_headers().items():
            assert f"{name}: {value}".encode() in head
        assert b"aiohttp" not in head.lower()
        assert body.startswith(b"Bad request: it is not valid HTTP")
        assert caplog.records == []


async def test_an_unknown_expectation_is_refused_in_our_words():
    async with serving() as site:
        head, _, body = (await site.raw(GET.replace(b"Host", b"Expect: <b>\r\nHost"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 417 ")
        assert b"Content-Security-Policy: " in head
        assert body == b"The expectation of this request is not supported.\n"
        whole = await site.raw(GET.replace(b"Host", b"Expect: 100-Continue\r\nConnection: close\r\nHost"))
        assert whole.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("sent", "then"),
    [
        (b"Content-Length: 9\r\nContent-Encoding: gzip\r\n\r\n", b"no gzip :"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"no number\r\n"),
        (b"Expect: \xff\r\n\r\n", b""),
        (b"Expect: 100-continue\r\n\r\n", b""),
    ],
)
async def test_bad_bodies_and_aborted_connections_do_not_fill_the_log(caplog, sent, then):
    async with serving() as site:
        for wait in (0.02, 0):
            client = open_socket(site)
            client.sendall(GET[:-2] + sent)
            await asyncio.sleep(wait)
            client.sendall(then)
            await asyncio.sleep(wait)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        assert (await site.get())[0] == 200
        await gone(site)
    assert caplog.records == []


@pytest.mark.parametrize("behind", [GET * 800_000, b"GET /" + b"x" * 30_000_000])
async def test_what_comes_before_an_answer_ends_is_limited(behind):
    """The client is cut off, or no longer read."""
    async with serving() as site:
        client = open_socket(site)
        # A server that no longer reads ends the test sooner; no verdict depends on it.
        client.settimeout(0.5)

        def send():
            client.sendall(ENDLESS)
            sent = 0
            with suppress(OSError):
                while sent < len(behind):
                    sent += client.send(behind[sent : sent + 1_000_000])
            return sent

        assert await asyncio.to_thread(send) < len(behind) / 2
        assert (await site.get())[0] == 200
        client.close()


async def test_one_client_does_not_get_all_places(caplog):
    """Its further connections are closed and logged once; others are served."""
    async with serving(limits=Limits(connections=20, share=0.5)) as site:
        crowd = [open_socket(site, "127.0.0.2") for _ in range(10)]
        await wait_until_async(lambda: site.server.connections == 10)
        for _ in range(3):
            assert await ended(open_socket(site, "127.0.0.2")) == b""
        assert (await site.get())[2] == "page"
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "127.0.0.2: it has 10, the most of one client" in caplog.text
        crowd.pop().close()
        await wait_until_async(lambda: site.server.connections == 9)
        crowd.append(open_socket(site, "127.0.0.2"))
        assert await asyncio.to_thread(answer, crowd[-1])
        for client in crowd:
            client.close()


async def test_a_new_client_is_closed_if_all_places_are_in_use(caplog):
    """Those that have one are still answered."""
    async with serving(limits=replace(PATIENT, connections=4)) as site:
        clients = [open_socket(site, f"127.0.0.{number + 2}") for number in range(4)]
        await wait_until_async(lambda: site.server.connections == 4)
        assert await ended(open_socket(site)) == b""
        assert "all 4 connections are in use" in caplog.text
        for client in clients:
            assert await asyncio.to_thread(answer, client)
            client.close()
        await gone(site)
        assert (await site.get())[2] == "page"


async def test_a_closed_connection_takes_no_place(monkeypatch):
    """In whatever way it ended."""
    monkeypatch.setattr("exporter.web.kit.http.connection._AFTER_EOF_SECONDS", 0.01)
    async with serving() as site:
        for number in range(30):
            client = open_socket(site)
            if number % 3:
                client.sendall(GET[: 10 * number])
            if number % 2:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        assert (await site.get())[0] == 200
        await gone(site)


async def test_the_server_stops_with_connections_in_every_state(monkeypatch):
    monkeypatch.setattr("exporter.web.kit.http.server.SHUTDOWN_SECONDS", 0.1)
    async with serving(app=small_app()) as site:
        clients = [open_socket(site) for _ in range(4)]
        for client, sent in zip(clients, (b"", GET[:9], GET, ENDLESS), strict=True):
            client.sendall(sent)
        await wait_until_async(lambda: site.server.connections == 4)
    for client in clients:
        await ended(client)


STARVED = """
import asyncio, logging, os, resource, socket, sys
from exporter.config import ListenAddress
from exporter.web.kit.http.server import Server
from exporter.web.kit.application import build_app
from aiohttp import web

starved = asyncio.Event()

class Log(logging.Handler):
    def emit(self, record):
        print(record.getMessage(), file=sys.stderr)
        starved.set()

async def page(request):
    return web.Response(text="page")

async def main():
    logging.getLogger().addHandler(Log())
    server = Server(build_app([web.get("/", page)]), ListenAddress("127.0.0.1", 0))
    url = await server.start()
    at = ("127.0.0.1", int(url.split(":")[2].strip("/")))
    clients = [socket.create_connection(at) for _ in range(40)]
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, used + 10))
    await starved.wait()
    for client in clients:
        client.close()
    reader, writer = await asyncio.open_connection(*at)
    writer.write(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    print((await reader.read()).endswith(b"page"))
    writer.close()
    await server.stop()

asyncio.run(main())
"""


def test_the_server_survives_without_file_descriptors():
    """It logs that it cannot accept, and answers once there are descriptors again."""
    done = subprocess.run(
        [sys.executable, "-c", STARVED], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    assert done.stdout == "True\n", done.stderr[-2000:]
    assert "cannot accept connections: [Errno 24] Too many open files; retrying" in done.stderr


@pytest.mark.parametrize(
    ("files", "connections"),
    [(512, 256), (65536, 300), (100, 64), (resource.RLIM_INFINITY, 300)],
)
def test_connections_leave_file_descriptors_for_drivers_and_the_kubelet(files, connections):
    assert max_connections((files, files)) == connections


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        (("10.0.0.1", 80), "10.0.0.1"),
        (("::ffff:10.0.0.1", 80, 0, 0), "10.0.0.1"),
        (("2001:db8::1:2:3:4", 80, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 80, 0, 3), "fe80::/64"),
        ("", ""),
        (None, ""),
    ],
)
def test_addresses_of_one_ipv6_network_are_one_client(peer, client):
    assert client_of(peer) == client
