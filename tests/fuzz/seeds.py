"""Inputs that are valid, from which all others are made: what the fake node's writers write."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

from exporter.demo.node import FakeNode
from exporter.demo.scenario.catalog import load_file
from tests.fuzz.nodes import SCENARIOS

T = TypeVar("T")
_MADE: list["Scratch"] = []


class Scratch:
    """A folder in memory; one or a few of its files are overwritten for each input.

    It is made when it is used first, so that a process that is forked before has one of its own.
    """

    @cached_property
    def path(self) -> Path:
        """The folder."""
        _MADE.append(self)
        return Path(self._folder.name)

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory[str]:
        memory = Path("/dev/shm")
        return tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if memory.is_dir() else None)

    def write(self, name: str, content: bytes) -> Path:
        """Write a file below the folder."""
        path = self.path / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
        path.write_bytes(content)
        return path


def remove_all() -> None:
    """Remove all folders, for a program that leaves without an end."""
    for each in _MADE:
        each._folder.cleanup()


def walk_node(scenario: str, look: Callable[[FakeNode], T]) -> T:
    """Start a fake node that stands still, and look at it."""

    async def start() -> T:
        async with FakeNode(load_file(SCENARIOS / f"{scenario}.json"), clock=lambda: 0.0) as node:
            return look(node)

    return asyncio.run(start())


@cache
def files_of(scenario: str, pattern: str, most: int = 4, longest: int = 1 << 14) -> tuple[bytes, ...]:
    """Return the contents of short files of a fake node that match a pattern below its root."""

    def look(node: FakeNode) -> tuple[bytes, ...]:
        root = node.paths.sys_root.parent
        found = [path for path in sorted(root.glob(pattern)) if path.is_file()]
        contents = dict.fromkeys(path.read_bytes() for path in found[:64])
        return tuple(each for each in contents if len(each) <= longest)[:most]

    return walk_node(scenario, look)


def encoded(*texts: str) -> Callable[[], Sequence[bytes]]:
    """Make seeds of texts."""
    return lambda: [text.encode() for text in texts]


MARK = b"\x1e"


def parts_of(content: bytes, count: int) -> list[bytes]:
    """Cut an input into so many parts at its marks; what is missing is empty, so that nothing old stays."""
    parts = content.split(MARK, count - 1)
    return parts + [b""] * (count - len(parts))
