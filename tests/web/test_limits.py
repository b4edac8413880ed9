"""What clients can take of a server: those who send or read too slowly, too much, or are too many."""

import asyncio
import gc
import logging
import resource
import socket
import ssl
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from exporter.web.app import build_app
from exporter.web.http.handler import Limits, client_of, max_connections
from exporter.web.http.responses import PORTION, security_headers
from tests.web.access import PATIENCE, serving, small_app, until
from tests.web.certificates import Authority

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SOON = 0.2
LARGE = 20_000_000
HALF_HELLO = b"\x16\x03\x01\x02\x00\x01"


def open_socket(site, peer="127.0.0.1", *, small=False):
    """Connect from an address of this machine, maybe with as small a window as there is."""
    client = socket.socket()
    if small:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    client.bind((peer, 0))
    client.settimeout(PATIENCE)
    client.connect(("127.0.0.1", site.port))
    return client


def rest(client):
    """Read until the end, however the connection ends."""
    got = b""
    with suppress(ConnectionError):
        while part := client.recv(65536):
            got += part
    client.close()
    return got


async def ended(client):
    """Wait for the end of a connection, and give what came before."""
    return await asyncio.to_thread(rest, client)


def answer(client):
    """Ask for the page, and read it."""
    client.sendall(GET)
    got = b""
    while not got.endswith(b"page"):
        part = client.recv(65536)
        if not part:
            raise ConnectionError
        got += part
    return got


@pytest.mark.parametrize(
    "sent", [b"", b"G", b"GET / HTTP/1.1\r\n", GET[:-2], b"GET / HTTP/1.1\r\nHost: x\r\nA: "]
)
async def test_half_a_request_is_cut_off(sent):
    """A request that does not come to its end is not waited for, though it comes bit by bit."""
    async with serving(limits=Limits(head=SOON, idle=60)) as site:
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


@pytest.mark.slow
async def test_a_second_request_that_is_half_is_cut_off():
    """On a connection that was answered once the time for the next request counts from its first byte."""
    async with serving(limits=Limits(head=3 * SOON, idle=60)) as site:
        client = open_socket(site)
        assert await asyncio.to_thread(answer, client)
        await asyncio.sleep(4 * SOON)
        client.sendall(GET[:10])
        await asyncio.sleep(SOON / 2)
        client.sendall(GET[10:])
        assert b"page" in await asyncio.to_thread(client.recv, 65536)
        client.sendall(GET[:10])
        assert await ended(client) == b""


async def test_connections_without_requests_are_closed():
    """One that was answered and then asks nothing is closed in the end."""
    async with serving(limits=Limits(head=60, idle=SOON)) as site:
        client = open_socket(site)
        assert await asyncio.to_thread(answer, client)
        assert await ended(client) == b""


@pytest.mark.parametrize("before", [b"", GET * 3])
async def test_a_stream_may_last(before):
    """What takes its answer is not cut off, however long that takes, and whatever was asked right before."""
    limits = Limits(head=SOON, idle=SOON, behind=SOON)
    async with serving(limits=limits) as site:
        client = open_socket(site)
        client.sendall(before + GET.replace(b"/ ", b"/endless ", 1))
        got = b""
        async with asyncio.timeout(PATIENCE):
            while got.count(b"still here") < 2 * SOON / 0.02:
                part = await asyncio.to_thread(client.recv, 65536)
                assert part
                got += part
        client.close()


def large_app():
    """Make an application with an answer of many megabytes, by a response and by a stream."""
    body = b"x" * LARGE

    async def whole(_request):
        return web.Response(body=body)

    async def stream(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, LARGE, PORTION):
            await response.write(body[start : start + PORTION])
        return response

    return build_app([web.get("/", whole), web.get("/stream", stream)])


@pytest.mark.parametrize("path", [b"/", b"/stream"])
@pytest.mark.parametrize("closing", [b"", b"Connection: close\r\n"])
async def test_who_does_not_read_is_cut_off(path, closing):
    """An answer that nobody takes is given up, so that it takes no place and no memory."""
    async with serving(app=large_app(), limits=Limits(head=60, idle=60, behind=SOON)) as site:
        client = open_socket(site, small=True)
        client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + closing + b"\r\n")
        assert await asyncio.to_thread(client.recv, 1)

        async def gone():
            return site.server.connections == 0

        await until(gone)
        client.close()


