"""What a look at the advice of a cluster costs Prometheus: ``python -m benchmarks.fleet.advice HOLDERS...``.

The records of seven days are written to a real Prometheus for so many holders, 8 on each node, one on each
GPU: only the series that the look asks, and only the samples that it reads. Figures of larger clusters are a
multiple.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.markdown import table
from benchmarks.processes import free_port
from benchmarks.prometheus import create_blocks, prometheus
from exporter.fleet.cluster_advice import read_advice
from exporter.prometheus import Prometheus as Client

_WEEK, _MOMENT, _GIB = 7 * 86400, 6 * 3600, 1 << 30
_ON_NODE, _LOOKS = 8, 3
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
            yield f"container:gpuslice_last_week:value{{{labels}}} {known} {now - 600}\n"
    for value, figure in _OF_DEVICE.items():
        for number in range(holders):
            row = f'{_device(number)},value="{value}"'
            yield f"container:gpuslice_last_week:value{{{row}}} {figure} {now - 600}\n"
    for name, figure in _DEVICES.items():
        for number in range(holders):
            for moment in range(now // _MOMENT * _MOMENT - _WEEK, now, _MOMENT):
                yield f"gpuslice_gpu_{name}{{{_device(number)}}} {figure} {moment - 60}\n"


def _running(holders: int, now: int) -> Iterator[str]:
    """Yield the samples of the slices held, from which the look learns which holders run."""
    for number in range(holders):
        for moment in _AFTER:
            yield f"gpuslice_container_slices{{{_labels(number)}}} 1 {now + moment}\n"


def _device(number: int) -> str:
    node, gpu = divmod(number, _ON_NODE)
    return f'cluster="west",node="gpu-{node:06d}",gpu="{gpu}",uuid="GPU-{number:08d}"'


def _labels(number: int) -> str:
    return f'{_device(number)},namespace="team-{number % 20}",pod="train-{number:08d}",container="main"'


def measured(holders: int) -> tuple[float, float, int]:
    """Return the seconds of CPU of Prometheus and of time of a look, and the workloads that it has."""
    now = int(time.time())
    with tempfile.TemporaryDirectory(prefix="advice-") as name:
        source = Path(name, "series")
        with source.open("w", encoding="utf-8") as file:
            file.writelines(_lines(holders, now))
            file.writelines(_running(holders, now))
            file.write("# EOF\n")
        create_blocks(source, Path(name, "data"), "36h")
        source.unlink()
        with prometheus(Path(name), {"scrape_configs": []}, free_port(), "--log.level=error") as server:
            url = f"http://127.0.0.1:{server.process.port}"
            found = asyncio.run(_look(url))  # The first reads the files.
            cpu, began = server.process.cpu(), time.monotonic()
            for _ in range(_LOOKS):
                found = asyncio.run(_look(url))
            cpu, wall = server.process.cpu() - cpu, time.monotonic() - began
            return cpu / _LOOKS, wall / _LOOKS, found


async def _look(url: str) -> int:
    client = Client(url, deadline=120.0)
    found = await read_advice(client)
    await client.close()
    running = sum(bool(use.node) for advice in found.advices for use in advice.window.uses)
    if found.problems or running != len(found.advices):
        raise RuntimeError(f"{running} of {len(found.advices)} run; problems: {found.problems}")
    return len(found.advices)


def main() -> None:
    """Measure and print the table."""
    rows = []
    for holders in map(int, sys.argv[1:] or ["1000", "2000"]):
        cpu, wall, found = measured(holders)
        if found != holders:
            raise RuntimeError(f"advice on {found} of {holders} holders")
        rows.append((f"{holders}", f"{cpu:.2f} s", f"{wall:.2f} s"))
    print(table(("holders", "CPU of Prometheus", "time"), rows))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
