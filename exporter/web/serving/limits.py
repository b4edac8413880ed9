"""What clients may take of a server: connections, time, and bytes."""

import ipaddress
import resource
from dataclasses import dataclass

MOST_CONNECTIONS = 1000
# Files and sockets that the rest of the program may need: of drivers, of the kubelet, of /proc.
FILES_OF_OURS = 256
_LEAST_CONNECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times are in seconds, sizes in bytes.

    ``share`` is how much of all connections one client address may have. ``head`` is how long a request may
    take to arrive, ``idle`` how long a connection stays without one, and ``behind`` how long a client may
    leave untaken what it was sent. ``most_head`` is how much a request may say in all.
    """

    connections: int = MOST_CONNECTIONS
    share: float = 0.75
    handshake: float = 10.0
    head: float = 10.0
    # Longer than the time between two scrapes, so that Prometheus finds its connection open.
    idle: float = 180.0
    behind: float = 30.0
    most_head: int = 32 * 1024

    @property
    def look(self) -> float:
        """How often connections are looked at, in seconds: soon enough for the shortest limit."""
        return min(self.handshake, self.head, self.idle, self.behind) / 4


def affordable(limits_of_process: tuple[int, int] | None = None) -> int:
    """Say how many connections fit into the files that this process may open, at most MOST_CONNECTIONS."""
    soft, _ = limits_of_process or resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(MOST_CONNECTIONS, soft - FILES_OF_OURS))


def client_of(peer: object) -> str:
    """Name a client by the address of its socket: IPv6 by its /64, of which anybody has all addresses."""
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
