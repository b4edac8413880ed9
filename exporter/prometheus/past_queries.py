"""The past of this node's GPUs, asked of a Prometheus that has scraped them."""

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

# Labels that Prometheus sets on all it scrapes of a pod. Those of ours by these names are then called
# exported_… where the scrape does not honour ours.
_DISPUTED: Final = ("namespace", "pod", "container")
_EXPORTED: Final = "exported_"
_KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    "container": (*_DISPUTED, *(f"{_EXPORTED}{name}" for name in _DISPUTED), "uuid", "mig_uuid"),
    "gpu": ("uuid",),
    "mig": ("uuid", "mig_uuid"),
}
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")


def expression(level: str, field: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    """Ask for the means of a field over each step, of some GPUs, and of one pod where that is named.

    Two scrape jobs, or an exporter whose pod was replaced, tell of the same thing twice: it is one series.
    """
    return f"avg {_by(level)} ({_over('avg', _ranges(level, field, uuids, step, pod))})"


def summing(level: str, field: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    """Ask for the same so that it adds up (see ``exporter.history.past.Wanted``).

    What is added up is divided by all the time in which the GPU was known.
    """
    ranges = _ranges(level, field, uuids, step, pod)
    sums = f"sum {_by(level)} ({_over('sum', ranges)})"
    if field not in ADDED[level]:
        return f"{sums} / sum {_by(level)} ({_over('count', ranges)})"
    # It is 1 where the GPU is known, and 0 where it is not: who holds it is known all the same.
    seen = _over("count" if "entitled" in field else "sum", _ranges("gpu", "up", uuids, step))
    return f"{sums} / on (uuid) group_left () sum by (uuid) ({seen})"


def scraped_containers(uuids: Collection[str], span: float) -> str:
    """Ask by which label ``container`` the exporter's own container is known, where it is known by one."""
    series = f"gpuslice_gpu_up{{uuid=~{_any_of(uuids)}}}[{_span(span)}]"
    return f"count by (container) (count_over_time({series}))"


def identity(level: str, labels: Mapping[str, str], scraped: Collection[str]) -> dict[str, str]:
    """Tell whose a series is, by the names of our labels.

    ``scraped`` are the values of ``container`` that are those of the exporter: that label is no holder's.
    """
    own = {name: labels.get(name, "") for name in ("uuid", "mig_uuid") if name in labels}
    if level != "container":
        return own
    names = {name: labels.get(f"{_EXPORTED}{name}") or labels.get(name, "") for name in _DISPUTED}
    if f"{_EXPORTED}container" not in labels and names["container"] in scraped:
        names["container"] = ""
    return names | own


def quoted(text: str) -> str:
    """Write a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _by(level: str) -> str:
    return f"by ({', '.join(_KEPT[level])})"


def _ranges(level: str, field: str, uuids: Collection[str], step: float, pod: str = "") -> list[str]:
    choices = [""]
    if level == "container" and pod:
        choices = [f",{name}={quoted(pod)}" for name in ("pod", f"{_EXPORTED}pod")]
    series = f"gpuslice_{level}_{field}{{uuid=~{_any_of(uuids)}"
    return [f"{series}{choice}}}[{_span(step)}]" for choice in choices]


def _over(what: str, ranges: Iterable[str]) -> str:
    return " or ".join(f"{what}_over_time({each})" for each in ranges)


def _any_of(uuids: Collection[str]) -> str:
    return quoted("|".join(map(_literal, sorted(uuids))))


def _literal(text: str) -> str:
    """Write a text as a pattern of RE2 that matches it."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)


def _span(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


Level = Literal["container", "gpu", "mig"]
_Field = tuple[Level, str]
# Scrapes are up to a minute apart, and each step should have one.
FINEST: Final = 60.0
NOTHING: Final = "Prometheus has nothing of this in that time"
NO_GPU: Final = "no GPU is known yet that Prometheus could be asked for"
_LEVELS: Final[tuple[Level, ...]] = ("gpu", "mig", "container")
# A Prometheus works on twenty queries at once by default, and others ask it too.
_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Grid:
    """Steps of ``step`` seconds from Unix time ``start`` on."""

    start: float
    step: float
    count: int

    @property
    def end(self) -> float:
        """The end of the last step."""
        return self.start + self.count * self.step

    def place(self, at: float) -> int:
        """Give the place of the step that ends at a time, which need not be among ours."""
        return round((at - self.start) / self.step) - 1


def grid_of(span: float, end: float, points: int, finest: float) -> Grid:
    """Lay steps over ``span`` seconds, at multiples of themselves, so that asking again asks for the same.

    The last one may still be under way. Servers that keep answers keep those of such steps.
    """
    step = finest * max(math.ceil(span / max(points - 1, 1) / finest), 1)
    count = min(math.ceil(span / step) + 1, points)
    return Grid(math.ceil(end / step) * step - count * step, step, count)


class PrometheusHistory:
    """Reads the past of the GPUs in the snapshot that ``current`` returns, in steps of ``finest`` or longer.

    Raises PrometheusError.
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
        """Tell of ``span`` seconds up to Unix time ``end`` (None: now) in at most ``points`` steps."""
        grid = grid_of(span, self._wall() if end is None else end, points, self._finest)
        uuids = _uuids(self._current(), wanted)
        found, scraped = await self._ask(uuids, grid, wanted) if uuids else ({}, frozenset())
        tracks = await in_thread(_tracks, found, scraped, grid, wanted)
        note = "" if tracks else NOTHING if uuids else NO_GPU
        return Past(
            start=grid.start, step=grid.step, count=grid.count, source="prometheus", tracks=tracks, note=note
        )

    async def close(self) -> None:
        """Close the connections to Prometheus."""
        await self._prometheus.close()

    async def _ask(
        self, uuids: Collection[str], grid: Grid, wanted: Wanted
    ) -> tuple[Mapping[_Field, list[Range]], frozenset[str]]:
        """Ask for every field at once, and by which names scrapes know the exporter's container."""
        levels = _levels(wanted)
        try:
            async with asyncio.TaskGroup() as group:
                asked = {
                    (level, field): group.create_task(self._field(level, field, uuids, grid, wanted))
                    for level in levels
                    for field in FIELDS[level]
                }
                scraped = group.create_task(self._scraped(uuids, grid) if "container" in levels else _none())
        except ExceptionGroup as errors:
            known = errors.subgroup(PrometheusError)
            if known is None:
                raise
            raise known.exceptions[0] from None
        return {field: task.result() for field, task in asked.items()}, scraped.result()

    async def _field(
        self, level: Level, field: str, uuids: Collection[str], grid: Grid, wanted: Wanted
    ) -> list[Range]:
        pod = wanted.holder[1] if wanted.holder else ""
        query = (summing if wanted.summing else expression)(level, field, uuids, grid.step, pod)
        # A mean is that of the step before the time it is asked for.
        start = grid.start + grid.step
        async with self._free:
            return await self._prometheus.query_range(query, start=start, end=grid.end, step=grid.step)

    async def _scraped(self, uuids: Collection[str], grid: Grid) -> frozenset[str]:
        async with self._free:
            found = await self._prometheus.query(scraped_containers(uuids, grid.count * grid.step), grid.end)
        return frozenset(sample.labels["container"] for sample in found if "container" in sample.labels)


def _levels(wanted: Wanted) -> list[Level]:
    """List the levels to tell of; those of a holder are its containers only."""
    named = [level for level in _LEVELS if not wanted.levels or level in wanted.levels]
    return [level for level in named if wanted.holder is None or level == "container"]


async def _none() -> frozenset[str]:
    return frozenset()


def _uuids(snapshot: Snapshot, wanted: Wanted) -> list[str]:
    """List the GPUs to ask for; what other makers call theirs need not be a name of its own in a cluster."""
    known = [gpu.identity.uuid for gpu in snapshot.gpus if not gpu.unread]
    return [uuid for uuid in known if wanted.uuid in ("", uuid)]


def _tracks(
    found: Mapping[_Field, Iterable[Range]], scraped: Collection[str], grid: Grid, wanted: Wanted
) -> tuple[Track, ...]:
    """Put series of the same thing together, whatever their scrape called it."""
    things: dict[tuple[Level, tuple[tuple[str, str], ...]], dict[str, list[Range]]] = {}
    for (level, field), ranges in found.items():
        for each in ranges:
            labels = identity(level, each.labels, scraped)
            if level != "container" or _is_wanted(labels, wanted):
                fields = things.setdefault((level, tuple(labels.items())), defaultdict(list))
                fields[field].append(each)
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
    """Give the mean, or the sum, of what several series say at each step."""
    found: list[list[float]] = [[] for _ in range(grid.count)]
    for each in ranges:
        for at, value in each.points:
            place = grid.place(at)
            if 0 <= place < grid.count:
                found[place].append(value)
    return [sum(values) / (1 if adding else len(values)) if values else None for values in found]
