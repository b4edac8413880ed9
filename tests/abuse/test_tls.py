"""TLS that is none, ends halfway, or is another's: who has a certificate of ours is served beside it."""

import asyncio
import contextlib
import logging
import os
import shutil
import ssl
import struct

import pytest

from exporter.web.http.handler import Limits
from tests.web.access import Site, serving, until
from tests.web.certificates import Authority

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
    """Wait until no connection and no task more than before is there."""

    async def gone() -> bool:
        return site.server.connections == 0 and len(asyncio.all_tasks()) <= before

    await until(gone)


@pytest.mark.parametrize("end", ["waits", "closes"])
async def test_what_is_no_handshake_costs_only_itself(caplog, made, end):
    """Beside every kind of noise a client of ours is served; nothing of it is logged, and nothing stays."""
    config, clients = made
    async with serving(config, limits=Limits(handshake=SOON)) as site:
        assert (await site.get(tls=clients["ours"]))[0] == 200
        before = len(asyncio.all_tasks())
        with caplog.at_level(logging.INFO):
            writers = []
            for sent in RECORDS.values():
                _, writer = await asyncio.open_connection("127.0.0.1", site.port)
                writer.write(sent)
                writers.append(writer)
            assert (await site.get(tls=clients["ours"]))[2] == "page"
            if end == "closes":
                for writer in writers:
                    writer.transport.abort()
            await left(site, before)
            for writer in writers:
                writer.transport.abort()
        assert caplog.records == []


@pytest.mark.parametrize("whose", ["none", "another's"])
async def test_certificates_that_are_not_ours_let_nobody_in(caplog, made, whose):
    """Whoever comes with none, or with that of another authority, is told nothing and leaves no line."""
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


async def test_nobody_makes_it_negotiate_anew(made):
    """A client of TLS 1.2 that asks for another handshake is not given one, and others are served."""
    openssl = shutil.which("openssl") or pytest.skip("openssl is not on PATH")
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
        said = b""
        while b"Verify return code" not in said:
            said += await asyncio.wait_for(process.stdout.readline(), 10)
        process.stdin.write(b"R\n")
        said = await asyncio.wait_for(process.stdout.read(), 10)
        await process.wait()
        assert b"RENEGOTIATING" in said
        assert b"no renegotiation" in said
        assert (await site.get(tls=clients["ours"]))[0] == 200


async def test_tls_sent_to_the_plain_port_is_refused_at_once(made):
    """A client that expects TLS where there is none fails; it does not hang."""
    _, clients = made
    async with serving() as site, asyncio.timeout(5):
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", site.port, ssl=clients["ours"])
        assert (await site.get())[0] == 200
