"""An empty sysfs for every test of AMD GPUs, and files that do not return."""

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.hardware.amd.tree import Tree
from tests.core.hardware.hanging import HANG_SECONDS
from tests.core.hardware.making import Clock
from tests.waiting import wait_until_async


class Stuck:
    """Files whose readers wait until they are released; only a waiting reader moves the clock of limits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[Path, threading.Event] = {}
        self._earlier = set(threading.enumerate())

    def hang(self, path: Path) -> Path:
        """Let readers of a file wait, as a driver does that resets its GPU; return its path."""
        self._files[path] = threading.Event()
        return path

    def release(self, path: Path) -> None:
        """Let the reader of a file go on."""
        self._files.pop(path).set()

    def wait(self, path: Path) -> None:
        """Wait if the file hangs; called by its reader."""
        if released := self._files.get(path):
            self._clock.now += HANG_SECONDS
            released.wait()

    def threads(self) -> list[threading.Thread]:
        """Return the threads that this test has started to read cards."""
        return [
            thread for thread in threading.enumerate() if thread.name == "amd" and thread not in self._earlier
        ]

    async def settle(self) -> None:
        """Wait until the abandoned threads have ended."""
        await wait_until_async(lambda: len(self.threads()) <= 1)

    def end(self) -> None:
        """Release all files."""
        for path in list(self._files):
            self.release(path)


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[Tree]:
    """Return an empty sysfs."""
    tree = Tree(tmp_path)
    yield tree
    await tree.close()


@pytest.fixture
def two(tree: Tree) -> Tree:
    """Return a node with two cards."""
    tree.card()
    tree.second()
    return tree


@pytest.fixture
def stuck(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    """Return what lets files hang."""
    stuck, opened = Stuck(clock), Path.open

    def hanging_open(path: Path, *arguments: Any, **named: Any) -> Any:
        stuck.wait(path)
        return opened(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", hanging_open)
    yield stuck
    stuck.end()
