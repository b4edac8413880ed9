"""The last hours of a node, in memory of a fixed size."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, cast

from exporter.concurrency import in_thread
from exporter.history import ADDED, FIELDS, Ask, NotKeptError, Past, SeriesKey, Track, readings
from exporter.history.plan import Plan, Tracks, means, plan, shares, span_text, whole
from exporter.history.tiers import Cells, Counts, Lane, tiers_of
from exporter.metrics import IDENTITY_LABELS, Number
from exporter.model import Snapshot

# Maximum memory of all series together, in bytes.
BUDGET = 24_000_000
# Bytes of a series without its cells, by tracemalloc.
_OVERHEAD = 2600
_CELL_BYTES = 4
# An answer with more numbers gets fewer steps: each number takes 32 bytes while the answer is written.
_MOST_NUMBERS = 1 << 20
# A poll that comes later than this many steps after the previous one leaves a gap.
_LATE = 1.5


class _Copied(NamedTuple):
    """The cells of a series, copied."""

    key: SeriesKey
    cells: list[Cells]  # by field
    counts: list[Counts]  # readings per cell, by field; empty unless needed for sums


@dataclass(slots=True)
class _Series:
    """One GPU, MIG device or container in all tiers."""

    lanes: tuple[Lane, ...]
    seen: float  # Unix time of the last reading

    def put(self, at: float, slots: Iterable[int], values: list[Number | None], bridged: bool) -> None:
        self.seen = at
        for lane, slot in zip(self.lanes, slots, strict=True):
            lane.put(slot, values, bridged)


class History:
    """Keeps the last ``kept`` seconds of snapshots that come every ``step`` seconds, in ``budget`` bytes.

    The event loop writes, and threads read. ``wall`` returns the Unix time.
    """

    def __init__(
        self, kept: float, step: float, *, budget: int = BUDGET, wall: Callable[[], float] = time.time
    ) -> None:
        self.kept = kept
        self.wall = wall
        self._tiers = tiers_of(kept, step)
        self._budget = budget
        cells = sum(tier.slots * (_CELL_BYTES + tier.count_bytes) for tier in self._tiers)
        self._costs: Mapping[str, int] = {
            level: len(fields) * cells + _OVERHEAD for level, fields in FIELDS.items()
        }
        # In the order of their last readings.
        self._series: OrderedDict[SeriesKey, _Series] = OrderedDict()
        self._used = 0
        self._refused = 0
        self._newest = 0.0
        self._lock = threading.Lock()

    def record(self, snapshot: Snapshot) -> None:
        """Add the readings of a snapshot; one from before the first poll has none."""
        if snapshot.sequence == 0:
            return
        rows = dict(readings(snapshot))
        with self._lock:
            self._record(snapshot.timestamp, rows)

    async def read(self, ask: Ask) -> Past:
        """Return history as ``read_sync`` does, read in a thread."""
        return await in_thread(self.read_sync, ask)

    def read_sync(self, ask: Ask) -> Past:
        """Return the requested history; raises NotKeptError if the range reaches back too far."""
        now, summing = self.wall(), ask.wanted.summing
        end = now if ask.end is None else min(ask.end, now)
        if end - ask.span < now - self.kept - self._tiers[-1].step:
            raise NotKeptError(
                f"{span_text(self.kept)} are kept in memory (--history-retention);"
                " for longer ranges see Grafana or the hub"
            )
        # All series are copied at the same time, or their sums would not hold.
        with self._lock:
            chosen = [key for key in self._series if ask.wanted.has(key.level, _labels(key))]
            most = max(1, _MOST_NUMBERS // max(1, sum(len(FIELDS[key.level]) for key in chosen)))
            steps = plan(self._tiers, now=now, end=end, span=ask.span, points=min(ask.points, most))
            copied = self._copy(chosen, steps, counted=summing)
            of_gpus = {SeriesKey("gpu", (_labels(key)["uuid"],)) for key in chosen} if summing else set()
            gpus = self._copy(of_gpus & self._series.keys(), steps, counted=True)
            refused = self._refused
        seen = {series.key.values[0]: whole(series.counts, steps.each) for series in gpus}
        track = partial(_share, seen) if summing else _track
        return Past(
            start=steps.start,
            step=steps.step,
            count=steps.steps,
            tracks=Tracks(copied, partial(track, steps.each)),
            note=_note(refused, ask.points > most),
        )

    def over(self, *, now: float, span: float, points: int, shift: int) -> Plan:
        """Return a plan for the last ``span`` seconds in finished steps, shifted by ``shift`` slots."""
        steps = plan(self._tiers, now=now, end=now, span=span, points=points)
        shift %= steps.each
        newest = (self._tiers[steps.tier].slot(now) - shift) // steps.each * steps.each + shift
        return steps._replace(first=newest - steps.steps * steps.each)

    def values(self, key: SeriesKey, field: str, steps: Plan) -> list[float | None]:
        """Return one field of one series as planned; all None if there is no such series."""
        with self._lock:
            series = self._series.get(key)
            cells = None if series is None else series.lanes[steps.tier].window(steps.first, steps.stop)
        if cells is None:
            return [None] * steps.steps
        return means(cells[FIELDS[key.level].index(field)], steps.each)

    def _record(self, at: float, rows: Mapping[SeriesKey, list[Number | None]]) -> None:
        if at < self._newest:
            self._cut(at)
        slots = [tier.slot(at) for tier in self._tiers]
        previous, self._newest = self._newest, at
        bridged = at - previous <= _LATE * self._tiers[0].step
        added = []
        for key, values in rows.items():
            series = self._series.get(key)
            if series is None:
                added.append((key, values))
            else:
                self._series.move_to_end(key)
                # A series that was missing from the previous poll has a gap there.
                series.put(at, slots, values, bridged and series.seen == previous)
        while self._series and next(iter(self._series.values())).seen < at - self.kept:
            self._drop_oldest()
        self._refused = sum(not self._add(key, at, slots, values) for key, values in added)

    def _cut(self, at: float) -> None:
        """Drop readings later than now: the clock was set back."""
        slots = [tier.slot(at) for tier in self._tiers]
        for series in self._series.values():
            series.seen = min(series.seen, at)
            for lane, slot in zip(series.lanes, slots, strict=True):
                lane.cut(slot)

    def _add(self, key: SeriesKey, at: float, slots: list[int], values: list[Number | None]) -> bool:
        """Add a series, in place of those that ended first if memory is full; return whether it fits."""
        cost = self._costs[key.level]
        while self._used + cost > self._budget:
            if not self._series or next(iter(self._series.values())).seen >= at:
                return False
            self._drop_oldest()
        lanes = tuple(
            Lane(len(values), tier.slots, slot, count_bytes=tier.count_bytes)
            for tier, slot in zip(self._tiers, slots, strict=True)
        )
        series = self._series[key] = _Series(lanes, at)
        series.put(at, slots, values, bridged=False)
        self._used += cost
        return True

    def _drop_oldest(self) -> None:
        key, _ = self._series.popitem(last=False)
        self._used -= self._costs[key.level]

    def _copy(self, chosen: Iterable[SeriesKey], steps: Plan, *, counted: bool) -> list[_Copied]:
        lanes = ((key, self._series[key].lanes[steps.tier]) for key in chosen)
        return [
            _Copied(
                key,
                lane.window(steps.first, steps.stop),
                lane.counts(steps.first, steps.stop) if counted else [],
            )
            for key, lane in lanes
            if lane.first < steps.stop and lane.last >= steps.first
        ]


def _labels(key: SeriesKey) -> dict[str, str]:
    return dict(zip(IDENTITY_LABELS[key.level], key.values, strict=True))


def _track(each: int, series: _Copied) -> Track:
    return _named(series.key, [means(cells, each) for cells in series.cells])


def _share(seen: Mapping[str, Sequence[int]], each: int, series: _Copied) -> Track:
    """Return a series that adds up; ``seen`` has the number of readings of each GPU in each step."""
    fields, added = FIELDS[series.key.level], ADDED[series.key.level]
    of_gpu = seen.get(_labels(series.key)["uuid"])
    among = [of_gpu if name in added else None for name in fields]
    values = [
        shares(cells, counts, each, divisors)
        for cells, counts, divisors in zip(series.cells, series.counts, among, strict=True)
    ]
    return _named(series.key, values)


def _named(key: SeriesKey, values: Sequence[list[float | None]]) -> Track:
    # The history has series of these levels only.
    level = cast("Literal['container', 'gpu', 'mig']", key.level)
    return Track(level=level, labels=_labels(key), values=dict(zip(FIELDS[level], values, strict=True)))


def _note(refused: int, shortened: bool) -> str:
    notes = []
    if refused:
        notes.append(f"{refused} containers or devices are not kept: the memory for history is full")
    if shortened:
        notes.append("the steps are longer than requested: request fewer series for shorter steps")
    return "; ".join(notes)
