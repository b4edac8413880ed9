"""Addresses to listen on: both families where this host has both, on real sockets."""

import asyncio
import errno
import socket
from contextlib import asynccontextmanager, closing

import pytest

from benchmarks.processes import free_port
from exporter.config import ListenAddress, load_settings
from exporter.web.kit.http.listeners import bind
from exporter.web.kit.http.server import ListenError, Server
from tests.page.web.access import small_app

LOCAL = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
V4, V6 = socket.AF_INET, socket.AF_INET6


def _has(family):
    try:
        with socket.socket(family) as tried:
            tried.bind((LOCAL[family], 0))
    except OSError:
        return False
    return True


HERE = {family for family in LOCAL if _has(family)}


def without(*families, number=errno.EAFNOSUPPORT):
    """Return a socket factory of a host that lacks families."""

    def make(family, kind, protocol):
        if family in families:
            raise OSError(number, "none here")
        return socket.socket(family, kind, protocol)

    return make


class Deaf(socket.socket):
    """A socket of a family that has no address on this host, as with disabled IPv6."""

    def bind(self, _address):
        raise OSError(errno.EADDRNOTAVAIL, "none here")


class Standing:
    """Stands in for a socket of a family that the machine of this test may not have."""

    def __init__(self, family):
        self.family, self.options, self.bound = family, {}, None

    def setblocking(self, _flag):
        pass

    def setsockopt(self, level, option, value):
        self.options[level, option] = value

    def bind(self, address):
        self.bound = address

    def getsockname(self):
        return (self.bound[0], self.bound[1] or 4711, *self.bound[2:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def standing(*families):
    """Return a socket factory of a host that has these families only."""

    def make(family, _kind, _protocol):
        if family not in families:
            raise OSError(errno.EAFNOSUPPORT, "none here")
        return Standing(family)

    return make


def address(text):
    return load_settings({"listen": text}, {}).listen


@asynccontextmanager
async def serving(text):
    """Serve on an address; yield the port."""
    server = Server(small_app(), address(text))
    url = await server.start()
    try:
        yield int(url.rstrip("/").rpartition(":")[2])
    finally:
        await server.stop()


async def answers(family, port):
    """Return whether a page is served there."""
    try:
        reader, writer = await asyncio.open_connection(LOCAL[family], port, family=family)
    except OSError:
        return False
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return b" 200 OK\r\n" in answer


@pytest.mark.parametrize(
    ("text", "families"),
    [
        (":0", {V4, V6}),
        ("[::]:0", {V4, V6}),
        ("[0:0::0]:0", {V4, V6}),
        ("0.0.0.0:0", {V4}),
        ("127.0.0.1:0", {V4}),
        ("[::1]:0", {V6}),
    ],
)
async def test_an_address_is_served_to_its_families(text, families):
    """Those of this machine, on one port."""
    if not families & HERE:
        with pytest.raises(ListenError):
            await Server(small_app(), address(text)).start()
        return
    async with serving(text) as port:
        assert {family for family in LOCAL if await answers(family, port)} == families & HERE


@pytest.mark.parametrize("host", [None, "::"])
@pytest.mark.parametrize(
    ("here", "bound"), [((V4, V6), {"0.0.0.0", "::"}), ((V4,), {"0.0.0.0"}), ((V6,), {"::"})]
)
async def test_all_addresses_are_those_of_the_families_of_a_host(host, here, bound):
    """Each family has a socket, so that IPv4 clients keep their addresses; all have one port."""
    sockets = await bind(ListenAddress(host, 0), standing(*here))
    assert {each.bound[0] for each in sockets} == bound
    assert {each.getsockname()[1] for each in sockets} == {4711}
    only = socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
    assert [each.options.get(only) for each in sockets if each.family == V6] == [1] * (V6 in here)


@pytest.mark.parametrize("text", [":0", "[::]:0"])
@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_a_family_that_cannot_be_used_is_left_out(text, number):
    """On real sockets, whichever family it is."""
    for lacking in (V4, V6):
        rest = HERE - {lacking}
        if not rest:
            continue
        listeners = await bind(address(text), without(lacking, number=number))
        for listener in listeners:
            with closing(listener):
                assert listener.family in rest


async def test_an_address_that_cannot_be_bound_is_left_out():
    """Disabled IPv6 has sockets without addresses; a host name may still have its address."""

    def make(family, kind, protocol):
        return (Deaf if family == V6 else socket.socket)(family, kind, protocol)

    for listener in await bind(ListenAddress("localhost", 0), make):
        with closing(listener):
            assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(("host", "families"), [("::1", (V6,)), ("127.0.0.1", (V4,)), (None, (V4, V6))])
async def test_without_any_address_the_reason_is_raised(host, families):
    with pytest.raises(OSError, match="none here") as raised:
        await bind(ListenAddress(host, 0), without(*families))
    assert raised.value.errno == errno.EAFNOSUPPORT


@pytest.mark.parametrize("text", [":{}", "[::]:{}"])
@pytest.mark.parametrize("family", sorted(HERE))
async def test_a_port_that_one_family_has_taken_is_an_error(text, family):
    """Some clients would get the page of another program. No socket stays open."""
    # A port that the system would choose could be that of another program's connection afterwards.
    port = free_port()
    refused = pytest.raises(ListenError, match="Address already in use; choose another with --listen")
    with socket.create_server((LOCAL[family], port), family=family), refused:
        await Server(small_app(), address(text.format(port))).start()
    async with serving(text.format(port)):
        pass
