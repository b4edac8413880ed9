"""Sockets for an address to listen on, of the families that this host has."""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import ExitStack

from exporter.config import ListenAddress

# A host without IPv6, or without IPv4, has neither such sockets nor such addresses.
_NOT_HERE = frozenset({errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL})


async def bind(
    listen: ListenAddress, make: Callable[[int, int, int], socket.socket] = socket.socket
) -> list[socket.socket]:
    """Return a bound socket for each address of the host.

    All addresses of both families are meant by ``::``, as without a host; those of IPv4 by ``0.0.0.0``. What
    this host does not have is left out; if nothing is left, OSError is raised, as for an address in use.
    """
    host, port = None if listen.host == "::" else listen.host, listen.port
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    missing: OSError | None = None
    with ExitStack() as opened:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                listener = opened.enter_context(make(family, kind, protocol))
                _bind(listener, (address[0], port, *address[2:]))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
            else:
                bound.append(listener)
                # The kernel chooses one port for all.
                port = listener.getsockname()[1]
        if not bound and missing is not None:
            raise missing
        opened.pop_all()
    return bound


def _bind(listener: socket.socket, address: tuple[object, ...]) -> None:
    listener.setblocking(False)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        # IPv4 has a socket of its own, so that clients keep their addresses.
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind(address)
