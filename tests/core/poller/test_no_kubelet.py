"""Without a kubelet there are no connections between polls, and a kubelet that starts is noticed."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from exporter.concurrency import NoThreadError
from exporter.demo.node import FakeNode
from exporter.demo.scenario import KubeletFailure, catalog
from exporter.poll import file_readers, kubelet_restart
from exporter.poll.file_readers import ABSENT, SocketFileReader
from exporter.poll.poller import Poller
from tests.core.poller.bench import FAR, failing, holders, polled, running
from tests.together.faults.kubelet_servers import make_dead
from tests.waiting import wait_until_async

BACK = 20


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the poller look at the socket often, and not ask the kubelet for long after a change."""
    monkeypatch.setattr(kubelet_restart, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(kubelet_restart, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(file_readers, "CHECK_SECONDS", 0.01)


@pytest.fixture
def unheard() -> Iterator[socket.socket]:
    """Return a socket that does not listen yet."""
    with socket.socket(socket.AF_UNIX) as server:
        server.setblocking(False)
        yield server


@asynccontextmanager
async def without_kubelet() -> AsyncIterator[tuple[FakeNode, Poller, Path]]:
    """Start a node whose kubelet comes at BACK, a poller whose next poll is far, and return the socket."""
    down = KubeletFailure(kind="kubelet_down", for_=BACK)
    scenario = replace(catalog.load("t4-timeslicing"), faults=(down,))
    async with polled(scenario, **FAR) as (node, poller):
        path = node.paths.pod_resources_socket
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        yield node, poller, path


async def only_watching(poller: Poller) -> None:
    """Wait until only a change of the socket's file makes the poller ask the kubelet."""
    retry, reading = poller._retry, poller._allocations

    def watches() -> bool:
        seen = retry._watch is not None and retry._seen is not None
        return seen and not retry._may_answer() and reading._task is None

    await wait_until_async(watches)


async def visited(server: socket.socket) -> None:
    """Wait for a connection."""
    client, _ = await asyncio.get_running_loop().sock_accept(server)
    client.close()


@pytest.mark.parametrize("before", ["no directory", "no socket", "a file", "no listener"])
async def test_a_kubelet_that_starts_is_noticed_between_polls(before: str, unheard: socket.socket):
    async with without_kubelet() as (node, poller, path):
        if before == "no directory":
            path.parent.rmdir()
        elif before == "a file":
            path.touch()
        elif before == "no listener":
            unheard.bind(os.fspath(path))
        await poller.first()
        assert failing(poller.snapshot) >= {"podresources"}
        async with running(poller):
            await only_watching(poller)
            await node.step(BACK)
            await wait_until_async(lambda: holders(poller.snapshot))
            assert failing(poller.snapshot) == set()


def remove(path: Path) -> None:
    """Remove the socket."""
    path.unlink()


def replace_by_dead(path: Path) -> None:
    """Put a socket in its place that no server listens on."""
    path.unlink()
    make_dead(path)


def move_directory(path: Path) -> None:
    """Move the socket's directory away; the next kubelet makes another one."""
    path.parent.rename(path.parent.with_name("former"))


@pytest.mark.parametrize("change", [remove, replace_by_dead, move_directory])
async def test_a_kubelet_that_starts_again_causes_one_early_poll(change: Callable[[Path], None]):
    async with without_kubelet() as (node, poller, path):
        await node.step(BACK)
        await poller.first()
        before = holders(poller.snapshot)
        await node.kubelet.stop()
        change(path)
        await poller.poll()
        assert failing(poller.snapshot) >= {"podresources"}
        async with running(poller):
            await only_watching(poller)
            sequence = poller.snapshot.sequence
            await node.kubelet.start()
            await wait_until_async(lambda: not failing(poller.snapshot))
            assert holders(poller.snapshot) == before
            assert poller.snapshot.sequence == sequence + 1


async def test_a_kubelet_that_refuses_calls_is_asked_between_polls():
    """Its socket stays the same when it recovers: a look at the file would not notice it."""
    async with without_kubelet() as (node, poller, _):
        await node.step(BACK)
        await poller.first()
        node.kubelet.errors = {"List": (grpc.StatusCode.UNAVAILABLE, "busy")}
        await poller.poll()
        assert failing(poller.snapshot) == {"podresources"}
        async with running(poller):
            await wait_until_async(lambda: poller._allocations.health.errors["unavailable"] > 5)
            node.kubelet.errors = {}
            await wait_until_async(lambda: not failing(poller.snapshot))


async def test_a_kubelet_that_restarts_again_and_again_is_noticed_each_time():
    """The state of its socket in one outage does not count in the next."""
    async with without_kubelet() as (node, poller, _):
        await poller.first()
        async with running(poller):
            for moment in (BACK, BACK + 1, BACK + 2):
                await node.step(moment)
                await wait_until_async(lambda: holders(poller.snapshot))
                await node.kubelet.stop()
                poller._sources.wake.set()
                await wait_until_async(lambda: failing(poller.snapshot) >= {"podresources"})
                await only_watching(poller)
                await node.kubelet.start()
                await wait_until_async(lambda: "podresources" not in failing(poller.snapshot))


async def test_without_a_change_of_the_file_there_is_no_connection(
    unheard: socket.socket, monkeypatch: pytest.MonkeyPatch
):
    looks, version = [], SocketFileReader._version
    monkeypatch.setattr(SocketFileReader, "_version", lambda reader: looks.append(1) or version(reader))
    async with without_kubelet() as (_, poller, path):
        unheard.bind(os.fspath(path))
        await poller.first()
        async with running(poller):
            await only_watching(poller)
            errors = poller._allocations.health.errors
            unheard.listen()
            seen = len(looks)
            await wait_until_async(lambda: len(looks) > seen + 3)
            assert poller._allocations.health.errors == errors
            with pytest.raises(BlockingIOError):
                unheard.accept()
            path.chmod(0o700)
            await visited(unheard)


async def test_a_kubelet_without_a_socket_is_not_asked_between_polls():
    async with without_kubelet() as (_, poller, _path):
        await poller.first()
        async with running(poller):
            await only_watching(poller)
        assert poller._allocations.health.errors == {"absent": 1}


async def test_a_new_socket_is_tried_again_without_another_change(
    unheard: socket.socket, monkeypatch: pytest.MonkeyPatch
):
    """A server may create it before it listens."""
    monkeypatch.setattr(kubelet_restart, "SETTLE_SECONDS", 3600.0)
    async with without_kubelet() as (_, poller, path):
        await poller.first()
        async with running(poller):
            await wait_until_async(lambda: poller._retry._watch is not None)
            unheard.bind(os.fspath(path))
            await wait_until_async(lambda: "unavailable" in poller._allocations.health.errors)
            unheard.listen()
            await visited(unheard)


async def test_without_a_thread_for_the_file_the_kubelet_is_asked_instead(monkeypatch: pytest.MonkeyPatch):
    """As at a pod's limit of processes."""

    async def refused(_self: SocketFileReader, _seen: object) -> None:
        raise NoThreadError

    monkeypatch.setattr(SocketFileReader, "changed", refused)
    async with without_kubelet() as (node, poller, _):
        await poller.first()
        async with running(poller):
            await wait_until_async(lambda: poller._allocations.health.errors["absent"] > 2)
            await node.step(BACK)
            await wait_until_async(lambda: holders(poller.snapshot))


async def test_versions_of_a_file(tmp_path: Path):
    """Each creation, replacement and change of permissions is one; cancelling frees the thread."""
    path = tmp_path / "kubelet.sock"
    reader = SocketFileReader(path)
    assert await reader.changed(None) == ABSENT
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.changed(ABSENT), 0.1)
    path.touch()
    created = await reader.changed(ABSENT)
    # The kernel dates changes by its tick.
    await asyncio.sleep(0.05)
    path.chmod(0o600)
    permitted = await reader.changed(created)
    other = tmp_path / "other"
    other.touch()
    other.replace(path)
    replaced = await reader.changed(permitted)
    assert len({ABSENT, created, permitted, replaced}) == 4
    path.unlink()
    assert await reader.changed(replaced) == ABSENT
    reader.close()
