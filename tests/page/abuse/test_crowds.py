"""Crowds of clients that take connections, time and memory: caps hold, and other clients are answered."""

import gzip
import resource
import selectors
import socket
from collections.abc import Iterator

import pytest

from exporter.web.kit.http.connections import WIDE
from exporter.web.kit.http.handler import max_connections
from exporter.web.kit.http.responses import ROOM
from exporter.web.kit.http.server import RECEIVE_BUFFER, SEND_BUFFER
from tests.page.abuse.attacks import ATTACKS, HEALTHY, Attack
from tests.page.abuse.clients import connect, crowd
from tests.page.abuse.victim import FILES, Victim, Vitals, victim
from tests.tools import lacks
from tests.waiting import LIMIT_SECONDS

# The limit of a pod, in MiB, of which the kernel has this much for the sockets of as many as there may be.
MEMORY = 384
KERNELS = (max_connections((FILES, FILES)) * 2 * (SEND_BUFFER + RECEIVE_BUFFER) + WIDE * 2 * ROOM) / 2**20
CROWD, LARGE_CROWD = 800, 10_000
# Those that keep the exporter busiest are tried with ten thousand clients only, beside one that does not.
BUSIEST = [attack for attack in ATTACKS if attack.name.startswith(("requests sent on", "pages of their own"))]
LARGE = [ATTACKS[0], *BUSIEST]
# Open files of this process beside those of a crowd.
OURS = 200
ROUNDS = 3
SCRAPERS = 600
PIPELINED = 1000


@pytest.fixture(scope="module")
def served():
    """Serve one node to all crowds of this module."""
    with victim() as found:
        yield found


def attack_and_scrape(served: Victim, attack: Attack, number: int) -> None:
    """Scrape beside a crowd; the caps on files and memory hold, and nothing stays behind."""
    # With the connection of the scrapes, which the crowd before may have closed.
    served.scrape_in_the_end()
    before = most = served.vitals()
    with crowd(served.port, number, attack.peers, small=attack.small) as clients:
        attack.begin(clients)
        for _ in range(ROUNDS):
            most = Vitals(*map(max, most, served.vitals()))
            attack.again(clients)
            served.scrape_in_the_end()
            most = Vitals(*map(max, most, served.vitals()))
    assert most.files < FILES - 100
    assert most.memory < MEMORY - KERNELS
    served.settle(before)


@pytest.mark.parametrize(
    "attack", [attack for attack in ATTACKS if attack not in BUSIEST], ids=lambda attack: attack.name
)
def test_clients_are_answered_beside_a_crowd(served, attack):
    """More connections than there are files, from the scraper's own address; none is worth many log lines."""
    lines = len(served.lines)
    attack_and_scrape(served, attack, CROWD)
    assert len(served.lines) - lines <= 3, served.lines[lines:]


@pytest.fixture
def _many_files() -> Iterator[None]:
    """Let this process open as many files as a large crowd has connections."""
    wanted = LARGE_CROWD + OURS
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, before[1])))
    except (ValueError, PermissionError):
        lacks(f"{wanted} open files are needed, and {before[1]} are allowed (ulimit -Hn)")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.usefixtures("_many_files")
@pytest.mark.parametrize("attack", LARGE, ids=lambda attack: attack.name)
def test_clients_are_answered_in_the_end_beside_ten_thousand(served, attack):
    """Ten times as many connections as there are files."""
    attack_and_scrape(served, attack, LARGE_CROWD)


def test_many_scrapers_at_once_get_the_same_page(served):
    """Hundreds that ask at the same moment get whole pages, made once, and memory does not grow with them."""
    served.scrape()
    before = served.vitals()
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    pages = fetch_by_many(served.port, request, SCRAPERS)
    assert len(pages) == SCRAPERS
    assert len(set(pages)) == 1
    assert gzip.decompress(pages[0]).endswith(b"\n")
    after = served.settle(before)
    assert after.memory - before.memory < SCRAPERS * len(pages[0]) / 2**20 / 4 + 16


def fetch_by_many(port: int, request: bytes, number: int, peers: int = 2) -> list[bytes]:
    """Send a request by many connections at once, and return the bodies of the answers that are whole."""
    waiting = selectors.DefaultSelector()
    with crowd(port, number, peers) as clients:
        answers = {client: bytearray() for client in clients}
        for client in clients:
            client.send(request)
            waiting.register(client, selectors.EVENT_READ)
        while waiting.get_map() and (ready := waiting.select(LIMIT_SECONDS)):
            for key, _ in ready:
                client = key.fileobj
                assert isinstance(client, socket.socket)
                part = _received(client)
                answers[client] += part
                if not part:
                    waiting.unregister(client)
    return [body for answer in answers.values() if (body := _body(bytes(answer)))]


def _received(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 20)
    except ConnectionError:
        return b""


def _body(answer: bytes) -> bytes:
    """Return the body of an answer with 200, nothing if it is not whole."""
    head, _, body = answer.partition(b"\r\n\r\n")
    whole = head.startswith(b"HTTP/1.1 200 ") and b"Content-Length: %d" % len(body) in head
    return body if whole else b""


def test_a_thousand_requests_in_one_go(served):
    """A client that sends a thousand requests before it reads gets a thousand answers, in their order."""
    client = connect(served.port)
    last = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    client.setblocking(False)
    rest = memoryview(HEALTHY * (PIPELINED - 1) + last)
    answers = bytearray()
    waiting = selectors.DefaultSelector()
    waiting.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE)
    while True:
        ((_, events),) = waiting.select(LIMIT_SECONDS)
        if events & selectors.EVENT_WRITE:
            rest = rest[client.send(rest) :]
            if not rest:
                waiting.modify(client, selectors.EVENT_READ)
        if events & selectors.EVENT_READ:
            part = _received(client)
            if not part:
                break
            answers += part
    client.close()
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == PIPELINED
    assert answers.count(b"\r\n\r\nok\n") == PIPELINED - 1
    assert answers.endswith(b"\n")
