"""History of this node's GPUs, from a Prometheus that scrapes this exporter."""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Final, Literal

from exporter.concurrency import in_thread
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.prometheus.answers import PrometheusError, Range
from exporter.history import ADDED, FIELDS, Ask, Past, Track, Wanted
from exporter.metrics import IDENTITY_LABELS
from exporter.model import Snapshot

Level = Literal["container", "gpu", "mig"]
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")


def expression(level: Level, field: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    """Return PromQL for the mean of a field over each ``step`` seconds, for some GPUs, and one pod if named.

    Series that two scrape jobs, or two pods of the exporter, report for the same thing are merged.
    """
    series = _range(f"gpuslice_{level}_{field}", uuids, step, pod)
    return f"avg {_by(level)} (avg_over_time({series}))"


def summing(level: Level, field: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    """Return PromQL for the same, so that values add up (see ``exporter.history.Wanted``).

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


def identity(level: Level, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the identity of a series, by its labels."""
    return {name: labels.get(name, "") for name in IDENTITY_LABELS[level]}


def quoted(text: str) -> str:
    """Return a string literal of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _by(level: Level) -> str:
    return f"by ({', '.join(IDENTITY_LABELS[level])})"


def _range(series: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    of_pod = f",pod={quoted(pod)}" if pod else ""
    # As patterns of RE2 that match the texts literally.
    literals = ("".join(f"\\{char}" if char in _SPECIAL else char for char in uuid) for uuid in sorted(uuids))
    return f"{series}{{uuid=~{quoted('|'.join(literals))}{of_pod}}}[{round(step * 1000)}ms]"


_Field = tuple[Level, str]
# Seconds. Scrapes are up to a minute apart, and each step should have one.
FINEST: Final = 60.0
NOTHING: Final = "Prometheus has no data for this range"
NO_GPU: Final = "no GPU is known yet, so there is nothing to query"
_LEVELS: Final[tuple[Level, ...]] = ("gpu", "mig", "container")
# Prometheus runs 20 queries at a time by default, and has other clients.
_AT_ONCE: Final = 4


def past_of(span: float, end: float, points: int, finest: float) -> Past:
    """Return steps for ``span`` seconds, without tracks; the last may not be over.

    They begin at multiples of their length, so that repeated queries have the same steps, and caches in front
    of Prometheus can answer them.
    """
    step = finest * max(math.ceil(span / max(points - 1, 1) / finest), 1)
    count = min(math.ceil(span / step) + 1, points)
    start = math.ceil(end / step) * step - count * step
    return Past(start=start, step=step, count=count, source="prometheus")


def step_ending_at(past: Past, at: float) -> int:
    """Return the index of the step that ends at a time; it may be out of range."""
    return round((at - past.start) / past.step) - 1


@dataclass(eq=False)
class PrometheusHistory:
    """Reads history of the GPUs in the snapshot that ``current`` returns.

    Steps are ``finest`` seconds or longer. ``wall`` returns the Unix time.
    """

    prometheus: Prometheus
    current: Callable[[], Snapshot]
    _: KW_ONLY
    finest: float = FINEST
    wall: Callable[[], float] = time.time
    _free: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, _AT_ONCE), init=False)

    async def read(self, ask: Ask) -> Past:
        """Return the requested history; raises PrometheusError."""
        wanted, end = ask.wanted, self.wall() if ask.end is None else ask.end
        past = past_of(ask.span, end, ask.points, self.finest)
        uuids = _uuids(self.current(), wanted)
        ranges = await self._ask(uuids, past, wanted) if uuids else {}
        tracks = await in_thread(_tracks, ranges, past, wanted)
        note = "" if tracks else NOTHING if uuids else NO_GPU
        return replace(past, tracks=tracks, note=note)

    async def close(self) -> None:
        """Close the connections to Prometheus."""
        await self.prometheus.close()

    async def _ask(self, uuids: Collection[str], past: Past, wanted: Wanted) -> Mapping[_Field, list[Range]]:
        """Return the series of every field."""
        try:
            async with asyncio.TaskGroup() as group:
                fields = {
                    (level, field): group.create_task(self._field(level, field, uuids, past, wanted))
                    for level in _LEVELS
                    if wanted.has_level(level)
                    for field in FIELDS[level]
                }
        except ExceptionGroup as errors:
            known = errors.subgroup(PrometheusError)
            if known is None:
                raise
            raise known.exceptions[0] from None
        return {field: task.result() for field, task in fields.items()}

    async def _field(
        self, level: Level, field: str, uuids: Collection[str], past: Past, wanted: Wanted
    ) -> list[Range]:
        pod = wanted.holder[1] if wanted.holder else ""
        query = (summing if wanted.summing else expression)(level, field, uuids, past.step, pod)
        # A value at a time is the mean of the step before it.
        start = past.start + past.step
        async with self._free:
            return await self.prometheus.query_range(query, start=start, end=past.end, step=past.step)


def _uuids(snapshot: Snapshot, wanted: Wanted) -> list[str]:
    """Return the GPUs to query; names of other vendors' devices may not be unique in a cluster."""
    known = [gpu.identity.uuid for gpu in snapshot.gpus if not gpu.unread]
    return [uuid for uuid in known if wanted.uuid in ("", uuid)]


def _tracks(answers: Mapping[_Field, Iterable[Range]], past: Past, wanted: Wanted) -> tuple[Track, ...]:
    """Return one track for all series with the same identity."""
    things: dict[tuple[Level, tuple[tuple[str, str], ...]], dict[str, list[Range]]] = {}
    for (level, name), ranges in answers.items():
        for series in ranges:
            labels = identity(level, series.labels)
            if level != "container" or wanted.has_holder(labels):
                fields = things.setdefault((level, tuple(labels.items())), defaultdict(list))
                fields[name].append(series)
    return tuple(
        Track(
            level=level,
            labels=dict(labels),
            values={
                name: _values(fields.get(name, ()), past, adding=wanted.summing and name in ADDED[level])
                for name in FIELDS[level]
            },
        )
        for (level, labels), fields in sorted(things.items(), key=lambda thing: thing[0])
    )


def _values(ranges: Iterable[Range], past: Past, *, adding: bool) -> list[float | None]:
    """Return the mean, or if ``adding`` the sum, of several series at each step."""
    steps: list[list[float]] = [[] for _ in range(past.count)]
    for series in ranges:
        for at, value in series.points:
            place = step_ending_at(past, at)
            if 0 <= place < past.count:
                steps[place].append(value)
    return [sum(values) / (1 if adding else len(values)) if values else None for values in steps]
