"""The order of the rows of processes, and how many of them are kept."""

from collections.abc import Iterable
from heapq import nlargest

from exporter.model.snapshot import ProcessRow

MOST_PROCESSES = 2000


def process_rows(
    rows: Iterable[ProcessRow], most: int = MOST_PROCESSES
) -> tuple[tuple[ProcessRow, ...], int]:
    """Sort the rows by device and pid. Of more than ``most`` the largest stay; tell how many are left out."""
    found = list(rows)
    kept = found if len(found) <= most else nlargest(most, found, key=_size)
    return tuple(sorted(kept, key=_order)), len(found) - len(kept)


def _size(row: ProcessRow) -> tuple[int, float, int]:
    """Rank by memory, then compute; among equals by pid, so that the same ones stay from poll to poll."""
    return row.memory or 0, row.compute or 0.0, -row.pid


def _order(row: ProcessRow) -> tuple[str, str, int]:
    return *row.device, row.pid
