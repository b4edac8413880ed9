"""What looks at the usage of a month cost Prometheus: ``python -m benchmarks.fleet.usage NODES...``.

The records of 30 days, and of the hours of the current one, are written to a real Prometheus for so many
nodes with 8 GPUs and 8 holders each, in 20 namespaces and as many teams.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from benchmarks.markdown import table
from benchmarks.prometheus import cost_of, stored
from exporter.fleet.prometheus import Prometheus as Client
from exporter.fleet.usage.period import DAY, HOUR, Period
from exporter.fleet.usage.reading import read_usage
from exporter.model.balances import ALLOCATION_CLASSES, USE_CLASSES

_DAYS, _GPUS, _HOURS, _TEAMS, _APPS = 30, 8, 12, 20, 50
# The intervals of the groups of rules for hours and days.
_OFTEN, _SELDOM = 900, 4 * HOUR
_MODEL = 'cluster="west",model="NVIDIA H100 80GB HBM3"'
_VALUES = {"held": 1.0, "measured": 1.0, "used": 0.3, "joules": 300.0}
LOOKS = ("namespace", "label:team")


class _Series(NamedTuple):
    """A record: name and labels, and the amount of a second."""

    row: str
    rate: float


def _days(nodes: int) -> Iterator[_Series]:
    """Yield the records of days."""
    for row, rate in _classes(nodes * _GPUS):
        yield _Series(f"cluster:gpuslice_usage_seconds:increase1d{{{_MODEL},{row}}}", rate)
    for gpu in range(nodes * _GPUS):
        yield _Series(f"gpu:gpuslice_observed_seconds:increase1d{{{_MODEL},{_gpu(gpu)}}}", 1.0)
    for team in range(_TEAMS):
        for value, rate in _VALUES.items():
            row, held = f'{_MODEL},namespace="team-{team}",value="{value}"', rate * nodes * _GPUS / _TEAMS
            yield _Series(f"namespace:gpuslice_usage:increase1d{{{row}}}", held)
            for app in range(_APPS):
                labels = f'label_team="team-{team}",label_app="app-{app}"'
                yield _Series(f"labels:gpuslice_usage:increase1d{{{row},{labels}}}", held / _APPS)


def _hours(nodes: int) -> Iterator[_Series]:
    """Yield the records of hours, which are read of the current day only."""
    for node in range(nodes):
        for row, rate in _classes(_GPUS):
            labels = f'{_MODEL},node="gpu-{node:06d}",{row}'
            yield _Series(f"node:gpuslice_usage_seconds:increase1h{{{labels}}}", rate)
    for gpu in range(nodes * _GPUS):
        yield _Series(f"gpu:gpuslice_observed_seconds:increase1h{{{_MODEL},{_gpu(gpu)}}}", 1.0)
        # Each pod has an owner of its own, which is the most that there can be.
        owner = f'namespace="team-{gpu % _TEAMS}",owner_kind="Job",owner_name="train-{gpu}"'
        for value, rate in _VALUES.items():
            yield _Series(f'owner:gpuslice_usage:increase1h{{{_MODEL},{owner},value="{value}"}}', rate)
    for team in range(_TEAMS):
        for value, rate in _VALUES.items():
            labels = f'namespace="team-{team}",label_team="team-{team}",value="{value}"'
            held = rate * nodes * _GPUS / _TEAMS
            yield _Series(f"labels:gpuslice_usage:increase1h{{{_MODEL},{labels}}}", held)


def _classes(gpus: int) -> Iterator[tuple[str, float]]:
    for value, classes in (("allocation", ALLOCATION_CLASSES), ("use", USE_CLASSES)):
        for name in classes:
            yield f'value="{value}",class="{name}"', gpus / len(classes)


def _gpu(number: int) -> str:
    return f'node="gpu-{number // _GPUS:06d}",gpu="{number % _GPUS}",uuid="GPU-{number:08d}"'


def _of_days(series: Iterator[_Series], start: float) -> Iterator[str]:
    """Yield the samples of records of days: those of a day during the next one."""
    for row, rate in series:
        for day in range(1, _DAYS + 1):
            recorded, end = int(start + day * DAY + 2 * HOUR), int(start + (day + 1) * DAY)
            for at in range(recorded, end, int(_SELDOM)):
                yield f"{row} {rate * DAY:.17g} {at}"


def _of_hours(series: Iterator[_Series], start: float) -> Iterator[str]:
    """Yield the samples of records of hours, from the second hour after ``start`` on."""
    for row, rate in series:
        for at in range(int(start + HOUR) + 60, int(start + (_HOURS + 1) * HOUR), _OFTEN):
            yield f"{row} {rate * HOUR:.17g} {at}"


def measured(nodes: int) -> Sequence[tuple[str, float, float]]:
    """Return the seconds of CPU of Prometheus, and of time, of looks by namespace and by label."""
    today = (time.time() // DAY - 1) * DAY
    period = Period(today - _DAYS * DAY, today + _HOURS * HOUR, "a month")
    lines = chain(_of_days(_days(nodes), period.start), _of_hours(_hours(nodes), today))
    with stored([lines], "768h", "--storage.tsdb.retention.time=60d") as server:
        return [(by, *cost_of(partial(_look, nodes, period, by), server)) for by in LOOKS]


async def _look(nodes: int, period: Period, by: str, url: str) -> None:
    client = Client(url, deadline=120.0)
    usage = await read_usage(client, period.end + HOUR, period, by)
    await client.close()
    held = (usage.total.held or 0.0) / (nodes * _GPUS * period.hours * HOUR)
    if usage.problems or usage.gpus != nodes * _GPUS or abs(held - 1) > 1e-9:
        raise RuntimeError(f"{usage.gpus} GPUs, {held:.3f} of them held; problems: {usage.problems}")


def main() -> None:
    """Measure and print the table."""
    rows = [
        (nodes, by, f"{cpu:.2f} s", f"{wall:.2f} s")
        for nodes in map(int, sys.argv[1:] or ["1000"])
        for by, cpu, wall in measured(nodes)
    ]
    print(table(("nodes", "usage of a month by", "CPU of Prometheus", "time"), rows))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
