"""Crowds of clients that take connections, time and memory: who behaves well is served beside them."""

import gzip
import os
import re
import resource
import selectors
import socket
import time
from collections.abc import Iterator

import pytest

from exporter.web.http.connections import WIDE
from exporter.web.http.handler import max_connections
from exporter.web.http.responses import ROOM
from exporter.web.http.server import RECEIVE_BUFFER, SEND_BUFFER
from tests.abuse.attacks import ATTACKS, HEALTHY
from tests.abuse.clients import connect, crowd
from tests.abuse.victim import FILES, Victim, Vitals, victim

# The limit of a pod, in MiB, of which the kernel has this much for the sockets of as many as there may be.
MEMORY = 384
KERNELS = (max_connections((FILES, FILES)) * 2 * (SEND_BUFFER + RECEIVE_BUFFER) + WIDE * 2 * ROOM) / 2**20
CROWD, LARGE_CROWD = 800, 10_000
# Open files of this process beside those of a crowd.
OURS = 200
ROUNDS = 3
SCRAPERS = 600
# What a busy machine has a poll write: which sources were late.
LATE = re.compile(r" failed: no answer for <?\d+ s; | recovered$")
PIPELINED = 1000


@pytest.fixture(scope="module")
def served():
    """Serve one node to all attackers of this module."""
    with victim() as found:
        yield found


def attacked(served: Victim, attack, number: int, rounds: int = ROUNDS) -> tuple[Vitals, float]:
    """Attack, and scrape meanwhile; give the most that was held, and the slowest answer in seconds."""
    slowest = 0.0
    with crowd(served.port, number, attack.peers, small=attack.small) as clients:
        attack.begin(clients)
        most = served.vitals()
        for _ in range(rounds):
            attack.again(clients)
            slowest = max(slowest, served.scrape())
            most = Vitals(*map(max, most, served.vitals()))
    return most, slowest


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_who_behaves_is_served_beside_a_crowd(served, attack):
    """More connections than there are files: Prometheus, by the crowd's own address, gets whole pages."""
    # With the connection of the scrapes, which the crowd before may have made to go.
    served.scrape()
    before, told = served.vitals(), len(served.lines)
    most, _ = attacked(served, attack, CROWD)
    assert most.files < FILES - 100
    assert most.memory < MEMORY - KERNELS
    about = [line for line in served.lines[told:] if not LATE.search(line)]
    assert len(about) <= 3, about
    served.settle(before)


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Let this process open as many files as a large crowd has connections."""
    wanted = LARGE_CROWD + OURS
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, before[1])))
    except (ValueError, PermissionError):
        reason = f"{wanted} open files are needed, and {before[1]} are allowed (ulimit -Hn)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


# On a busy machine so many clients take minutes; each scrape has its own limit.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("_many_files")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_who_behaves_is_served_beside_ten_thousand_clients(served, attack):
    """Ten times as many connections as there are files: Prometheus gets whole pages in time."""
    served.scrape()
    before = served.vitals()
    most, _ = attacked(served, attack, LARGE_CROWD)
    assert most.files < FILES - 100
    assert most.memory < MEMORY - KERNELS
    served.settle(before)


@pytest.mark.slow
def test_many_scrapers_at_once_get_the_same_page(served):
    """Hundreds that ask at the same moment get whole pages, made once, and memory does not grow with them."""
    served.scrape()
    before = served.vitals()
    ask = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    pages = fetched(served.port, ask, SCRAPERS)
    assert len(pages) == SCRAPERS
    # Beside one poll or two that happened meanwhile.
    assert len(set(pages)) <= 3
    assert all(gzip.decompress(page).endswith(b"\n") for page in set(pages))
    after = served.settle(before)
    assert after.memory - before.memory < SCRAPERS * len(pages[0]) / 2**20 / 4 + 16


def fetched(port: int, ask: bytes, number: int, peers: int = 2) -> list[bytes]:
    """Ask by so many connections at once, and return the bodies of the answers that are whole."""
    waiting = selectors.DefaultSelector()
    with crowd(port, number, peers) as clients:
        said = {client: bytearray() for client in clients}
        for client in clients:
            client.send(ask)
            waiting.register(client, selectors.EVENT_READ)
        end = time.monotonic() + 30
        while waiting.get_map() and time.monotonic() < end:
            for key, _ in waiting.select(1):
                client = key.fileobj
                assert isinstance(client, socket.socket)
                part = _received(client)
                said[client] += part
                if not part:
                    waiting.unregister(client)
    return [body for answer in said.values() if (body := _body(bytes(answer)))]


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 20)
    except ConnectionError:
        return b""


def _body(answer: bytes) -> bytes:
    """Return the body of an answer with 200, nothing where it is not whole."""
    head, _, body = answer.partition(b"\r\n\r\n")
    whole = head.startswith(b"HTTP/1.1 200 ") and b"Content-Length: %d" % len(body) in head
    return body if whole else b""


@pytest.mark.slow
def test_a_thousand_requests_in_one_go(served):
    """Who sends a thousand requests before reading gets a thousand answers, in their order."""
    client = connect(served.port)
    last = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    client.setblocking(False)
    rest = memoryview(HEALTHY * (PIPELINED - 1) + last)
    said = bytearray()
    waiting = selectors.DefaultSelector()
    waiting.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE)
    while True:
        ((_, events),) = waiting.select(10)
        if events & selectors.EVENT_WRITE:
            rest = rest[client.send(rest) :]
            if not rest:
                waiting.modify(client, selectors.EVENT_READ)
        if events & selectors.EVENT_READ:
            part = _received(client)
            if not part:
                break
            said += part
    client.close()
    assert said.count(b"HTTP/1.1 200 OK\r\n") == PIPELINED
    assert said.count(b"\r\n\r\nok\n") == PIPELINED - 1
    assert said.endswith(b"\n")
