"""Looking up names in a thread that may hang: the loop's own pool would keep the program from ending."""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from exporter.concurrency import Worker


class WorkerResolver(AbstractResolver):
    """Asks the system's resolver in ``worker``."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host; raises OSError for one that is not known."""
        found = await self._worker.run(
            lambda: socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Leave the worker to who made it."""
