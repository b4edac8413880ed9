"""The ring: the last hours of a node in memory of a fixed size."""

from exporter.history.past import Past, Wanted
from exporter.model import Snapshot


class History:
    """Keeps ``kept`` seconds of the snapshots that come every ``step`` seconds."""

    def __init__(self, kept: float, step: float) -> None:
        self._kept = kept
        self._step = step

    def record(self, snapshot: Snapshot) -> None:
        """Add what a snapshot says."""

    async def read(self, *, span: float, end: float | None, points: int, wanted: Wanted) -> Past:
        """Tell of the last ``span`` seconds."""
        raise NotImplementedError
