"""Limits of connections, and the client that each counts for."""

import ipaddress
import resource
from dataclasses import dataclass

# With TLS and a client that does not read, each takes half a megabyte, most of it asyncio's TLS buffer.
MAX_CONNECTIONS = 300
# File descriptors for the rest of the program: drivers, kubelet, /proc.
RESERVED_FILES = 256
_MIN_CONNECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a server's connections; times in seconds."""

    connections: int = MAX_CONNECTIONS
    # The part of all connections that one client address may have.
    share: float = 0.75
    handshake: float = 10.0
    # For the head of a request to arrive.
    head: float = 10.0
    # Without a request. Longer than a scrape interval, so that Prometheus finds its connection open.
    idle: float = 180.0
    # For a client to read the data it was sent.
    behind: float = 30.0


def max_connections(limits_of_process: tuple[int, int] | None = None) -> int:
    """Return how many connections this process has file descriptors for, at most MAX_CONNECTIONS."""
    soft, _ = limits_of_process or resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(_MIN_CONNECTIONS, min(MAX_CONNECTIONS, soft - RESERVED_FILES))


def client_of(peer: object) -> str:
    """Return the address of a socket's peer; for IPv6 its /64, which usually belongs to one client."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)
