"""The largest processes of a node, in order."""

from collections.abc import Iterable
from heapq import nlargest

from exporter.model.snapshot import ProcessRow

MOST_PROCESSES = 2000


def largest_processes(
    rows: Iterable[ProcessRow], most: int = MOST_PROCESSES
) -> tuple[tuple[ProcessRow, ...], int]:
    """Return up to ``most`` rows, the largest ones, by device and pid; and the number of rows left out."""
    every = kept = list(rows)
    if len(every) > most:
        # The pid decides between equals, so that the same rows stay from poll to poll.
        kept = nlargest(most, every, key=lambda row: (row.memory or 0, row.compute or 0.0, -row.pid))
    return tuple(sorted(kept, key=lambda row: (*row.device, row.pid))), len(every) - len(kept)
