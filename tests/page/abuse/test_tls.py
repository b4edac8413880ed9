"""Bytes that are not TLS, handshakes that end halfway, foreign certificates: other clients are served."""

import asyncio
import contextlib
import logging
import os
import ssl
import struct

import pytest

from exporter.web.kit.http.connection import Limits
from tests.page.web.access import Site, serving
from tests.page.web.certificates import Authority
from tests.tools import tool
from tests.waiting import LIMIT_SECONDS, wait_until_async

SOON = 0.3
HELLO = b"\x16\x03\x01"
CONFIG = """tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_ca_file: ca.crt
  client_auth_type: RequireAndVerifyClientCert
"""
RECORDS = {
    "nothing": b"",
    "half a header": HELLO,
    "a hello of noise": HELLO + struct.pack(">H", 512) + os.urandom(512),
    "a hello that promises more": HELLO + b"\x40\x00\x01\x00\x3f\xfc\x03\x03" + bytes(32),
    "a record that is too long": HELLO + b"\xff\xff" + bytes(70_000),
    "plain HTTP": b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSL 2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(37),
    "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "data before a hello": b"\x17\x03\x03\x00\x10" + bytes(16),
    "a megabyte of zeros": bytes(1_000_000),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a web configuration that asks for certificates, and clients: ours, another's, one without."""
    folder = tmp_path_factory.mktemp("tls")
    ours = Authority(folder, "ca")
    ours.certify("server")
    (folder / "web.yml").write_text(CONFIG)
    (folder / "other").mkdir()
    other = Authority(folder / "other", "ca").certify("client")
    clients = {"ours": ours.trusted(ours.certify("client")), "none": ours.trusted()}
    clients["another's"] = ours.trusted(other)
    return folder / "web.yml", clients


async def left(site: Site, before: int) -> None:
    """Wait until there is no connection, and no task more than before."""
    await wait_until_async(lambda: site.server.connections == 0 and len(asyncio.all_tasks()) <= before)


async def served(site: Site, tls: ssl.SSLContext) -> bool:
    """Return whether a client is answered; on a busy machine its handshake may exceed a short limit."""
    with contextlib.suppress(OSError):
        return (await site.get(tls=tls))[2] == "page"
    return False


@pytest.mark.parametrize("end", ["waits", "closes"])
async def test_bytes_that_are_not_a_handshake_cost_only_their_connection(caplog, made, end):
    """Beside every kind of noise a client of ours is served; nothing of it is logged, and nothing stays."""
    config, clients = made
    limits = Limits(handshake=SOON if end == "waits" else LIMIT_SECONDS)
    async with serving(config, limits=limits) as site:
        await wait_until_async(lambda: served(site, clients["ours"]))
        before = len(asyncio.all_tasks())
        with caplog.at_level(logging.INFO):
            writers = []
            for sent in RECORDS.values():
                _, writer = await asyncio.open_connection("127.0.0.1", site.port)
                writer.write(sent)
                writers.append(writer)
            await wait_until_async(lambda: served(site, clients["ours"]))
            if end == "closes":
                for writer in writers:
                    writer.transport.abort()
            await left(site, before)
            for writer in writers:
                writer.transport.abort()
        assert caplog.records == []


@pytest.mark.parametrize("whose", ["none", "another's"])
async def test_a_client_without_a_certificate_of_ours_gets_no_answer(caplog, made, whose):
    """Without one, or with that of another authority; it leaves no line in the log."""
    config, clients = made
    async with serving(config) as site:
        before = len(asyncio.all_tasks())
        with caplog.at_level(logging.INFO):
            for _ in range(5):
                with contextlib.suppress(OSError):
                    assert await site.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", clients[whose]) == b""
            assert (await site.get(tls=clients["ours"]))[0] == 200
            await left(site, before + 1)
        assert caplog.records == []


async def test_a_client_cannot_renegotiate(made):
    """A client of TLS 1.2 that requests another handshake gets none, and others are served."""
    openssl = tool("openssl")
    config, clients = made
    async with serving(config) as site:
        pair = ("-cert", config.parent / "client.crt", "-key", config.parent / "client.key")
        words = ("s_client", "-tls1_2", "-connect", f"127.0.0.1:{site.port}", *map(str, pair))
        process = await asyncio.create_subprocess_exec(
            openssl,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        output = b""
        while b"Verify return code" not in output:
            output += await asyncio.wait_for(process.stdout.readline(), LIMIT_SECONDS)
        process.stdin.write(b"R\n")
        output = await asyncio.wait_for(process.stdout.read(), LIMIT_SECONDS)
        await process.wait()
        assert b"RENEGOTIATING" in output
        assert b"no renegotiation" in output
        assert (await site.get(tls=clients["ours"]))[0] == 200


async def test_tls_sent_to_the_plain_port_is_refused(made):
    """A client that expects TLS where there is none fails; it does not hang."""
    _, clients = made
    async with serving() as site, asyncio.timeout(LIMIT_SECONDS):
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", site.port, ssl=clients["ours"])
        assert (await site.get())[0] == 200
