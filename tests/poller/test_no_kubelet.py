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
from tests.faults.kubelet_servers import make_dead
from tests.poller.bench import failing, holders, polled, running, until

BACK = 20
# No time limit is checked here: what comes does so in less than 2 s, and the next poll is a minute away.
SOON = 20


@pytest.fixture(autouse=True)
def settle_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time after a change end within a test."""
    monkeypatch.setattr(kubelet_restart, "SETTLE_SECONDS", 0.3)


@pytest.fixture
def unheard() -> Iterator[socket.socket]:
    """Give a socket that does not listen yet."""
    with socket.socket(socket.AF_UNIX) as server:
        server.setblocking(False)
        yield server


@asynccontextmanager
async def without_kubelet() -> AsyncIterator[tuple[FakeNode, Poller, Path]]:
    """Start a node whose kubelet comes at BACK, a poller with a minute's interval, and the socket's path."""
    down = KubeletFailure(kind="kubelet_down", for_=BACK)
    scenario = replace(catalog.load("t4-timeslicing"), faults=(down,))
    async with polled(scenario, poll_interval=60.0, stale_after=180.0) as (node, poller):
        path = node.paths.pod_resources_socket
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        yield node, poller, path


async def visited(server: socket.socket) -> None:
    """Wait for a connection."""
    client, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(server), SOON)
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    ["no directory", "no socket", "a file", "no listener"],
)
async def test_a_kubelet_that_comes_is_noticed_between_polls(before: str, unheard: socket.socket):
    """Whatever was at its place."""
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
            await asyncio.sleep(2)
            await node.step(BACK)
            await until(lambda: bool(holders(poller.snapshot)))
            assert failing(poller.snapshot) == set()


def remove(path: Path) -> None:
    """Remove the socket."""
    path.unlink()


def replace_by_dead(path: Path) -> None:
    """Put a socket in its place that no server listens on."""
    path.unlink()
    make_dead(path)


def move_directory(path: Path) -> None:
    """Take the directory away with the socket in it; the next kubelet makes another one."""
    path.parent.rename(path.parent.with_name("former"))


@pytest.mark.slow
@pytest.mark.parametrize("change", [remove, replace_by_dead, move_directory])
async def test_a_kubelet_that_ends_is_noticed_when_it_starts_again(change: Callable[[Path], None]):
    """Whatever becomes of its socket meanwhile, there is one early poll, and it has the holders of before."""
    async with without_kubelet() as (node, poller, path):
        await node.step(BACK)
        await poller.first()
        before = holders(poller.snapshot)
        await node.kubelet.stop()
        change(path)
        await poller.poll()
        assert failing(poller.snapshot) >= {"podresources"}
        async with running(poller):
            await asyncio.sleep(2)
            sequence = poller.snapshot.sequence
            await node.kubelet.start()
            await until(lambda: not failing(poller.snapshot))
            assert holders(poller.snapshot) == before
            assert poller.snapshot.sequence == sequence + 1


@pytest.mark.slow
async def test_a_kubelet_that_refuses_calls_is_asked_between_polls():
    """Its socket stays the same when it recovers: a look at the file would not notice it."""
    async with without_kubelet() as (node, poller, _):
        await node.step(BACK)
        await poller.first()
        node.kubelet.errors = {"List": (grpc.StatusCode.UNAVAILABLE, "busy")}
        await poller.poll()
        assert failing(poller.snapshot) == {"podresources"}
        async with running(poller):
            await asyncio.sleep(2)
            node.kubelet.errors = {}
            await until(lambda: not failing(poller.snapshot))


@pytest.mark.slow
async def test_a_kubelet_that_restarts_again_and_again_is_noticed_each_time():
    """What was seen of its socket in one outage does not count in the next."""
    async with without_kubelet() as (node, poller, _):
        await poller.first()
        async with running(poller):
            for moment in (BACK, BACK + 1, BACK + 2):
                await node.step(moment)
                await until(lambda: bool(holders(poller.snapshot)))
                await node.kubelet.stop()
                poller._sources.wake.set()
                await until(lambda: failing(poller.snapshot) >= {"podresources"})
                await asyncio.sleep(1)
                await node.kubelet.start()
                await until(lambda: "podresources" not in failing(poller.snapshot))


@pytest.mark.slow
async def test_nobody_connects_while_nothing_changes(unheard: socket.socket):
    """Neither the poller nor grpc; a change of the file, as of its permissions, is a reason to."""
    async with without_kubelet() as (_, poller, path):
        unheard.bind(os.fspath(path))
        await poller.first()
        async with running(poller):
            await asyncio.sleep(2)
            errors = poller._allocations.health.errors
            unheard.listen()
            await asyncio.sleep(3)
            assert poller._allocations.health.errors == errors
            with pytest.raises(BlockingIOError):
                unheard.accept()
            path.chmod(0o700)
            await visited(unheard)


@pytest.mark.slow
async def test_an_absent_kubelet_is_not_asked_between_polls():
    """Not even once: without a socket there is nothing to ask."""
    async with without_kubelet() as (_, poller, _path):
        await poller.first()
        async with running(poller):
            await asyncio.sleep(2)
        assert poller._allocations.health.errors == {"absent": 1}


@pytest.mark.slow
async def test_a_socket_that_listens_later(unheard: socket.socket, monkeypatch: pytest.MonkeyPatch):
    """After it has appeared it is tried for a while, without another change of the file."""
    monkeypatch.setattr(kubelet_restart, "SETTLE_SECONDS", 30.0)
    async with without_kubelet() as (_, poller, path):
        await poller.first()
        async with running(poller):
            await asyncio.sleep(0.5)
            unheard.bind(os.fspath(path))
            await until(lambda: "unavailable" in poller._allocations.health.errors)
            unheard.listen()
            await visited(unheard)


@pytest.mark.slow
async def test_without_a_thread_for_the_file_the_kubelet_is_asked_instead(monkeypatch: pytest.MonkeyPatch):
    """At a pod's limit of processes a kubelet that comes is noticed all the same."""

    async def refused(_self: SocketFileReader, _seen: object) -> None:
        raise NoThreadError

    monkeypatch.setattr(SocketFileReader, "changed", refused)
    async with without_kubelet() as (node, poller, _):
        await poller.first()
        async with running(poller):
            await asyncio.sleep(1.2)
            assert 2 <= poller._allocations.health.errors["absent"] <= 4
            await node.step(BACK)
            await until(lambda: bool(holders(poller.snapshot)))


async def test_versions_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each creation, replacement and change of permissions is one; who gives up leaves the thread free."""
    monkeypatch.setattr(file_readers, "LOOK_SECONDS", 0.01)
    path = tmp_path / "kubelet.sock"
    reader = SocketFileReader(path)

    async def next_after(seen):
        return await asyncio.wait_for(reader.changed(seen), SOON)

    assert await next_after(None) == ABSENT
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.changed(ABSENT), 0.1)
    path.touch()
    created = await next_after(ABSENT)
    # The kernel dates changes by its tick.
    await asyncio.sleep(0.05)
    path.chmod(0o600)
    permitted = await next_after(created)
    other = tmp_path / "other"
    other.touch()
    other.replace(path)
    replaced = await next_after(permitted)
    assert len({ABSENT, created, permitted, replaced}) == 4
    path.unlink()
    assert await next_after(replaced) == ABSENT
    reader.close()
