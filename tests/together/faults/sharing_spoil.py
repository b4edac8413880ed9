"""Spoiling the files of sharing systems: before a poll, when they are opened, and while they are read."""

import contextlib
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from tests.together.faults.harness import Watch
from tests.together.faults.kubelet_servers import as_nobody, let_in
from tests.together.faults.layout_moments import OPENINGS

THREAD: Final = "sharing"
GIBIBYTE: Final = 1 << 30
Spoil = Callable[[Path], object]


def _replaced(make: Spoil) -> Spoil:
    """Put something else in the place of what is there."""

    def spoil(path: Path) -> None:
        _remove(path)
        make(path)

    return spoil


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(GIBIBYTE)


def _halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _another(path: Path) -> None:
    """Write other bytes over the file, as many as it has."""
    path.write_bytes(bytes(each ^ 0x5A for each in path.read_bytes()))


AT_FILES: Mapping[str, Spoil] = {
    "removed": _remove,
    "empty": lambda path: os.truncate(path, 0),
    "cut short": _halve,
    "garbage": _another,
    "a directory": _replaced(Path.mkdir),
    "a link to nothing": _replaced(lambda path: path.symlink_to("nothing")),
    "a link to itself": _replaced(lambda path: path.symlink_to(path)),
    "a link to /dev/zero": _replaced(lambda path: path.symlink_to("/dev/zero")),
    "a pipe": _replaced(os.mkfifo),
    "a sparse GiB": _replaced(_sparse),
    "no permission": lambda path: path.chmod(0),
}
"""What may become of a file before a poll, or at the moment at which it is opened."""
AT_FOLDERS: Mapping[str, Spoil] = {
    "removed": _remove,
    "empty": _replaced(Path.mkdir),
    "a file": _replaced(Path.touch),
    "a link to nothing": _replaced(lambda path: path.symlink_to("nothing")),
    "a link to itself": _replaced(lambda path: path.symlink_to(path)),
    "a pipe": _replaced(os.mkfifo),
    "no permission": lambda path: path.chmod(0),
}
WHILE_READ: Mapping[str, Spoil] = {
    "removed": _remove,
    "empty": lambda path: os.truncate(path, 0),
    "cut short": _halve,
}
"""What may become of a file that is open."""


@contextlib.contextmanager
def _spoiled(watch: Watch, path: Path, spoil: Spoil, when: str) -> Iterator[None]:
    """Spoil a file for the next poll, before it or in the middle of it; afterwards it is as it was."""
    kept = path.with_name(f"{path.name}~kept")
    _copy(path, kept)
    mode = path.stat().st_mode
    # Not next to what is read, where one name more would be another folder.
    aside = watch.node._root / "kept"
    kept.rename(aside)
    let_in(watch.node)
    try:
        with _at(when, path, partial(spoil, path)), _unprivileged(spoil):
            yield
    finally:
        _remove(path)
        aside.rename(path)
        path.chmod(mode)


@contextlib.asynccontextmanager
async def spoiled(watch: Watch, path: Path, spoil: Spoil, when: str) -> AsyncIterator[None]:
    """Spoil a file or folder for the next poll; see the words for when, and the ways to do so, above."""
    with _spoiled(watch, path, spoil, when):
        yield


def _copy(path: Path, to: Path) -> None:
    if path.is_dir():
        shutil.copytree(path, to, symlinks=True)
    else:
        shutil.copy2(path, to)


@contextlib.contextmanager
def _unprivileged(spoil: Spoil) -> Iterator[None]:
    with (
        as_nobody()
        if spoil in (AT_FILES["no permission"], AT_FOLDERS["no permission"])
        else contextlib.nullcontext()
    ):
        yield


@contextlib.contextmanager
def _at(when: str, path: Path, act: Callable[[], object]) -> Iterator[None]:
    if when.endswith("before"):
        act()
        yield
        return
    left = [act]

    def once() -> None:
        if left:
            left.pop()()

    with (_opening if when.endswith("at opening") else _reading)(path, once):
        yield
    assert not left, f"{path} was not read"


@contextlib.contextmanager
def _opening(path: Path, once: Callable[[], None]) -> Iterator[None]:
    def note() -> None:
        if OPENINGS.path == path and threading.current_thread().name == THREAD:
            once()

    with OPENINGS.below(path.parent, note):
        yield


@contextlib.contextmanager
def _reading(path: Path, once: Callable[[], None]) -> Iterator[None]:
    """Act when the file is read for the first time; it is open by then."""
    real = {name: getattr(os, name) for name in ("read", "pread")}

    def reading(name: str, descriptor: int, *arguments: int) -> bytes:
        is_ours = threading.current_thread().name == THREAD
        if is_ours and Path(f"/proc/self/fd/{descriptor}").readlink() == path:
            once()
        return real[name](descriptor, *arguments)

    for name in real:
        setattr(os, name, partial(reading, name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)
