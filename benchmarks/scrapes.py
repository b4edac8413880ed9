"""Latency of a scrape, next to a bare handler of aiohttp that serves the same bytes."""

import base64
import json
import statistics
from typing import Any

from benchmarks.markdown import Results
from benchmarks.markdown import table as markdown_table
from benchmarks.nodes import NODES
from benchmarks.processes import Process, free_port, module, started, subject
from benchmarks.scraper import scrape
from benchmarks.startup import GPUS_SHOWN

_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
# The server adds these to each answer by itself.
_OWN_HEADERS = frozenset({"Date", "Server", "Content-Length"})


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
