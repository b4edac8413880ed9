"""Reading files that other programs write, and that the containers they are about may write as well.

Nothing is mapped into memory, where a file that is cut short would end this program; nothing is read
without a bound, followed out of its folder, or waited for.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from exporter.model import ContainerFile, FileProblem, SystemFiles

T = TypeVar("T")
Pread = Callable[[int, int], bytes]
"""Reads so many bytes from an offset on; raises UnusableError where the file has fewer."""

OfContainer = Callable[[str, str, str], Iterable[ContainerFile | FileProblem]]
"""Reads the folder of one container, given the uid of its pod and its name."""

MOST_CONTAINERS = 4096
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class UnusableError(Exception):
    """A file that cannot be used; the text says why."""


def problem(about: str | Path, text: object) -> FileProblem:
    """Return what is wrong with a file, whose name may be any bytes."""
    return FileProblem(reason="file", about=_printable(about), text=_printable(text))


def gathered(entries: Iterable[ContainerFile | FileProblem]) -> SystemFiles:
    """Put together what was found of all containers."""
    items = tuple(entries)
    return SystemFiles(
        containers=tuple(file for file in items if isinstance(file, ContainerFile)),
        problems=tuple(failed for failed in items if isinstance(failed, FileProblem)),
    )


def of_containers(folder: str | Path, read: OfContainer) -> Iterator[ContainerFile | FileProblem]:
    """Read the folder of each container that is named ``<uid of the pod>_<container>``."""
    for name in listed(folder, MOST_CONTAINERS):
        if isinstance(name, FileProblem):
            yield name
            continue
        pod, _, container = name.partition("_")
        if pod and container:
            yield from read(f"{folder}/{name}", pod, container)


def names(folder: str | Path, most: int) -> list[str]:
    """List the names in a folder in their order, ``most`` at the most; none where there is no such folder.

    Raises OSError where it cannot be read.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, most))
    except (FileNotFoundError, NotADirectoryError):
        return []


def listed(folder: str | Path, most: int) -> Iterator[str | FileProblem]:
    """Yield the names in a folder, ``most`` at the most; what is not read of it is a problem."""
    try:
        entries = names(folder, most + 1)
    except OSError as error:
        yield problem(folder, error)
        return
    yield from entries[:most]
    if len(entries) > most:
        yield problem(folder, f"holds more than {most} names, of which the rest is not read")


def _printable(text: object) -> str:
    return str(text).encode(errors="backslashreplace").decode()


@contextmanager
def opened(path: str | Path) -> Iterator[tuple[int, Pread]]:
    """Open a regular file, and give its size in bytes with what reads it; raises OSError, UnusableError."""
    with _regular(path) as descriptor:

        def pread(length: int, offset: int) -> bytes:
            piece = os.pread(descriptor, length, offset)
            if len(piece) < length:
                raise UnusableError("was cut short while it was read")
            return piece

        yield os.fstat(descriptor).st_size, pread


def content(path: str | Path, most: int) -> bytes:
    """Return a regular file, whatever size it reports; UnusableError if it has more than ``most`` bytes."""
    data = b""
    with _regular(path) as descriptor:
        while len(data) <= most and (piece := os.read(descriptor, most + 1 - len(data))):
            data += piece
    if len(data) > most:
        raise UnusableError(f"is longer than {most} bytes")
    return data


def parsed(text: str, kind: type[T], most: int) -> T:
    """Return the JSON object or list of a text of at most ``most`` characters; ValueError for any other."""
    try:
        value = json.loads(text) if len(text) <= most else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {type(error).__name__}") from error
    if not isinstance(value, kind):
        raise ValueError(f"no JSON {kind.__name__} of a usual size")  # noqa: TRY004 - one kind of error for a text
    return value


@contextmanager
def _regular(path: str | Path) -> Iterator[int]:
    descriptor = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnusableError("is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)
