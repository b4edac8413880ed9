"""Clients that hold a plain socket: they send any bytes, and end as they like."""

import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.waiting import LIMIT_SECONDS

# How long a client waits before it leaves, in seconds.
LEAVING = 0.02
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) ")
RESET = struct.pack("ii", 1, 0)


def connect(port: int, peer: str = "127.0.0.1", *, small: bool = False) -> socket.socket:
    """Connect from an address of this machine; ``small``: with as small a window as there is."""
    client = socket.socket()
    client.settimeout(LIMIT_SECONDS)
    if small:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    client.bind((peer, 0))
    with suppress(ConnectionError):
        client.connect(("127.0.0.1", port))
    return client


def reset(client: socket.socket) -> None:
    """End a connection at once, with all that is on its way."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


@contextmanager
def crowd(port: int, number: int, peers: int = 1, *, small: bool = False) -> Iterator[list[socket.socket]]:
    """Connect many clients that do not block, from ``peers`` addresses, none of them that of a scraper."""
    clients = [connect(port, f"127.0.0.{place % peers + 2}", small=small) for place in range(number)]
    for client in clients:
        client.setblocking(False)
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def push(clients: list[socket.socket], sent: bytes) -> int:
    """Have each client send what its socket takes of that; return the bytes of all."""
    total = 0
    for client in clients:
        with suppress(OSError):
            total += client.send(sent)
    return total


def visit(clients: list[socket.socket], requests: Iterator[bytes]) -> None:
    """Have each client send a request of its own, leave soon without an answer, and come back."""
    for client in clients:
        with suppress(OSError):
            client.send(next(requests))
    time.sleep(LEAVING)
    for place, client in enumerate(clients):
        with suppress(OSError):
            (peer, _), (_, port) = client.getsockname(), client.getpeername()
            client.close()
            clients[place] = connect(port, peer)
            clients[place].setblocking(False)


def pull(clients: list[socket.socket], most: int) -> None:
    """Have each client take up to ``most`` bytes of what has come."""
    for client in clients:
        with suppress(OSError):
            client.recv(most)


def answer_to(port: int, sent: bytes, then: bytes = b"") -> bytes:
    """Return all that the server answers until it closes the connection.

    ``then`` is sent after the first part of the answer.
    """
    answer = b""
    with connect(port) as client, suppress(ConnectionError):
        client.sendall(sent)
        while part := client.recv(65536):
            if not answer and then:
                client.sendall(then)
            answer += part
    return answer


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of all answers in their order, without interim ones."""
    return [status for status in map(int, _STATUS.findall(answer)) if status >= 200]
