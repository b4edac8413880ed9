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

_HOURS, _HOUR, _GIB = 168, 3600, 1 << 30
_ON_NODE, _LOOKS = 8, 3
_HOURLY = {
    "held_seconds:increase1h": _HOUR,
    "memory_measured_seconds:increase1h": _HOUR,
    "compute_measured_seconds:increase1h": _HOUR,
    "peak_bytes:max1h": 6 * _GIB,
    "flat_memory:bool1h": 0,
    "used_gpu_seconds:increase1h": 0.3 * _HOUR,
    "held_bytes:max": 80 * _GIB,
    "held_gpus:max": 1,
}
_NEWEST = {"computing:p95_7d": 0.3, "computing_steps:count7d": 2016}


def _lines(holders: int, now: int) -> Iterator[str]:
    """Yield the samples of all records, in the middle of each hour; those of minutes at its end too."""
    first = now // _HOUR * _HOUR - _HOURS * _HOUR
    for record, value in (_HOURLY | _NEWEST).items():
        times = [now - 600] if record in _NEWEST else range(first + 60, now, _HOUR)
        for number in range(holders):
            labels = _labels(number)
            if record.startswith("held_seconds"):
                labels += ',model="NVIDIA H100 80GB HBM3",sharing="exclusive",isolation="none"'
            if record.startswith("computing:"):
                labels += ',value="gpus"'
            for at in times:
                # Records of a minute are asked at full hours.
                moment = at - 60 if record.endswith(":max") or "used" in record else at
                yield f"container:gpuslice_{record}{{{labels}}} {value} {moment}\n"
    for number in range(holders):
        yield f"gpuslice_gpu_memory_total_bytes{{{_device(number)}}} {80 * _GIB} {now - 60}\n"


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
            file.write("# EOF\n")
        create_blocks(source, Path(name, "data"))
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
    if found.problems:
        raise RuntimeError(f"problems: {found.problems}")
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
