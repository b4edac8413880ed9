"""Scrapes: the time to the first one that shows GPUs, and the latency next to a bare handler of aiohttp.

The bare handler serves the same bytes. Scrapers keep their connections open and scrape again as soon as they
are answered.
"""

import asyncio
import base64
import json
import re
import statistics
import time
from functools import partial
from typing import Any

from benchmarks.markdown import Results, per_node, seconds
from benchmarks.markdown import table as markdown_table
from benchmarks.nodes import NODES
from benchmarks.processes import Process, free_port, module, started, subject

GPUS_SHOWN = "\ngpuslice_gpu_info{"
"""A page that contains this shows GPUs."""
_REQUEST = (
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Prometheus\r\n"
    b"Accept: text/plain;version=0.0.4\r\nAccept-Encoding: gzip\r\n\r\n"
)
_HEAD_END = b"\r\n\r\n"
# It matches once the whole head has come.
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)(?=.*?\r\n\r\n)", re.IGNORECASE | re.DOTALL)
_GOOD = b"HTTP/1.1 200 "
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
# The server adds these to each answer by itself.
_OWN_HEADERS = frozenset({"Date", "Server", "Content-Length"})


def measure_start(node: str, *, quick: bool) -> dict[str, Any]:
    """Start the program several times; return seconds, less what making the fake driver took.

    ``wall`` and ``cpu`` are the least of all starts, ``wall_median`` is the median.
    """
    walls, cpus = [], []
    for _ in range(1 if quick else 5):
        with subject("live", node) as program:
            wall = program.wait_for(GPUS_SHOWN)
            fake = program.ask("usage")
            walls.append(wall - fake["fake_wall"])
            cpus.append(program.cpu() - fake["fake_cpu"])
    return {"wall": min(walls), "wall_median": sorted(walls)[len(walls) // 2], "cpu": min(cpus)}


def start_table(results: Results) -> str:
    """Return the table of starts."""
    columns = {"best": seconds("wall"), "middle": seconds("wall_median"), "processor": seconds("cpu")}
    return per_node(results, "startup", columns)


def measure(node: str, *, quick: bool) -> dict[str, Any]:
    """Measure scrapes of a node that polls every 5 s, for each number of scrapers; latencies are seconds.

    Program and bare handler have turns. ``ratio`` is the ratio of their median latencies, ``cpu_ratio`` that
    of their CPU time for a scrape: the median of all turns.
    """
    scrapers, turns, seconds = ((1, 3), 1, 0.1) if quick else ((1, 10, 100), 4, 1.0)
    with subject("live", node) as program:
        program.wait_for(GPUS_SHOWN)
        headers, body = program.get("metrics", _HEADERS)
        headers = {name: value for name, value in headers.items() if name not in _OWN_HEADERS}
        port = free_port()
        with started(module("bare_server", str(port)), port=port) as bare:
            bare.send(json.dumps({"headers": headers, "body": base64.b64encode(body).decode()}))
            bare.answer()
            return {
                str(count): _summary(
                    [[_turn(server, count, seconds) for server in (program, bare)] for _ in range(turns)]
                )
                for count in scrapers
            }


def _turn(server: Process, count: int, seconds: float) -> tuple[list[float], float]:
    """Scrape for a while; return the latencies, and the CPU seconds of the server for a scrape."""
    before = server.cpu()
    latencies = scrape(server.port, count, seconds)
    return latencies, (server.cpu() - before) / len(latencies)


def _summary(turns: list[list[tuple[list[float], float]]]) -> dict[str, float]:
    summary: dict[str, float] = {}
    for place, prefix in enumerate(("", "bare_")):
        latencies = sorted(latency for turn in turns for latency in turn[place][0])
        summary[f"{prefix}p50"] = latencies[len(latencies) // 2]
        summary[f"{prefix}p99"] = latencies[len(latencies) * 99 // 100]
        summary[f"{prefix}cpu"] = statistics.median(turn[place][1] for turn in turns)
    ratios = [statistics.median(ours[0]) / statistics.median(bare[0]) for ours, bare in turns]
    return summary | {
        "ratio": statistics.median(ratios),
        "cpu_ratio": summary["cpu"] / summary["bare_cpu"],
    }


def table(results: Results) -> str:
    """Return the table of scrapes."""
    rows = [
        (
            title,
            count,
            f"{figures['ratio']:.2f} x",
            f"{figures['cpu_ratio']:.2f} x",
            *(
                f"{figures[f'{of}p50'] * 1e3:.2f} / {figures[f'{of}p99'] * 1e3:.1f} ms"
                for of in ("", "bare_")
            ),
        )
        for node, (title, _) in NODES.items()
        for count, figures in results.get(f"scrapes-{node}", {}).items()
    ]
    head = ("node", "at a time", "p50 to bare", "processor to bare", "p50 / p99", "bare p50 / p99")
    return markdown_table(head, rows)


class _Scraper(asyncio.Protocol):
    """Scrapes until the time is ``until``; then ``done`` has the latencies in seconds, or the error."""

    def __init__(self, until: float, done: "asyncio.Future[list[float]]") -> None:
        self._until = until
        self._done = done
        self._latencies: list[float] = []
        self._asked = 0.0
        self._received = bytearray()
        self._size = 0  # bytes of the answer with its head, 0 until that has come
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - a connection can be written to
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._size and (length := _LENGTH.search(self._received)):
            self._size = self._received.find(_HEAD_END) + len(_HEAD_END) + int(length[1])
        if not self._size or len(self._received) < self._size:
            return
        now = time.perf_counter()
        self._latencies.append(now - self._asked)
        if not self._received.startswith(_GOOD):
            self._end(RuntimeError(f"a scrape is answered by {bytes(self._received[:40])!r}"))
        elif now < self._until:
            self._ask()
        else:
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or RuntimeError("the server has closed the connection of a scraper"))

    def _ask(self) -> None:
        self._received.clear()
        self._size = 0
        self._asked = time.perf_counter()
        self._transport.write(_REQUEST)

    def _end(self, error: Exception | None) -> None:
        self._transport.close()
        if self._done.done():
            return
        if error is None:
            self._done.set_result(self._latencies)
        else:
            self._done.set_exception(error)


def scrape(port: int, count: int, seconds: float) -> list[float]:
    """Have ``count`` scrapers scrape a port for ``seconds``; return the latencies of all scrapes in seconds.

    Raise RuntimeError if a scrape is not answered with 200.
    """
    return asyncio.run(_scraped(port, count, seconds))


async def _scraped(port: int, count: int, seconds: float) -> list[float]:
    loop, until = asyncio.get_running_loop(), time.perf_counter() + seconds
    ends: list[asyncio.Future[list[float]]] = [loop.create_future() for _ in range(count)]
    for end in ends:
        await loop.create_connection(partial(_Scraper, until, end), "127.0.0.1", port)
    return [latency for latencies in await asyncio.gather(*ends) for latency in latencies]
