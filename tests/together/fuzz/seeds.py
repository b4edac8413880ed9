"""Valid inputs, as the fake node writes them; all others are made of them."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

from exporter.demo.node import FakeNode
from exporter.demo.scenario.catalog import load_file
from tests.together.fuzz.nodes import SCENARIOS

T = TypeVar("T")
_MADE: list["Scratch"] = []


class Scratch:
    """A folder in memory, whose files are overwritten for each input.

    It is made at its first use, so that forked processes have different ones.
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
    """Remove all folders, before ``os._exit``."""
    for scratch in _MADE:
        scratch._folder.cleanup()


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
        paths = [path for path in sorted(root.glob(pattern)) if path.is_file()]
        contents = dict.fromkeys(path.read_bytes() for path in paths[:64])
        return tuple(each for each in contents if len(each) <= longest)[:most]

    return walk_node(scenario, look)


def encoded(*texts: str) -> Callable[[], Sequence[bytes]]:
    """Return a function that returns the texts as seeds."""
    return lambda: [text.encode() for text in texts]


MARK = b"\x1e"


def parts_of(content: bytes, count: int) -> list[bytes]:
    """Split an input into ``count`` parts at its marks; missing parts are empty."""
    parts = content.split(MARK, count - 1)
    return parts + [b""] * (count - len(parts))
