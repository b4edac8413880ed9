"""Resident memory: before the first poll by library, after an hour of polls, and with pages open."""

import math
import statistics
import sys
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from threading import Thread
from typing import Any

from benchmarks.bench import POLL_SECONDS
from benchmarks.markdown import MIB, Results, mebibytes, per_node
from benchmarks.markdown import table as markdown_table
from benchmarks.processes import Memory, Process, module, started, subject

STAGES: Mapping[str, str] = {
    "Python": "sys",
    "asyncio, with TLS": "asyncio",
    "gRPC and protobuf": "grpc.aio google.protobuf.message_factory",
    "aiohttp": "aiohttp.web",
    "pynvml": "pynvml",
    "prometheus_client": "prometheus_client",
    "the exporter": "exporter.cli exporter.commands.serve",
}
"""The modules that are imported, one stage after the other."""
_IMPORTER = (
    "import sys\nfor line in sys.stdin:\n for name in line.split(): __import__(name)\n print(0, flush=True)"
)
_POLLS_A_SCRAPE = 3
_READINGS = 24
# The fake driver keeps the samples of no more polls, as a real one does.
_MOST_KEPT = 100
_PAGES = 5
# A page is drawn after each poll, in parallel to the polls: on a real node there are 5 s for it.
_DRAW_SECONDS = 0.25
_SCRAPE_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
_PATHS = "", "figures/node?range=1h", "api/v1/snapshot"


def measure(node: str, *, quick: bool) -> dict[str, Any]:
    """Measure the memory on a node, in bytes, without that of the fake driver, which is ``fake``.

    It goes up and down by a fifth over some hundred polls: ``closed`` is the median of the second half of the
    readings without a page, ``slope`` its growth in an hour, and ``slope_error`` the standard error of that.
    ``opened`` is the median of the second half with several pages open, ``peak`` the most at any time.
    """
    hour, opened_polls = (6, 2) if quick else (720, 120)
    fake = fake_memory(node, min(hour, _MOST_KEPT))
    every = max(_POLLS_A_SCRAPE, hour // _READINGS)
    closed, opened = [], []
    with subject("by-hand", node) as program:
        for done in range(0, hour, _POLLS_A_SCRAPE):
            program.ask("poll", times=_POLLS_A_SCRAPE)
            program.get("metrics", _SCRAPE_HEADERS)
            if (done + _POLLS_A_SCRAPE) % every < _POLLS_A_SCRAPE:
                closed.append((done, program.memory().resident))
        readers = [Thread(target=_keep_open, args=(program,), daemon=True) for _ in range(_PAGES)]
        for reader in readers:
            reader.start()
        for _ in range(opened_polls):
            program.ask("poll", times=1)
            time.sleep(_DRAW_SECONDS)
            opened.append(program.memory().resident)
        if not all(reader.is_alive() for reader in readers):
            raise RuntimeError("a page that was kept open has ended")
        peak = program.memory().peak
    second_half = closed[len(closed) // 2 :]
    slope, error = _slope(second_half)
    return {
        "fake": fake,
        "closed": statistics.median(resident for _, resident in second_half) - fake,
        "slope": slope,
        "slope_error": error,
        "opened": statistics.median(opened[len(opened) // 2 :]) - fake,
        "peak": peak - fake,
    }


def fake_memory(node: str, polls: int) -> int:
    """Return the bytes of the fake driver after a number of polls, as a process of its own traces them."""
    with started(module("subject", str(polls), node)) as fake:
        traced: int = fake.answer()
        return traced


def _keep_open(program: Process) -> None:
    """Open the page of the node with its timelines and its snapshot, and follow it."""
    for path in _PATHS:
        program.get(path, {"Accept": "text/html"})
    connection = HTTPConnection("127.0.0.1", program.port)
    connection.request("GET", "/live/", headers={"Accept": "text/event-stream"})
    events = connection.getresponse()
    while events.read1():
        pass


def _slope(readings: list[tuple[int, int]]) -> tuple[float, float]:
    """Return the growth of memory in bytes an hour, and its standard error; zeros for fewer than 3 readings.

    ``readings`` are bytes by the number of polls before.
    """
    if len(readings) < 3:
        return 0.0, 0.0
    polls = [done for done, _ in readings]
    line = statistics.linear_regression(polls, [resident for _, resident in readings])
    squares = sum((resident - line.intercept - line.slope * done) ** 2 for done, resident in readings)
    mean = statistics.fmean(polls)
    error = math.sqrt(squares / (len(readings) - 2) / sum((done - mean) ** 2 for done in polls))
    polls_an_hour = 3600 / POLL_SECONDS
    return line.slope * polls_an_hour, error * polls_an_hour


def table(results: Results) -> str:
    """Return the table of memory."""
    columns = {
        "after an hour": mebibytes("closed"),
        "grown in an hour": lambda figures: (
            f"{figures['slope'] / MIB:.1f} ± {2 * figures['slope_error'] / MIB:.1f} MiB"
        ),
        "with five pages open": mebibytes("opened"),
        "most": mebibytes("peak"),
        "left out: the fake driver": mebibytes("fake"),
    }
    return per_node(results, "memory", columns)


def measure_libraries(_node: str, *, quick: bool) -> dict[str, Any]:
    """Measure the resident memory that each stage adds, in bytes; ``files`` is its part that is of files."""
    runs = [_imported() for _ in range(1 if quick else 5)]
    stages: dict[str, dict[str, float]] = {}
    before = {"resident": 0.0, "files": 0.0}
    for stage, readings in zip(STAGES, zip(*runs, strict=True), strict=True):
        now = {key: statistics.median(getattr(memory, key) for memory in readings) for key in before}
        stages[stage] = {key: now[key] - before[key] for key in now}
        before = now
    return {"stages": stages, **before}


def _imported() -> list[Memory]:
    readings = []
    with started([sys.executable, "-c", _IMPORTER]) as process:
        for modules in STAGES.values():
            process.send(modules)
            process.answer()
            readings.append(process.memory())
    return readings


def library_table(figures: Mapping[str, Any]) -> str:
    """Return the table of stages."""
    stages = {**figures["stages"], "all": figures}
    rows = [(name, mebibytes("resident")(stage), mebibytes("files")(stage)) for name, stage in stages.items()]
    return markdown_table(("", "resident", "of that files"), rows)
