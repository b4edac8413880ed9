"""Clients that hold a plain socket: what they send is what is sent, and they end as they like."""

import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

PATIENCE = 10.0
# So long who leaves has waited, in seconds.
LEAVING = 0.02
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) ")
RESET = struct.pack("ii", 1, 0)


class Told(NamedTuple):
    """All that came for what was sent, and whether the connection is open still."""

    said: bytes
    is_open: bool

    @property
    def statuses(self) -> list[int]:
        """The statuses of all answers, in their order; interim ones are left out."""
        found = map(int, _STATUS.findall(self.said))
        return [status for status in found if status >= 200]


def connect(port: int, peer: str = "127.0.0.1", *, small: bool = False) -> socket.socket:
    """Connect from an address of this machine, maybe with as small a window as there is."""
    client = socket.socket()
    client.settimeout(PATIENCE)
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
    """Connect many clients that wait for nothing, from so many addresses."""
    clients = [connect(port, f"127.0.0.{each % peers + 1}", small=small) for each in range(number)]
    for client in clients:
        client.setblocking(False)
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


def push(clients: list[socket.socket], sent: bytes) -> int:
    """Have each of them send what its socket takes of that; return the bytes of all."""
    total = 0
    for client in clients:
        with suppress(OSError):
            total += client.send(sent)
    return total


def visit(clients: list[socket.socket], asked: Iterator[bytes]) -> None:
    """Have each of them ask for something of its own, leave soon without an answer, and come back."""
    for client in clients:
        with suppress(OSError):
            client.send(next(asked))
    time.sleep(LEAVING)
    for place, client in enumerate(clients):
        with suppress(OSError):
            (peer, _), (_, port) = client.getsockname(), client.getpeername()
            client.close()
            clients[place] = connect(port, peer)
            clients[place].setblocking(False)


def pull(clients: list[socket.socket], most: int) -> None:
    """Have each of them take up to so many bytes of what has come."""
    for client in clients:
        with suppress(OSError):
            client.recv(most)


def tell(port: int, sent: bytes, quiet: float = 0.1) -> Told:
    """Send this, and read until the end, or until nothing comes for a while after something did."""
    client = connect(port)
    said = b""
    try:
        client.sendall(sent)
        while part := client.recv(65536):
            said += part
            client.settimeout(quiet)
    except TimeoutError:
        return Told(said, is_open=True)
    except ConnectionError:
        pass
    finally:
        client.close()
    return Told(said, is_open=False)
