"""Safe reads of other programs' files, which containers may be able to write to.

Files are not mapped into memory, because truncating a mapped file would kill this process. Reads are
bounded, do not follow symbolic links and do not block on pipes.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from exporter.model import Problem

T = TypeVar("T")
Pread = Callable[[int, int], bytes]  # (length, offset) → bytes; raises UnusableError if the file is shorter

MOST_CONTAINERS = 4096
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class UnusableError(Exception):
    """A file that cannot be used; the message has the cause."""


def problem(about: str | Path, text: object) -> Problem:
    """Return the problem of a file; its name may contain any bytes."""
    return Problem(reason="file", about=_printable(about), text=_printable(text))


@contextmanager
def reported(path: str | Path, problems: list[Problem]) -> Iterator[None]:
    """Leave the block if it finds no file; if it finds one that cannot be used, also add a problem."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, UnusableError) as error:
        problems.append(problem(path, error))


def of_containers(folder: str | Path, problems: list[Problem]) -> Iterator[tuple[str, str, str]]:
    """Yield path, pod uid and container name of each folder named ``<pod uid>_<container>``."""
    for name in listed(folder, MOST_CONTAINERS, problems):
        pod, _, container = name.partition("_")
        if pod and container:
            yield f"{folder}/{name}", pod, container


def names_or_problem(folder: str | Path, most: int, problems: list[Problem]) -> list[str]:
    """Return up to ``most`` names in a folder, sorted; [] if there is no folder, or it is unreadable."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, most))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        problems.append(problem(folder, error.strerror))
    return []


def listed(folder: str | Path, most: int, problems: list[Problem]) -> list[str]:
    """Return the same; also add a problem if the folder has more names."""
    entries = names_or_problem(folder, most + 1, problems)
    if len(entries) > most:
        problems.append(problem(folder, f"has more than {most} names; the rest is not read"))
    return entries[:most]


def _printable(text: object) -> str:
    return str(text).encode(errors="backslashreplace").decode()


@contextmanager
def opened(path: str | Path) -> Iterator[tuple[int, Pread]]:
    """Open a regular file; yield its size in bytes and its ``pread``; raises OSError, UnusableError."""
    with _regular(path) as descriptor:

        def pread(length: int, offset: int) -> bytes:
            piece = os.pread(descriptor, length, offset)
            if len(piece) < length:
                raise UnusableError("was truncated while it was read")
            return piece

        yield os.fstat(descriptor).st_size, pread


def content(path: str | Path, most: int) -> bytes:
    """Return the bytes of a regular file; UnusableError if it has more than ``most``, else OSError.

    The reported size is ignored: files of the kernel report 0.
    """
    data = b""
    with _regular(path) as descriptor:
        while len(data) <= most and (piece := os.read(descriptor, most + 1 - len(data))):
            data += piece
    if len(data) > most:
        raise UnusableError(f"is longer than {most} bytes")
    return data


def parsed(text: str, kind: type[T], most: int) -> T:
    """Return the JSON object or list in a text of at most ``most`` characters; raises ValueError."""
    try:
        value = json.loads(text) if len(text) <= most else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {type(error).__name__}") from error
    if not isinstance(value, kind):
        raise ValueError(f"not a JSON {kind.__name__} of a usual size")  # noqa: TRY004 - one kind of error
    return value


@contextmanager
def _regular(path: str | Path) -> Iterator[int]:
    descriptor = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnusableError("is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)
