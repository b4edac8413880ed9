"""The moments of a poll: each call into the driver, each call of the kubelet, each file that is opened.

What is to happen at one of them happens inside that call, before it is answered: the thread that asks waits
until the node has changed.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal

from exporter.demo.node import FakeNode
from tests.waiting import LIMIT_SECONDS

Kind = Literal["nvml", "kubelet", "files"]
KINDS: Final[tuple[Kind, ...]] = ("nvml", "kubelet", "files")
Change = Callable[[], Awaitable[None]]
_OPENING: Final = frozenset({"open", "os.scandir", "os.listdir"})


class Moments:
    """Counts the moments of one kind; at the ``at``-th (from 1 on, 0: never) the node changes."""

    def __init__(self, change: Change, at: int = 0) -> None:
        self.seen = 0
        self._change = change
        self._at = at
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()

    def pass_in_thread(self) -> None:
        """Note a moment in a thread that may wait for the loop."""
        if self._is_due():
            asyncio.run_coroutine_threadsafe(_run(self._change), self._loop).result(LIMIT_SECONDS)

    async def pass_in_loop(self) -> None:
        """Note a moment on the loop."""
        if self._is_due():
            await self._change()

    def _is_due(self) -> bool:
        with self._lock:
            self.seen += 1
            return self.seen == self._at


async def _run(change: Change) -> None:
    await change()


def hold_calls(node: FakeNode, still: threading.Lock) -> None:
    """Hold ``still`` during each driver call, except the wait for events, which is called all the time."""
    real = node.nvml._call

    def call(name: str, function: Any, arguments: tuple[Any, ...]) -> int:
        with contextlib.nullcontext() if function.scope == "wait" else still:
            return real(name, function, arguments)

    node.nvml._call = call


@contextlib.contextmanager
def passing(node: FakeNode, kind: Kind, moments: Moments) -> Iterator[None]:
    """Let the moments of a kind on this node pass through ``moments``."""
    with {"nvml": _driver, "kubelet": _kubelet, "files": _files}[kind](node, moments):
        yield


@contextlib.contextmanager
def _driver(node: FakeNode, moments: Moments) -> Iterator[None]:
    real = node.nvml._call

    def call(name: str, function: Any, arguments: tuple[Any, ...]) -> int:
        # The wait for events never rests, and is no part of the poll.
        if function.scope != "wait":
            moments.pass_in_thread()
        return real(name, function, arguments)

    node.nvml._call = call
    try:
        yield
    finally:
        node.nvml._call = real


@contextlib.contextmanager
def _kubelet(node: FakeNode, moments: Moments) -> Iterator[None]:
    real = node.kubelet._misbehave

    async def misbehave(method: str, context: Any) -> None:
        await moments.pass_in_loop()
        await real(method, context)

    node.kubelet._misbehave = misbehave
    try:
        yield
    finally:
        del node.kubelet._misbehave


class _Openings:
    """Files that this process opens below a folder, from an audit hook.

    What listens there cannot be taken away again: one for all is switched on and off. ``path`` is what is
    being opened.
    """

    def __init__(self) -> None:
        self._listens = False
        self._call: Callable[[], None] | None = None
        self._root = ""
        self.path = Path()

    @contextlib.contextmanager
    def below(self, root: Path, call: Callable[[], None]) -> Iterator[None]:
        """Run ``call`` in the thread that opens something below ``root``, unless that is the loop's."""
        if not self._listens:
            sys.addaudithook(self._hear)
            self._listens = True
        self._root, self._call = str(root), call
        try:
            yield
        finally:
            self._call = None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._call is None or event not in _OPENING:
            return
        path = arguments[0]
        is_ours = isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self._root)
        if is_ours and threading.current_thread() is not threading.main_thread():
            self.path = Path(os.fspath(path))
            self._call()


OPENINGS: Final = _Openings()


@contextlib.contextmanager
def _files(node: FakeNode, moments: Moments) -> Iterator[None]:
    with OPENINGS.below(node._root, moments.pass_in_thread):
        yield
