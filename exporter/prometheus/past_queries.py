"""History of this node's GPUs, from a Prometheus that scrapes this exporter."""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from exporter.concurrency import in_thread
from exporter.history.past import ADDED, FIELDS, Past, Track, Wanted
from exporter.model import Snapshot
from exporter.prometheus.answers import PrometheusError, Range
from exporter.prometheus.client import Prometheus

_KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    "container": ("namespace", "pod", "container", "uuid", "mig_uuid"),
    "gpu": ("uuid",),
    "mig": ("uuid", "mig_uuid"),
}
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")


def expression(level: str, field: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    """Return PromQL for the mean of a field over each ``step`` seconds, for some GPUs, and one pod if named.

    Series that two scrape jobs, or two pods of the exporter, report for the same thing are merged.
    """
    series = _range(f"gpuslice_{level}_{field}", uuids, step, pod)
    return f"avg {_by(level)} (avg_over_time({series}))"


def summing(level: str, field: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    """Return PromQL for the same, so that values add up (see ``exporter.history.past.Wanted``).

    Sums are divided by the time in which the GPU was known.
    """
    series = _range(f"gpuslice_{level}_{field}", uuids, step, pod)
    sums = f"sum {_by(level)} (sum_over_time({series}))"
    if field not in ADDED[level]:
        return f"{sums} / sum {_by(level)} (count_over_time({series}))"
    # gpu_up is 1 if the GPU answers, else 0: then its use is unknown, but its holders are known.
    over = "count" if "entitled" in field else "sum"
    seen = f"{over}_over_time({_range('gpuslice_gpu_up', uuids, step)})"
    return f"{sums} / on (uuid) group_left () sum by (uuid) ({seen})"


def identity(level: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the identity of a series, by its labels."""
    return {name: labels.get(name, "") for name in _KEPT[level]}


def quoted(text: str) -> str:
    """Return a string literal of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _by(level: str) -> str:
    return f"by ({', '.join(_KEPT[level])})"


def _range(series: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    of_pod = f",pod={quoted(pod)}" if pod else ""
    return f"{series}{{uuid=~{_any_of(uuids)}{of_pod}}}[{round(step * 1000)}ms]"


def _any_of(uuids: Collection[str]) -> str:
    """Return a pattern of RE2 that matches these texts literally, as a string of PromQL."""
    literals = ("".join(f"\\{char}" if char in _SPECIAL else char for char in uuid) for uuid in sorted(uuids))
    return quoted("|".join(literals))


Level = Literal["container", "gpu", "mig"]
_Field = tuple[Level, str]
# Seconds. Scrapes are up to a minute apart, and each step should have one.
FINEST: Final = 60.0
NOTHING: Final = "Prometheus has no data for this range"
NO_GPU: Final = "no GPU is known yet, so there is nothing to query"
_LEVELS: Final[tuple[Level, ...]] = ("gpu", "mig", "container")
# Prometheus runs 20 queries at a time by default, and has other clients.
_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Grid:
    """The steps of a range."""

    start: float  # Unix time
    step: float  # seconds
    count: int  # number of steps

    @property
    def end(self) -> float:
        """Unix time at which the last step ends."""
        return self.start + self.count * self.step

    def place(self, at: float) -> int:
        """Return the index of the step that ends at a time; it may be out of range."""
        return round((at - self.start) / self.step) - 1


def grid_of(span: float, end: float, points: int, finest: float) -> Grid:
    """Return steps for ``span`` seconds that begin at multiples of their length; the last may not be over.

    Repeated queries have the same steps, so that caches in front of Prometheus can answer them.
    """
    step = finest * max(math.ceil(span / max(points - 1, 1) / finest), 1)
    count = min(math.ceil(span / step) + 1, points)
    return Grid(math.ceil(end / step) * step - count * step, step, count)


class PrometheusHistory:
    """Reads history of the GPUs in the snapshot that ``current`` returns.

    Steps are ``finest`` seconds or longer. ``wall`` returns the Unix time.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        current: Callable[[], Snapshot],
        *,
        finest: float = FINEST,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._prometheus = prometheus
        self._current = current
        self._finest = finest
        self._wall = wall
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def read(self, *, span: float, end: float | None, points: int, wanted: Wanted) -> Past:
        """Return ``span`` seconds up to Unix time ``end`` (None: now) in at most ``points`` steps.

        Raises PrometheusError.
        """
        grid = grid_of(span, self._wall() if end is None else end, points, self._finest)
        uuids = _uuids(self._current(), wanted)
        ranges = await self._ask(uuids, grid, wanted) if uuids else {}
        tracks = await in_thread(_tracks, ranges, grid, wanted)
        note = "" if tracks else NOTHING if uuids else NO_GPU
        return Past(
            start=grid.start, step=grid.step, count=grid.count, source="prometheus", tracks=tracks, note=note
        )

    async def close(self) -> None:
        """Close the connections to Prometheus."""
        await self._prometheus.close()

    async def _ask(self, uuids: Collection[str], grid: Grid, wanted: Wanted) -> Mapping[_Field, list[Range]]:
        """Return the series of every field."""
        # A holder has containers only.
        levels = [
            level
            for level in _LEVELS
            if (not wanted.levels or level in wanted.levels)
            and (wanted.holder is None or level == "container")
        ]
        try:
            async with asyncio.TaskGroup() as group:
                fields = {
                    (level, field): group.create_task(self._field(level, field, uuids, grid, wanted))
                    for level in levels
                    for field in FIELDS[level]
                }
        except ExceptionGroup as errors:
            known = errors.subgroup(PrometheusError)
            if known is None:
                raise
            raise known.exceptions[0] from None
        return {field: task.result() for field, task in fields.items()}

    async def _field(
        self, level: Level, field: str, uuids: Collection[str], grid: Grid, wanted: Wanted
    ) -> list[Range]:
        pod = wanted.holder[1] if wanted.holder else ""
        query = (summing if wanted.summing else expression)(level, field, uuids, grid.step, pod)
        # A value at a time is the mean of the step before it.
        start = grid.start + grid.step
        async with self._free:
            return await self._prometheus.query_range(query, start=start, end=grid.end, step=grid.step)


def _uuids(snapshot: Snapshot, wanted: Wanted) -> list[str]:
    """Return the GPUs to query; names of other vendors' devices may not be unique in a cluster."""
    known = [gpu.identity.uuid for gpu in snapshot.gpus if not gpu.unread]
    return [uuid for uuid in known if wanted.uuid in ("", uuid)]


def _tracks(answers: Mapping[_Field, Iterable[Range]], grid: Grid, wanted: Wanted) -> tuple[Track, ...]:
    """Return one track for all series with the same identity."""
    things: dict[tuple[Level, tuple[tuple[str, str], ...]], dict[str, list[Range]]] = {}
    for (level, field), ranges in answers.items():
        for series in ranges:
            labels = identity(level, series.labels)
            if level != "container" or _is_wanted(labels, wanted):
                fields = things.setdefault((level, tuple(labels.items())), defaultdict(list))
                fields[field].append(series)
    return tuple(
        Track(
            level=level,
            labels=dict(labels),
            values={
                field: _values(fields.get(field, ()), grid, adding=wanted.summing and field in ADDED[level])
                for field in FIELDS[level]
            },
        )
        for (level, labels), fields in sorted(things.items(), key=lambda thing: thing[0])
    )


def _is_wanted(labels: Mapping[str, str], wanted: Wanted) -> bool:
    if wanted.holder is None:
        return True
    namespace, pod, container = wanted.holder
    return (labels["namespace"], labels["pod"]) == (namespace, pod) and container in ("", labels["container"])


def _values(ranges: Iterable[Range], grid: Grid, *, adding: bool) -> list[float | None]:
    """Return the mean, or if ``adding`` the sum, of several series at each step."""
    steps: list[list[float]] = [[] for _ in range(grid.count)]
    for series in ranges:
        for at, value in series.points:
            place = grid.place(at)
            if 0 <= place < grid.count:
                steps[place].append(value)
    return [sum(values) / (1 if adding else len(values)) if values else None for values in steps]