async def test_the_rest_of_an_answer_is_not_waited_for():
    """However much of it is left when the connection is to be closed, who does not take it is cut off."""

    async def body(request):
        return web.Response(body=b"x" * (int(request.match_info["size"]) * 16384))

    app = build_app([web.get("/{size}", body)])
    async with serving(app=app, limits=Limits(head=60, idle=60, behind=SOON)) as site:
        clients = [open_socket(site, small=True) for _ in range(40)]
        for size, client in enumerate(clients):
            client.sendall(b"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % size)
            assert await asyncio.to_thread(client.recv, 1)

        async def gone():
            return site.server.connections == 0

        await until(gone)
        for client in clients:
            client.close()


@pytest.mark.slow
async def test_who_reads_slowly_gets_all():
    """A client that takes its answer bit by bit is not cut off, though all of it takes long."""
    async with serving(app=large_app(), limits=Limits(head=60, idle=60, behind=2 * SOON)) as site:
        client = open_socket(site)
        client.sendall(GET.replace(b"Host", b"Connection: close\r\nHost"))

        def slowly():
            got = 0
            while part := client.recv(LARGE // 20, socket.MSG_WAITALL):
                got += len(part)
                time.sleep(0.03)
            return got

        assert await asyncio.to_thread(slowly) > LARGE
        client.close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """Make a web configuration with a certificate."""
    folder = tmp_path_factory.mktemp("tls")
    Authority(folder, "ca").certify("tls")
    (folder / "web.yml").write_text("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n")
    return folder / "web.yml"


def resident():
    """Give the memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def test_large_answers_to_many_take_no_copies():
    """Fifty clients that do not read take far less memory than fifty copies of what they are sent."""
    async with serving(app=large_app()) as site:
        clients = [open_socket(site, small=True) for _ in range(50)]
        before = resident()
        for client in clients:
            client.sendall(GET)
        await asyncio.sleep(0.3)
        assert resident() - before < 3 * LARGE
        for client in clients:
            client.close()


@pytest.mark.slow
async def test_handshakes_take_little_memory(tls):
    """Two hundred clients that begin TLS and say no more are kept for far less than asyncio would take."""
    async with serving(tls) as site:
        before = resident()
        clients = [await asyncio.to_thread(open_socket, site) for _ in range(200)]
        for client in clients:
            client.sendall(HALF_HELLO)
        await asyncio.sleep(0.1)
        assert site.server.connections == 200
        assert resident() - before < 200 * 128 * 1024
        for client in clients:
            client.close()


@pytest.mark.slow
async def test_what_tls_took_is_given_back_at_once(tls):
    """Nothing of a handshake that failed waits for a garbage collection: a flood adds up to nothing."""
    gc.collect()
    gc.disable()
    try:
        async with serving(tls) as site:
            for _ in range(5):
                client = open_socket(site)
                client.sendall(HALF_HELLO)
                await asyncio.sleep(0.01)
                client.close()

            async def gone():
                return not any(isinstance(each, ssl.SSLObject) for each in gc.get_objects())

            await until(gone)
    finally:
        gc.enable()


async def test_handshakes_are_not_waited_for(tls):
    """A client that begins TLS and says no more, or nothing, is cut off."""
    async with serving(tls, limits=Limits(handshake=SOON)) as site:
        for sent in (b"", HALF_HELLO):
            client = open_socket(site)
            client.sendall(sent)
            assert await ended(client) == b""
        assert site.server.connections == 0


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nCookie: " + b"a" * 9000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 40 + b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_answered_in_our_words(caplog, request_):
    """It gets a 400 with our headers and none of the parser's words, and leaves no line in the log."""
    async with serving() as site:
        with caplog.at_level(logging.INFO):
            head, _, body = (await site.raw(request_)).partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.0 400 Bad Request", b"HTTP/1.1 400 Bad Request"))
        for name, value in security_headers().items():
            assert f"{name}: {value}".encode() in head
        assert b"aiohttp" not in head.lower()
        assert body.startswith(b"Bad request: it is not valid HTTP")
        assert caplog.records == []


async def test_what_is_expected_is_not_repeated():
    """A request that expects something odd is refused in our words, with our headers."""
    async with serving() as site:
        head, _, body = (await site.raw(GET.replace(b"Host", b"Expect: <b>\r\nHost"))).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 417 ")
        assert b"Content-Security-Policy: " in head
        assert body == b"The expectation of this request is not supported.\n"
        got = await site.raw(GET.replace(b"Host", b"Expect: 100-Continue\r\nConnection: close\r\nHost"))
        assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("sent", "then"),
    [
        (b"Content-Length: 9\r\nContent-Encoding: gzip\r\n\r\n", b"no gzip :"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"no number\r\n"),
        (b"Expect: \xff\r\n\r\n", b""),
        (b"Expect: 100-continue\r\n\r\n", b""),
    ],
)
async def test_clients_do_not_fill_the_log(caplog, sent, then):
    """Bodies that are none, odd expectations, and leaving at once leave no line, let alone a traceback."""
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
    assert caplog.records == []


@pytest.mark.parametrize("headers", [40, 2000, 200_000])
async def test_the_head_of_a_request_is_limited(headers):
    """Many headers, each of them small, are cut off before they fill memory, and few are answered."""
    async with serving() as site:
        sent = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        sent += b"".join(b"X-%d: some words of a header\r\n" % number for number in range(headers)) + b"\r\n"
        client = open_socket(site)
        with suppress(ConnectionError):
            await asyncio.to_thread(client.sendall, sent)
        got = await ended(client)
        assert (b" 200 OK" in got) == (headers == 40)


async def test_what_is_sent_ahead_is_limited():
    """Who sends requests by the hundred thousand before the first is answered is cut off, or not read on."""
    many = GET * 800_000
    async with serving() as site:
        client = open_socket(site)
        client.settimeout(0.5)

        def send():
            sent = client.send(GET.replace(b"/ ", b"/endless ", 1)) - len(GET)
            with suppress(OSError):
                while sent < len(many):
                    sent += client.send(many[sent : sent + 1_000_000])
            return sent

        assert await asyncio.to_thread(send) < len(many) / 2
        assert (await site.get())[0] == 200
        client.close()


async def test_new_clients_take_the_place_of_who_only_waits():
    """With all places taken by connections without a request, who asks is answered, and streams stay."""
    async with serving(limits=Limits(connections=10, share=0.8)) as site:
        stream = open_socket(site, "127.0.0.9")
        stream.sendall(GET.replace(b"/ ", b"/endless ", 1))
        scraper = open_socket(site, "127.0.0.8")
        assert await asyncio.to_thread(answer, scraper)
        idle = [open_socket(site, f"127.0.0.{number % 3 + 2}") for number in range(40)]
        await asyncio.sleep(0.1)
        assert site.server.connections <= 10
        assert (await site.get())[2] == "page"
        assert await asyncio.to_thread(answer, scraper)
        assert await asyncio.to_thread(stream.recv, 65536)
        for client in (*idle, stream, scraper):
            client.close()


async def test_one_client_does_not_get_all_places(caplog):
    """What one address has too many of is closed at once, and logged once; others are let in."""
    async with serving(limits=Limits(connections=20, share=0.5)) as site:
        crowd = [open_socket(site, "127.0.0.2") for _ in range(30)]
        for client in crowd:
            with suppress(OSError):
                client.sendall(GET.replace(b"/ ", b"/endless ", 1))
        await asyncio.sleep(0.1)
        assert site.server.connections == 10
        assert (await site.get())[2] == "page"
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "127.0.0.2 has the most connections" in caplog.text
        for client in crowd:
            client.close()


@pytest.mark.slow
async def test_where_all_are_in_use_a_new_one_is_closed(caplog):
    """When every place is taken by who takes an answer, nobody of them is sent away."""
    async with serving(limits=Limits(connections=4, share=2)) as site:
        streams = [open_socket(site) for _ in range(4)]
        for client in streams:
            client.sendall(GET.replace(b"/ ", b"/endless ", 1))
            await asyncio.to_thread(client.recv, 1)
        assert await ended(open_socket(site)) == b""
        assert "all 4 connections are in use" in caplog.text
        for client in streams:
            assert await asyncio.to_thread(client.recv, 65536)
            client.close()


async def test_where_all_are_being_answered_a_new_one_waits():
    """Many that ask at once may all wait for one page: who comes meanwhile is served after it, not closed."""
    app = small_app()
    rendered = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        await rendered.wait()
        return web.Response(text="page")

    app.router.add_get("/slow", slow)
    async with serving(app=app, limits=Limits(connections=4, share=2)) as site:
        crowd = [open_socket(site) for _ in range(4)]
        for client in crowd:
            client.sendall(GET.replace(b"/ ", b"/slow ", 1))
        await until(lambda: _all_answering(site, 4))
        scraper, gone = open_socket(site), open_socket(site)
        gone.close()
        told = asyncio.create_task(asyncio.to_thread(answer, scraper))
        await asyncio.sleep(0.2)
        assert not told.done()
        rendered.set()
        assert (await told).endswith(b"page")
        for client in (*crowd, scraper):
            client.close()


async def _all_answering(site, number):
    connections = site.server._connections._by_handler.values()
    return [each.answering for each in connections] == [True] * number


async def test_of_those_that_wait_for_a_place_there_are_few(monkeypatch):
    """More than there may be are closed at once, the others when they have waited long enough."""
    monkeypatch.setattr("exporter.web.http.connections.WAITING", 2)
    monkeypatch.setattr("exporter.web.http.connections.WAITING_SECONDS", 2.0)
    async with serving(limits=Limits(connections=2, share=2)) as site:
        streams = [open_socket(site) for _ in range(2)]
        for client in streams:
            client.sendall(GET.replace(b"/ ", b"/endless ", 1))
            await asyncio.to_thread(client.recv, 1)
        waiting = [open_socket(site) for _ in range(2)]
        await asyncio.sleep(0.1)
        started = time.monotonic()
        assert await ended(open_socket(site)) == b""
        assert time.monotonic() - started < 1.5
        assert [await ended(client) for client in waiting] == [b"", b""]
        assert time.monotonic() - started > 0.3
        for client in streams:
            client.close()


@pytest.mark.slow
async def test_who_is_gone_takes_no_place():
    """Connections that end, in whatever way, are forgotten."""
    async with serving() as site:
        for number in range(30):
            client = open_socket(site)
            if number % 3:
                client.sendall(GET[: 10 * number])
            if number % 2:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        assert (await site.get())[0] == 200

        async def gone():
            return site.server.connections == 0

        await until(gone)
        assert site.server._connections._clients == {}


@pytest.mark.slow
async def test_the_server_stops_though_clients_do_not():
    """Connections in every state are closed when it stops, at once."""
    async with serving(app=small_app()) as site:
        clients = [open_socket(site) for _ in range(4)]
        for client, sent in zip(
            clients, (b"", GET[:9], GET, GET.replace(b"/ ", b"/endless ", 1)), strict=True
        ):
            client.sendall(sent)
        await asyncio.sleep(0.05)
    for client in clients:
        await ended(client)


STARVED = """
import asyncio, resource, socket, sys
from exporter.config import ListenAddress
from exporter.web import Server
from exporter.web.app import build_app
from aiohttp import web

async def page(request):
    return web.Response(text="page")

async def main():
    asyncio.constants.ACCEPT_RETRY_DELAY = 0.1
    server = Server(build_app([web.get("/", page)]), ListenAddress("127.0.0.1", 0))
    url = await server.start()
    at = ("127.0.0.1", int(url.split(":")[2].strip("/")))
    used = max(map(int, __import__("os").listdir("/proc/self/fd")))
    clients = [socket.create_connection(at) for _ in range(40)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, used + 50))
    await asyncio.sleep(0.2)
    for client in clients:
        client.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 50, used + 50))
    await asyncio.sleep(0.3)
    reader, writer = await asyncio.open_connection(*at)
    writer.write(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    print((await reader.read()).endswith(b"page"))
    writer.close()
    await server.stop()

asyncio.run(main())
"""


@pytest.mark.slow
def test_running_out_of_files_passes():
    """When no socket can be had any more the program goes on, and answers once there are some again."""
    done = subprocess.run(
        [sys.executable, "-c", STARVED], capture_output=True, text=True, check=False, timeout=PATIENCE * 2
    )
    assert done.stdout == "True\n", done.stderr[-2000:]
    assert "out of system resource" in done.stderr


@pytest.mark.parametrize(
    ("files", "connections"),
    [(1024, 768), (65536, 1000), (100, 64), (resource.RLIM_INFINITY, 1000)],
)
def test_connections_leave_files_for_the_rest(files, connections):
    """There are never so many that drivers and the kubelet could not be asked any more."""
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
def test_clients_go_by_their_address(peer, client):
    """The many addresses of one IPv6 network are one client."""
    assert client_of(peer) == client
