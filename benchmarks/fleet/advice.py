"""What a look at the advice of a cluster costs Prometheus: ``python -m benchmarks.fleet.advice HOLDERS...``.

The records of seven days are written to a real Prometheus for so many holders, 8 on each node, one on each
GPU: only the series that the look asks, and only the samples that it reads. Figures of larger clusters are a
multiple.
"""

import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain

from benchmarks.markdown import table
from benchmarks.prometheus import cost_of, stored
from exporter.fleet.cluster_advice import read_advice
from exporter.fleet.prometheus import Prometheus as Client

_WEEK, _MOMENT, _GIB = 7 * 86400, 6 * 3600, 1 << 30
_ON_NODE = 8
# Writing the series takes minutes.
_AFTER = range(0, 1200, 240)
_VALUES = {
    "held": _WEEK,
    "since": None,
    "memory_known": _WEEK,
    "compute_known": _WEEK,
    "peak": 6 * _GIB,
    "flat": 0,
    "used": 0.3 * _WEEK,
    "held_bytes": 80 * _GIB,
    "held_gpus": 1,
    "steps": 2016,
    "p95_gpus": 0.3,
    "p95_sm": 0.2,
}
_OF_DEVICE = {"rest": 0, "sent": 7}
_DEVICES = {"memory_total_bytes": 80 * _GIB, "slices": 1}


def _lines(holders: int, now: int) -> Iterator[str]:
    """Yield the samples that the look reads: the newest of holders, and of devices those of the moments."""
    for value, figure in _VALUES.items():
        for number in range(holders):
            labels = f'{_labels(number)},value="{value}"'
            if value == "held":
                labels += ',model="NVIDIA H100 80GB HBM3",sharing="exclusive",isolation="none"'
            known = now - _WEEK if figure is None else figure
            yield f"container:gpuslice_last_week:value{{{labels}}} {known} {now - 600}"
    for value, figure in _OF_DEVICE.items():
        for number in range(holders):
            row = f'{_device(number)},value="{value}"'
            yield f"container:gpuslice_last_week:value{{{row}}} {figure} {now - 600}"
    for name, figure in _DEVICES.items():
        for number in range(holders):
            for moment in range(now // _MOMENT * _MOMENT - _WEEK, now, _MOMENT):
                yield f"gpuslice_gpu_{name}{{{_device(number)}}} {figure} {moment - 60}"


def _running(holders: int, now: int) -> Iterator[str]:
    """Yield the samples of the slices held, from which the look learns which holders run."""
    for number in range(holders):
        for moment in _AFTER:
            yield f"gpuslice_container_slices{{{_labels(number)}}} 1 {now + moment}"


def _device(number: int) -> str:
    node, gpu = divmod(number, _ON_NODE)
    return f'cluster="west",node="gpu-{node:06d}",gpu="{gpu}",uuid="GPU-{number:08d}"'


def _labels(number: int) -> str:
    return f'{_device(number)},namespace="team-{number % 20}",pod="train-{number:08d}",container="main"'


def measured(holders: int) -> tuple[float, float]:
    """Return the seconds of CPU of Prometheus, and of time, of a look."""
    now = int(time.time())
    with stored([chain(_lines(holders, now), _running(holders, now))], "36h") as server:
        return cost_of(partial(_look, holders), server)


async def _look(holders: int, url: str) -> None:
    client = Client(url, deadline=120.0)
    found = await read_advice(client)
    await client.close()
    running = sum(bool(use.node) for advice in found.advices for use in advice.window.uses)
    if found.problems or not running == len(found.advices) == holders:
        raise RuntimeError(
            f"advice on {len(found.advices)} of {holders} holders, {running} run; problems: {found.problems}"
        )


def main() -> None:
    """Measure and print the table."""
    looks = [(holders, *measured(holders)) for holders in map(int, sys.argv[1:] or ["1000", "2000"])]
    rows = [(holders, f"{cpu:.2f} s", f"{wall:.2f} s") for holders, cpu, wall in looks]
    print(table(("holders", "CPU of Prometheus", "time"), rows))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
