"""The time limits of a poller under test: they end when the test says so, or never.

A busy machine must not cut off what is healthy, so every limit of the product is minutes. What hangs is seen
to hang by an event: a thread that has entered a call which does not return.
"""

import asyncio
import contextlib
import math
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest import mock

from exporter.concurrency import wait_for
from exporter.demo.node import FakeNode
from exporter.demo.scenario import NvmlHang
from exporter.nvml import event_wait, sweep
from exporter.poll.budget import Budget
from exporter.poll.collector import Collector
from exporter.poll.poller import Poller
from podresources import client
from tests.waiting import LIMIT_SECONDS, wait_until_async

PATIENT = Budget(
    devices=LIMIT_SECONDS,
    dependents=2 * LIMIT_SECONDS,
    join=3 * LIMIT_SECONDS,
    call_timeout=LIMIT_SECONDS,
    request_timeout=2 * LIMIT_SECONDS,
    gpu=LIMIT_SECONDS,
    card=LIMIT_SECONDS,
)
"""The budget of polls in which nothing healthy is late."""
SHORT_SECONDS = 0.1
"""The limit of what hangs for certain, so that any limit is right."""
CHECK_SECONDS = 0.01
SLICE_MILLISECONDS = 10


@contextlib.contextmanager
def patient_constants() -> Iterator[None]:
    """Make the limits long that are constants of modules, and the waits for events short."""
    with (
        mock.patch.object(event_wait, "SLICE_MILLISECONDS", SLICE_MILLISECONDS),
        mock.patch.object(event_wait, "END_SECONDS", LIMIT_SECONDS),
        mock.patch.object(event_wait, "HUNG_SECONDS", math.inf),
        mock.patch.object(sweep, "REOPEN_AFTER_SECONDS", math.inf),
        mock.patch.object(client, "SHORT_TIMEOUT", LIMIT_SECONDS),
    ):
        yield


@contextlib.contextmanager
def short(collector: Collector[Any]) -> Iterator[None]:
    """Have the poll wait only shortly for one collector, which hangs."""
    real = collector.collect

    async def collect(_within: float) -> None:
        await real(SHORT_SECONDS)

    with mock.patch.object(collector, "collect", collect):
        yield


@contextlib.contextmanager
def short_requests(*clients: Any) -> Iterator[None]:
    """Have the clients of sockets that may hang wait shortly for an answer."""
    with contextlib.ExitStack() as stack:
        for each in clients:
            stack.enter_context(mock.patch.object(each, "_timeout", SHORT_SECONDS))
        yield


class _Hang(threading.Event):
    """A hang of the fake driver; it ends when it is set, whatever timeout is given."""

    def __init__(self, limits: "CallLimits") -> None:
        super().__init__()
        self._limits = limits

    def wait(self, _timeout: float | None = None) -> bool:
        with self._limits.entered():
            return super().wait()


class CallLimits:
    """Decides when a call into the driver has taken too long: once it hangs and ``expire`` was called.

    ``begun`` is set when a thread of the sweeps hangs. ``hung_threads`` are all that hang, by ident.
    """

    def __init__(self, node: FakeNode, poller: Poller) -> None:
        self.begun = asyncio.Event()
        self._node = node
        self._poller = poller
        self._source = poller._sources.nvml
        self._loop = asyncio.get_running_loop()
        self.hung_threads: set[int | None] = set()
        self._expired = False
        # Set if a call hangs that nothing can go on without: the poll goes on without its source.
        self._late = asyncio.Event()
        self._returns: _Hang | None = None
        self._source._worker._call_timeout = CHECK_SECONDS
        self._source._worker._abandon_if_hung = self._abandon
        collector = poller._devices._nvml
        self._collect = collector.collect
        collector.collect = self._collect_until_late

    def restart(self) -> None:
        """Begin a poll: no limit has expired."""
        self.begun.clear()
        self._late.clear()
        self._expired = False

    def expire(self) -> None:
        """Let the limit of the call that hangs be over, or the call return that returns late."""
        if self._returns is not None:
            self._returns.set()
        self._expired = True

    @contextlib.asynccontextmanager
    async def hanging(self, fault: NvmlHang, *, returns: bool) -> AsyncIterator[None]:
        """Have a fault's calls hang by these limits inside the block; ``returns``: only until ``expire``."""
        hang = self._node.nvml._hangs[fault] = _Hang(self)
        self._returns = hang if returns else None
        try:
            yield
        finally:
            self._returns = None

    async def settled(self) -> None:
        """Wait until the sweep has ended that hung, and nothing is left out any more."""
        task = self._poller._devices._nvml._task
        if task is not None:
            await asyncio.wait({task})
        await wait_until_async(
            lambda: not self._source._sweeper.calls.records.hanging, "hanging calls have returned"
        )

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Note that this thread hangs."""
        thread = threading.current_thread()
        self.hung_threads.add(thread.ident)
        if thread.name == "nvml":
            self._loop.call_soon_threadsafe(self.begun.set)
        try:
            yield
        finally:
            self.hung_threads.discard(thread.ident)

    def _abandon(self, _call_timeout: float) -> bool:
        thread = self._source._worker._worker._thread
        if not self._expired or thread is None or thread.ident not in self.hung_threads or self._returns:
            return False
        if self._source._sweeper.abandon_if_hung(0.0):
            return True
        self._late.set()
        return False

    async def _collect_until_late(self, within: float) -> None:
        reading = asyncio.ensure_future(self._collect(within))
        await wait_for(self._late, within, reading)
        if not reading.done():
            reading.cancel()
            await asyncio.wait({reading})
            await self._collect(0.0)
        else:
            reading.result()
