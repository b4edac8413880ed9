"""Crowds of clients that take connections, time and memory: caps hold, and other clients are answered."""

import gzip
import selectors
import socket

import pytest

from exporter.web.kit.http.connection import MAX_CONNECTIONS
from exporter.web.kit.http.server import RECEIVE_BUFFER, SEND_BUFFER
from tests.page.abuse.attacks import ATTACKS, HEALTHY, Attack
from tests.page.abuse.clients import answer_to, connect, crowd, push
from tests.page.abuse.victim import FILES, Victim, Vitals, victim
from tests.waiting import LIMIT_SECONDS

# The limit of a pod, in MiB, of which the kernel has this much for the sockets of as many as there may be.
MEMORY = 384
KERNELS = MAX_CONNECTIONS * 2 * (SEND_BUFFER + RECEIVE_BUFFER) / 2**20
ROUNDS = 3
SCRAPERS = 200
PIPELINED = 1000


@pytest.fixture(scope="module")
def served():
    """Serve one node to all crowds of this module."""
    with victim() as found:
        yield found


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, marks=[pytest.mark.slow] if attack.busy else [], id=attack.name)
        for attack in ATTACKS
    ],
)
def test_clients_are_answered_beside_a_crowd_of_one_address(served: Victim, attack: Attack):
    """Also new ones. Caps on files and memory hold, nothing stays behind, and there are few log lines."""
    served.scrape()
    before = most = served.vitals()
    lines = len(served.lines)
    with crowd(served.port, MAX_CONNECTIONS, small=attack.small) as clients:
        attack.begin(clients)
        for _ in range(ROUNDS):
            most = Vitals(*map(max, most, served.vitals()))
            attack.again(clients)
            served.scrape()
            most = Vitals(*map(max, most, served.vitals()))
    assert most.files < FILES - 100
    assert most.memory < MEMORY - KERNELS
    served.settle(before)
    assert len(served.lines) - lines <= 3, served.lines[lines:]


def test_a_crowd_of_many_addresses_keeps_new_clients_out_until_it_leaves(served: Victim):
    """A Prometheus that is connected already is still answered."""
    served.scrape()
    with crowd(served.port, MAX_CONNECTIONS, 4) as clients:
        push(clients, HEALTHY)
        assert answer_to(served.port, HEALTHY) == b""
        served.scrape_page()
    served.scrape_in_the_end()


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
