"""A connection to the kubelet is kept while it works, and never over a failure or a new socket."""

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from podresources.channel import KubeletError
from podresources.client import PodResourcesApi


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the addresses of the channels that are opened."""
    addresses: list[str] = []
    real = grpc.aio.insecure_channel

    def insecure_channel(address: str, *arguments: Any) -> grpc.aio.Channel:
        addresses.append(address)
        return real(address, *arguments)

    monkeypatch.setattr(grpc.aio, "insecure_channel", insecure_channel)
    return addresses


async def test_reads_share_a_connection(kubelet: FakeKubelet, opened: list[str]) -> None:
    client = PodResourcesApi(kubelet.socket)
    reads = [await client.read() for _ in range(3)]
    assert reads[0].allocated == reads[2].allocated
    assert len(opened) == 1
    await client.close()


async def test_a_restart_is_read_at_once(kubelet: FakeKubelet, opened: list[str]) -> None:
    client = PodResourcesApi(kubelet.socket)
    before = await client.read()
    await kubelet.stop()
    kubelet.pods = ()
    await kubelet.start()
    after = await client.read()
    assert (before.allocated != (), after.allocated) == (True, ())
    assert len(opened) == 2
    await client.close()


async def test_a_server_that_closes_its_connections_is_read_again(
    kubelet: FakeKubelet, opened: list[str]
) -> None:
    client = PodResourcesApi(kubelet.socket)
    await client.read()
    await kubelet.stop()
    with pytest.raises(KubeletError):
        await client.read()
    await kubelet.start()
    assert (await client.read()).allocated
    assert len(opened) <= 3
    await client.close()


@pytest.mark.parametrize("method", ["List", "GetAllocatableResources"])
async def test_a_call_that_fails_ends_the_connection(
    kubelet: FakeKubelet, opened: list[str], method: str
) -> None:
    client = PodResourcesApi(kubelet.socket)
    kubelet.errors = {method: (grpc.StatusCode.INTERNAL, "failed")}
    with contextlib.suppress(KubeletError):
        await client.read()
    kubelet.errors = {}
    await client.read()
    assert len(opened) == 2
    await client.close()
