"""Followers of an API server, and the labels that they reported."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

from exporter.kubernetes.access import Configure, library
from exporter.kubernetes.cluster import object_of, pods_of, read_node, read_pod
from exporter.kubernetes.follower import Client, Follower, Pace
from tests.core.kubernetes.api import NODE
from tests.waiting import wait_until_async

QUICK = Pace(first_pause=0.02)


class Reported:
    """The labels that a follower reported, in order; None when they became unknown."""

    def __init__(self) -> None:
        self.labels: list[dict[str, str] | None] = []

    def __call__(self, nodes) -> None:
        """Take a report."""
        labels = None if nodes is None else [dict(node.labels) for node in nodes.values()]
        self.labels.append(None if labels is None else dict(*labels))

    async def until(self, condition: Callable[[list], bool]) -> None:
        """Wait until a condition of the labels is true."""
        await wait_until_async(lambda: condition(self.labels))


@asynccontextmanager
async def running(follower: Follower, configure: Configure) -> AsyncIterator[Follower]:
    """Follow while the body runs."""
    task = asyncio.create_task(follower.run(Client(library(), configure)))
    try:
        yield follower
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def following(configure: Configure, pace: Pace = QUICK) -> AsyncIterator[Reported]:
    """Follow the node while the body runs."""
    reported = Reported()
    async with running(Follower(object_of(NODE), read_node, reported, pace), configure):
        yield reported


@asynccontextmanager
async def following_pods(configure: Configure, pace: Pace = QUICK) -> AsyncIterator[Follower]:
    """Follow the pods of the node while the body runs, which begins after an answer or a failure."""
    async with running(Follower(pods_of(NODE), read_pod, pace=pace), configure) as follower:
        await wait_until_async(lambda: follower.answered.is_set() or bool(follower.failure))
        yield follower


def names(follower: Follower) -> set[str]:
    """Return the names of the known pods."""
    return {pod.name for pod in (follower.objects or {}).values()}


def messages(records: Iterable[Any]) -> list[str]:
    """Return the lines of a log, each with its level."""
    return [f"{record.levelname} {record.getMessage()}" for record in records]


@contextmanager
def counted_failures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield a list of all failures of followers, logged or not."""
    failures: list[str] = []
    failed = Follower._failed

    def note(follower: Follower, failure: str) -> None:
        failures.append(failure)
        failed(follower, failure)

    with monkeypatch.context() as patched:
        patched.setattr(Follower, "_failed", note)
        yield failures
