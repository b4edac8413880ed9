"""A kubelet in software on a socket in a temporary directory, and servers worse than it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import grpc.aio
import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario.pods import Container, Pod
from podresources import channel
from tests.core.podresources.support import ByteServer, Clock, RawServer


class Listener(asyncio.Protocol):
    """Greets its one client and keeps what that sends."""

    def __init__(self, greeting: bytes) -> None:
        self.greeting = greeting
        self.heard = bytearray()
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self.greeting)

    def data_received(self, data: bytes) -> None:
        """Keep the bytes."""
        self.heard.extend(data)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Note the end; grpc may have come more than once."""
        if not self.closed.done():
            self.closed.set_result(None)


@pytest.fixture(autouse=True)
def brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call that was rejected for its rate be tried again soon."""
    monkeypatch.setattr(channel, "_PAUSES", (0.01, 0.03))


@pytest.fixture
def clock() -> Clock:
    """Return the clock of the clients."""
    return Clock()


@pytest.fixture
def pod() -> Pod:
    """Return a pod whose container holds two of the four slices of a GPU."""
    devices = {"nvidia.com/gpu": ("GPU-1::1", "GPU-1::0")}
    container = Container(name="main", devices=devices, container_id="a" * 64)
    return Pod(namespace="ml", name="train", uid="uid-1", containers=(container,))


@pytest.fixture
async def kubelet(tmp_path: Path, pod: Pod) -> AsyncIterator[FakeKubelet]:
    """Run a kubelet with that pod and those slices, on two NUMA nodes, serving the Pods API as well."""
    kubelet = FakeKubelet(tmp_path, pods_api=True)
    kubelet.pods, kubelet.held_nodes = [pod], (0, 1)
    kubelet.offered = [("nvidia.com/gpu", f"GPU-1::{replica}") for replica in range(4)]
    await kubelet.start()
    yield kubelet
    await kubelet.stop()


@pytest.fixture
async def serve_raw() -> AsyncIterator[RawServer]:
    """Return a function that serves fixed bytes as the answer of one gRPC method."""
    async with AsyncExitStack() as servers:

        async def serve(path: Path, method: str, answer: bytes) -> None:
            async def handle(_request: bytes, _context: object) -> bytes:
                return answer

            server = grpc.aio.server()
            service, name = method.strip("/").split("/")
            handler = grpc.method_handlers_generic_handler(
                service, {name: grpc.unary_unary_rpc_method_handler(handle)}
            )
            server.add_generic_rpc_handlers((handler,))
            server.add_insecure_port(f"unix:{path}")
            await server.start()
            servers.push_async_callback(server.stop, None)

        yield serve


@pytest.fixture
async def serve_bytes() -> AsyncIterator[ByteServer]:
    """Return a function that serves a socket which greets with fixed bytes, and returns what it receives."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as servers:

        async def serve(path: Path, greeting: bytes) -> bytearray:
            listener = Listener(greeting)
            servers.push_async_callback(lambda: listener.closed)
            await servers.enter_async_context(await loop.create_unix_server(lambda: listener, path))
            return listener.heard

        yield serve
