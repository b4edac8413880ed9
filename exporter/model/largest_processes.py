"""The order of the rows of processes, and how many of them are kept."""

from collections.abc import Iterable
from heapq import nlargest

from exporter.model.snapshot import ProcessRow

MOST_PROCESSES = 2000


def largest_processes(
    rows: Iterable[ProcessRow], most: int = MOST_PROCESSES
) -> tuple[tuple[ProcessRow, ...], int]:
    """Return the rows by device and pid, the largest of more than ``most``; and how many are left out."""
    found = kept = list(rows)
    if len(found) > most:
        # Among equals by pid, so that the same rows stay from poll to poll.
        kept = nlargest(most, found, key=lambda row: (row.memory or 0, row.compute or 0.0, -row.pid))
    return tuple(sorted(kept, key=lambda row: (*row.device, row.pid))), len(found) - len(kept)
