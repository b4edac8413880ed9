"""One file of sysfs, and what it means that it cannot be read."""

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.hangs import HANGS, Hangs, Watched

# A file of sysfs has one page, a table of metrics up to a few; nothing longer is what we look for.
LONGEST, PORTION = 1 << 16, 8 << 10
# This board, driver or kernel has no such reading: nothing failed.
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
    """A card takes so long to answer that the others would have to wait for it."""


class Turn(threading.local):
    """What a thread is at. ``device`` is the uuid of the GPU that is being read.

    After ``deadline`` (monotonic clock) nothing is read any more, None is no limit: a driver that resets a
    GPU lets its readers wait. ``place`` is what is left out alone if a read hangs, "" what all stand on.
    """

    device = ""
    deadline: float | None = None
    place = ""
    watched: Watched | None = None


class Files:
    """Reads files whole; None where there is nothing to read.

    ``errors`` counts what failed since start by (GPU uuid, file, name of the error). ``turn`` is that of the
    thread that asks: one that hangs in a read is left behind, and another goes on.
    """

    def __init__(self) -> None:
        self.errors: Counter[tuple[str, str, str]] = Counter()
        self.turn = Turn()
        self._hangs = Hangs()
        self._newest = self._hangs.watch()

    @property
    def hanging(self) -> frozenset[str]:
        """What is left out, because a read of it does not return."""
        return frozenset(self._hangs.calls)

    def attend(self) -> None:
        """Have the reads of this thread watched from now on."""
        if self.turn.watched is None:
            self.turn.watched = self._newest = self._hangs.watch()

    def leave(self, patience: float) -> bool:
        """Leave the thread that reads behind, if its read takes longer than so many seconds; say if it is."""
        return self._newest.leave(patience)

    @contextmanager
    def about(self, place: str, device: str = "") -> Iterator[None]:
        """Read of one part of the node, which is left out alone if a read of it hangs.

        ``device`` is the uuid of the GPU whose failure that is. Raises CardSlowError while it is left out.
        """
        if place in self._hangs.calls:
            self.errors[device, self._hangs.calls.get(place, SYSFS), HANGS] += 1
            raise CardSlowError
        before, self.turn.place = self.turn.place, place
        try:
            yield
        finally:
            self.turn.place = before

    @contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """Wait for what is called so. Raises LeftBehindError once nobody waits for this thread any more."""
        watched = self.turn.watched
        if watched is None:
            yield
            return
        watched.begin(self.turn.place, name, time.monotonic())
        try:
            yield
        finally:
            watched.end()

    def content(self, path: Path) -> bytes | None:
        """Return the bytes of a file; raises CardSlowError once the time for this card is over."""
        self._check_time(path)
        try:
            with self.waiting(_called(path)), path.open("rb", buffering=0) as file:
                return _whole(file.fileno())
        except OSError as error:
            self._note(path, error)
        return None

    def text(self, path: Path) -> str | None:
        """Return the text of a file without the blanks around it; an empty file says nothing."""
        content = self.content(path)
        return None if content is None else content.decode("utf-8", "replace").strip() or None

    def number(self, path: Path) -> int | None:
        """Return the whole number that a file holds; one that holds anything else says nothing."""
        return to_number(self.text(path))

    def amount(self, path: Path) -> int | None:
        """Return how much or how many a file says; less than nothing is no amount, and says nothing."""
        return to_amount(self.text(path))

    def names(self, folder: Path) -> tuple[str, ...]:
        """List a folder in the order of its names; none where there is no folder."""
        self._check_time(folder)
        try:
            with self.waiting(_called(folder)):
                return tuple(sorted(entry.name for entry in folder.iterdir()))
        except OSError as error:
            self._note(folder, error)
        return ()

    def failures(self) -> int:
        """Return how many reads have failed since start."""
        return sum(self.errors.values())

    def _check_time(self, path: Path) -> None:
        deadline = self.turn.deadline
        if deadline is not None and time.monotonic() > deadline:
            self._count(path, "TooSlow")
            raise CardSlowError

    def _note(self, path: Path, error: OSError) -> None:
        if error.errno not in ABSENT:
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            self._count(path, name)

    def _count(self, path: Path, error: str) -> None:
        self.errors[self.turn.device, _called(path), error] += 1


def _called(path: Path) -> str:
    """Name a file for the counts of errors."""
    # The folder of a process is named by its pid: there would be a series for each.
    return f"{SYSFS} {path.parent.name if path.name.isdecimal() else path.name}"


def to_number(text: str | None) -> int | None:
    """Read a whole number as the kernel prints them; None for any other text."""
    if text is None or not text.removeprefix("-").isdecimal() or not text.isascii():
        return None
    return int(text) if len(text) <= len(str(1 << 64)) else None


def to_amount(text: str | None) -> int | None:
    """Read a whole number from 0 on; None for any other text."""
    found = to_number(text)
    return found if found is not None and found >= 0 else None


def properties(text: str | None, mark: str) -> dict[str, str]:
    """Read lines of a name and a value with ``mark`` between them."""
    pairs = (line.partition(mark) for line in (text or "").splitlines())
    return {name.strip(): value.strip() for name, found, value in pairs if found}


def _whole(descriptor: int) -> bytes:
    parts: list[bytes] = []
    left = LONGEST
    # Room for more than some pages would be new memory for each file, and nearly all are shorter.
    while left and (part := os.read(descriptor, min(left, PORTION))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
