"""Ports for programs that get their listen address on the command line."""

import contextlib
import random
import socket

# Below those that the kernel gives to outgoing connections: of these, any may be taken in the next moment.
_FIRST, _END = 20_000, 32_000


def free_port() -> int:
    """Return a port of this machine on which no program listens."""
    while True:
        port = random.randrange(_FIRST, _END)  # noqa: S311 - no secret
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
