"""Name resolution in a worker thread: a lookup that hangs in the loop's own pool would block the shutdown."""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from exporter.concurrency import Worker


class WorkerResolver(AbstractResolver):
    """Calls the system's resolver in ``worker``."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host; raises OSError for an unknown one."""
        addresses = await self._worker.run(
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
            for kind, _, protocol, _, address in addresses
        ]

    async def close(self) -> None:
        """Do nothing: the worker belongs to the caller."""
