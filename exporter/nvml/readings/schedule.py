"""When the slow readings of each GPU are due."""

from collections.abc import Callable, Iterable

# Readings that change by an event or by hand of an administrator, which are most of the calls of a sweep.
SLOW_SECONDS = 60.0


class SlowSchedule:
    """Spreads the slow readings of the GPUs over SLOW_SECONDS, by ``clock`` (seconds).

    Every GPU has a phase of its own, by its index, so that not all are due in one sweep.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Time of the next regular read, by GPU uuid.
        self._next: dict[str, float] = {}
        # GPUs whose next read is due whatever the time.
        self._at_once: set[str] = set()

    def due(self, uuid: str, index: int) -> bool:
        """Return whether the slow readings of a GPU are due; they are then taken to be read.

        They are at the first call for a GPU, after ``at_once``, and whenever SLOW_SECONDS have passed.
        """
        now = self._clock()
        after = self._next.get(uuid)
        if after is None:
            self._next[uuid] = now + SLOW_SECONDS * (phase(index) or 1.0)
        elif after <= now:
            # A late read does not move the phase: GPUs that were delayed together would stay together.
            passed = (now - after) // SLOW_SECONDS + 1
            self._next[uuid] = after + SLOW_SECONDS * passed
        due = after is None or after <= now or uuid in self._at_once
        self._at_once.discard(uuid)
        return due

    def at_once(self, uuids: Iterable[str]) -> None:
        """Make the slow readings of these GPUs due, without a change of their phases."""
        self._at_once.update(uuids)

    def forget(self, uuid: str | None = None) -> None:
        """Make the slow readings of a GPU, or of all, due as for the first time."""
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
