"""Attacks with many connections, which go on while other clients are served."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from tests.page.abuse.clients import pull, push, visit

Clients = list[socket.socket]
GET = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n"
METRICS, HEALTHY, STREAM = GET % b"/metrics", GET % b"/-/healthy", GET % b"/live/"
HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "
BROWSER = b"GET %s HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n"
# As many headers as there may be, on an answer without end.
MANY = STREAM[:-2] + b"".join(b"X-%03d: some words of a cookie\r\n" % number for number in range(1000))
BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


def _nothing(_clients: Clients) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """How each client of a crowd begins, and what all repeat.

    ``small``: with small windows; ``busy``: answering takes seconds.
    """

    name: str
    begin: Callable[[Clients], object]
    again: Callable[[Clients], object] = _nothing
    small: bool = False
    busy: bool = False


def _sends(what: bytes) -> Callable[[Clients], object]:
    return lambda clients: push(clients, what)


def _pages(path: bytes) -> Callable[[Clients], object]:
    """Request pages that no client has requested before."""
    requests: Iterator[bytes] = (BROWSER % (path % number) for number in count())
    return lambda clients: visit(clients, requests)


_LEFT = _pages(b"/?q=x%d")

ATTACKS = (
    Attack(name="idle", begin=_nothing),
    Attack(name="heads byte by byte", begin=_sends(HEAD), again=_sends(b"x")),
    Attack(name="large heads that never end", begin=_sends(HEAD + b"x" * 32_000)),
    Attack(name="heads beyond the limit", begin=_sends(HEAD + b"x" * 40_000), again=_sends(b"x" * 40_000)),
    Attack(name="streams with many headers", begin=_sends(MANY + b"\r\n")),
    Attack(name="bodies that never come", begin=_sends(BODY)),
    Attack(name="bodies byte by byte", begin=_sends(BODY), again=_sends(b"x")),
    Attack(name="pages never read", begin=_sends(METRICS * 20), small=True),
    Attack(
        name="pages read byte by byte",
        begin=_sends(METRICS),
        again=lambda clients: pull(clients, 1),
        small=True,
    ),
    Attack(
        name="requests sent on and on, answers never read",
        begin=_sends(HEALTHY * 500),
        again=_sends(HEALTHY * 500),
        small=True,
        busy=True,
    ),
    Attack(name="streams never read", begin=_sends(STREAM), again=_sends(HEALTHY), small=True),
    Attack(name="pages of their own, left at once", begin=_LEFT, again=_LEFT, busy=True),
)
