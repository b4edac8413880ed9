#!/usr/bin/env python3
"""What open pages cost the exporter: processor time with many of them, less that without any.

Run as ``python benchmarks/live.py [streams] [seconds]``. It starts the real program on a fake node, the
showcase and one of 16 GPUs with 48 holders each, which polls every 5 s, and opens so many streams from this
process: all on the page of the node, then spread over the pages of the node and of its GPUs. It prints
percents of one core, and what each stream brings. The fake node is part of the program, and its cost is in
both figures that are compared.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from urllib.request import Request, urlopen

GPUS, HOLDERS = 16, 48
_GPU = {
    "model": "NVIDIA L40S",
    "architecture": 8,
    "memory_total": "46068 MiB",
    "power_idle_mw": 32000,
    "power_max_mw": 350000,
    "temperature_base": 34,
    "clocks": {"sm_idle": 210, "sm_max": 2520, "memory": 9001, "video_max": 1965},
}
_TICK = os.sysconf("SC_CLK_TCK")
_SETTLE_SECONDS = 6


def main(streams: int, seconds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.json"
        large.write_text(json.dumps(_large()), "utf-8")
        for name, scenario in (
            ("showcase", "showcase"),
            (f"{GPUS} GPUs, {HOLDERS} holders each", str(large)),
        ):
            with _program(scenario) as (pid, url):
                _measure(name, pid, url, streams, seconds)


def _measure(name: str, pid: int, url: str, streams: int, seconds: int) -> None:
    time.sleep(_SETTLE_SECONDS)
    page = urlopen(Request(url, headers={"Accept": "text/html"})).read().decode()  # noqa: S310 - ours
    gpus = dict.fromkeys(re.findall(r'href="(gpu/[^"?#]+)', page))
    sys.stdout.write(f"{name}: {len(page.encode()):,} bytes of HTML, {len(gpus)} pages of GPUs\n")
    alone = _share(pid, seconds)
    sys.stdout.write(f"  {'no page is open':<42}{alone:6.2f} % of a core\n")
    for what, places in ((f"{streams} on one page", [""]), (f"{streams} on all pages", ["", *gpus])):
        share, taken = asyncio.run(_with_streams(pid, url, islice(cycle(places), streams), seconds))
        brought = taken / streams / seconds
        more = share - alone
        sys.stdout.write(f"  {what:<42}{share:6.2f} %, {more:+.2f} %, {brought:,.0f} bytes/s each\n")


async def _with_streams(pid: int, url: str, places: Iterator[str], seconds: int) -> tuple[float, int]:
    """Follow these places; return the share of a core that the program took, and what came, in bytes."""
    taken = [0]
    followers = [asyncio.create_task(_follow(url, place, taken)) for place in places]
    await asyncio.sleep(_SETTLE_SECONDS)
    taken[0] = 0
    share = await asyncio.to_thread(_share, pid, seconds)
    brought = taken[0]
    if broken := [task for task in followers if task.done()]:
        sys.exit(f"{len(broken)} of {len(followers)} streams have ended: {broken[0]}")
    for task in followers:
        task.cancel()
    await asyncio.gather(*followers, return_exceptions=True)
    return share, brought


async def _follow(url: str, place: str, taken: list[int]) -> None:
    host, port = url.removeprefix("http://").strip("/").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    asked = f"GET /live/{place} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip\r\n\r\n"
    writer.write(asked.encode())
    with contextlib.closing(writer):
        while chunk := await reader.read(1 << 16):
            taken[0] += len(chunk)


def _share(pid: int, seconds: int) -> float:
    """Return the processor time that a process takes in so many seconds, in percent of one core."""
    before, began = _cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (_cpu_seconds(pid) - before) / (time.monotonic() - began)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


@contextmanager
def _program(scenario: str) -> Iterator[tuple[int, str]]:
    command = ("demo", "--scenario", scenario, "--listen", "127.0.0.1:0", "--poll-interval", "5")
    with subprocess.Popen(  # noqa: S603 - this project's own program
        [sys.executable, "-m", "exporter", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield process.pid, line.split()[-1]
        finally:
            process.terminate()


def _large() -> dict[str, object]:
    """Describe a node with many holders, of which a third is at work."""
    return {
        "name": "large",
        "description": "Many holders",
        "node": {"name": "gpu-large", "driver_version": "550.90.07"},
        "gpus": [{"count": GPUS, **_GPU}],
        "offers": [{"resource": "nvidia.com/gpu", "of": "gpus", "replicas": HOLDERS}],
        "pods": [_pod(gpu, holder) for gpu in range(GPUS) for holder in range(HOLDERS)],
    }


def _pod(gpu: int, holder: int) -> dict[str, object]:
    load: dict[str, object] = {"shape": "off"}
    if holder % 3 == 0:
        load = {"shape": "sine", "low": 0, "high": 90 // HOLDERS + 3, "period": 60, "phase": holder}
    process: dict[str, object] = {"memory": f"{300 + 10 * holder} MiB", "load": load}
    devices = {"nvidia.com/gpu": [f"{{gpu:{gpu}}}::{holder}"]}
    container = {"name": "main", "devices": devices, "processes": [process]}
    return {"namespace": f"team-{holder % 7}", "name": f"worker-{gpu}-{holder}", "containers": [container]}


def _number(arguments: Sequence[str], position: int, default: int) -> int:
    return int(arguments[position]) if len(arguments) > position else default


if __name__ == "__main__":
    main(_number(sys.argv, 1, 200), _number(sys.argv, 2, 60))
