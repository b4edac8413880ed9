"""Reads files of sysfs, and classifies their errors."""

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.concurrency import HANGS, Watched
from exporter.model.bounds import IMPOSSIBLE_VALUE, Bound, bounded

# A file of sysfs has one page, gpu_metrics up to a few; the rest of a longer one is ignored.
LONGEST, PORTION = 1 << 16, 8 << 10
# Errors of a reading that this board, driver or kernel does not have. They are not failures.
ABSENT = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENODEV,
        errno.ENXIO,
        errno.EINVAL,
        errno.EOPNOTSUPP,
        errno.ENODATA,
        errno.ESRCH,
    }
)
SYSFS = "sysfs"


class CardSlowError(Exception):
    """The time to read this card is over, or a read of it has not returned."""


class ReadContext(threading.local):
    """The current read of a thread."""

    # UUID of the GPU, to count failures for.
    device = ""
    deadline: float | None = None  # monotonic time after which reads raise CardSlowError; None: no limit
    # Part of the node that is excluded if a read hangs; "" is never excluded.
    place = ""
    watched: Watched | None = None


class Files:
    """Reads whole files. ``context`` is that of the calling thread, as a thread that hangs is replaced."""

    def __init__(self) -> None:
        # Failures and impossible values since start by (GPU uuid, file, error name).
        self.errors: Counter[tuple[str, str, str]] = Counter()
        self.context = ReadContext()
        # Name of the read that has not returned, by excluded place.
        self._hanging: dict[str, str] = {}
        self._newest = Watched(self._hanging)

    @property
    def hanging(self) -> frozenset[str]:
        """Places of the reads that have not returned, in abandoned threads."""
        return frozenset(self._hanging)

    def attend(self) -> None:
        """Watch the reads of this thread from now on."""
        if self.context.watched is None:
            self.context.watched = self._newest = Watched(self._hanging)

    def abandon_if_hung(self, call_timeout: float) -> bool:
        """Return whether the thread that reads is abandoned: its read exceeds ``call_timeout`` seconds."""
        return self._newest.abandon_if_hung(call_timeout)

    @contextmanager
    def about(self, place: str, device: str = "", within: float | None = None) -> Iterator[None]:
        """Read one part of the node, which is excluded if one of these reads hangs.

        ``device`` is the uuid to count failures for. ``within`` is the time for the reads in seconds, by
        default what is left of the time around. Raises CardSlowError while the place is excluded.
        """
        if place in self._hanging:
            self.errors[device, self._hanging.get(place, SYSFS), HANGS] += 1
            raise CardSlowError
        context = self.context
        outer = context.place, context.deadline
        context.place = place
        if within is not None:
            context.deadline = time.monotonic() + within
        try:
            yield
        finally:
            context.place, context.deadline = outer

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Watch a call that may hang. Raises AbandonedError if the thread has been abandoned meanwhile."""
        watched = self.context.watched
        if watched is None:
            yield
            return
        watched.begin(self.context.place, name, time.monotonic())
        try:
            yield
        finally:
            watched.end()

    def content(self, path: Path) -> bytes | None:
        """Return the bytes of a file, None if it cannot be read.

        This and all other reads raise CardSlowError after the deadline.
        """
        self._check_time(path)
        try:
            with self.waiting(_label(path)), path.open("rb", buffering=0) as file:
                return _read_all(file.fileno())
        except OSError as error:
            self._count_failure(path, error)
        return None

    def text(self, path: Path) -> str | None:
        """Return the stripped text of a file; None if it is empty or cannot be read."""
        content = self.content(path)
        return None if content is None else content.decode("utf-8", "replace").strip() or None

    def number(self, path: Path, bound: Bound | None = None) -> int | None:
        """Return the integer in a file; None for anything else, and for one outside of its bound."""
        return self.believed(path, to_number(self.text(path)), bound)

    def believed(self, path: Path, value: int | None, bound: Bound | None) -> int | None:
        """Return a number of a file; one outside of its bound is None, and counted."""
        value, impossible = bounded(value, bound)
        if impossible:
            self.count_impossible(path)
        return value

    def count_impossible(self, path: Path) -> None:
        """Count an impossible value in a file."""
        self.errors[self.context.device, _label(path), IMPOSSIBLE_VALUE] += 1

    def names(self, folder: Path) -> tuple[str, ...]:
        """Return the sorted names in a folder; () if it cannot be listed."""
        self._check_time(folder)
        try:
            with self.waiting(_label(folder)):
                return tuple(sorted(entry.name for entry in folder.iterdir()))
        except OSError as error:
            self._count_failure(folder, error)
        return ()

    def failures(self) -> int:
        """Return the number of reads that failed since start."""
        return sum(count for (_, _, error), count in self.errors.items() if error != IMPOSSIBLE_VALUE)

    def _check_time(self, path: Path) -> None:
        deadline = self.context.deadline
        if deadline is not None and time.monotonic() > deadline:
            self.errors[self.context.device, _label(path), "TooSlow"] += 1
            raise CardSlowError

    def _count_failure(self, path: Path, error: OSError) -> None:
        if error.errno not in ABSENT:
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            self.errors[self.context.device, _label(path), name] += 1


def _label(path: Path) -> str:
    """Return the name of a file in counts of errors."""
    # The folder of a process has its pid as name, which would make one series for each process.
    return f"{SYSFS} {path.parent.name if path.name.isdecimal() else path.name}"


def to_number(text: str | None) -> int | None:
    """Return an integer as the kernel prints it; None for any other text."""
    if text is None or not text.removeprefix("-").isdecimal() or not text.isascii():
        return None
    return int(text) if len(text) <= len(str(1 << 64)) else None


def to_amount(text: str | None) -> int | None:
    """Return a non-negative integer; None for any other text."""
    number = to_number(text)
    return number if number is not None and number >= 0 else None


def properties(text: str | None, separator: str) -> dict[str, str]:
    """Return the values by name of lines with a name, the separator and a value."""
    pairs = (line.partition(separator) for line in (text or "").splitlines())
    return {name.strip(): value.strip() for name, matched, value in pairs if matched}


def _read_all(descriptor: int) -> bytes:
    parts: list[bytes] = []
    remaining = LONGEST
    # In portions, because os.read allocates its whole buffer and nearly all files are short.
    while remaining and (part := os.read(descriptor, min(remaining, PORTION))):
        parts.append(part)
        remaining -= len(part)
    return b"".join(parts)
