"""When the readings of each GPU that are not read in every sweep are due."""

from collections.abc import Callable, Iterable

# Readings that change by an event or by hand of an administrator, which are most of the calls of a sweep.
SLOW_SECONDS = 60.0
# The energy counter: the call takes a real driver 3 to 18 ms of CPU time, and a counter loses nothing by it.
ENERGY_SECONDS = 15.0
# Sweeps jitter: one that is earlier than the due time by this does not leave the reading to the next sweep.
EARLY_SECONDS = 0.5


class Schedule:
    """Spreads the readings of a class over its ``period`` (seconds), by ``clock`` (seconds).

    Every GPU has a phase of its own, by its index, so that not all are due in one sweep.
    """

    def __init__(self, period: float, clock: Callable[[], float]) -> None:
        self._period = period
        self._clock = clock
        # Time of the next regular read, by GPU uuid.
        self._next: dict[str, float] = {}
        # GPUs whose next read is due whatever the time.
        self._at_once: set[str] = set()

    def due(self, uuid: str, index: int) -> bool:
        """Return whether the readings of a GPU are due; they are then taken to be read.

        They are at the first call for a GPU, after ``at_once``, and whenever the period has passed.
        """
        now = self._clock()
        soon = now + EARLY_SECONDS
        after = self._next.get(uuid)
        if after is None:
            self._next[uuid] = now + self._period * (phase(index) or 1.0)
        elif after <= soon:
            # A late read does not move the phase: GPUs that were delayed together would stay together.
            passed = (soon - after) // self._period + 1
            self._next[uuid] = after + self._period * passed
        due = after is None or after <= soon or uuid in self._at_once
        self._at_once.discard(uuid)
        return due

    def at_once(self, uuids: Iterable[str]) -> None:
        """Make the readings of these GPUs due, without a change of their phases."""
        self._at_once.update(uuids)

    def forget(self, uuid: str | None = None) -> None:
        """Make the readings of a GPU, or of all, due as for the first time."""
        if uuid is None:
            self._next.clear()
            self._at_once.clear()
        else:
            self._next.pop(uuid, None)
            self._at_once.discard(uuid)


def phase(index: int) -> float:
    """Return a share of the period, at least 0 and less than 1, for the GPU with an index from 0.

    The bits of the index behind the point in reverse order: any number of GPUs from 0 on are spread evenly.
    """
    share, half = 0.0, 0.5
    while index > 0:
        share += half * (index & 1)
        index, half = index >> 1, half / 2
    return share
