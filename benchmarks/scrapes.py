"""How soon a scrape is answered, beside a bare handler of aiohttp that hands out the same bytes."""

import base64
import json
import statistics
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from benchmarks.effort import Effort
from benchmarks.running import Child, child, free_port, subject
from benchmarks.scraper import scrape
from benchmarks.startup import first_good

_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"}
# What the server adds to each answer by itself.
_OWN = frozenset({"Date", "Server", "Content-Length"})


async def measure(name: str, effort: Effort) -> dict[str, Any]:
    """Measure the scrapes of a node that polls every 5 s; latencies are seconds, for each number of scrapers.

    Program and bare handler have turns. ``ratio`` is that of the middle latencies, ``cpu_ratio`` that of the
    processor time of the server for a scrape: the middle of all turns.
    """
    found: dict[str, Any] = {}
    async with subject("live", name) as program:
        headers, body = await _answer(program)
        port = free_port()
        async with child("benchmarks.bare_server", str(port), url=f"http://127.0.0.1:{port}/") as bare:
            assert bare.process.stdin is not None  # noqa: S101 - it is a pipe
            answer = {"headers": headers, "body": base64.b64encode(body).decode()}
            bare.process.stdin.write(json.dumps(answer).encode() + b"\n")
            await bare.told()
            for count in effort.scrapers:
                turns = [await _turn(program, bare, count, effort) for _ in range(effort.scrape_turns)]
                found[str(count)] = _summed_up(turns)
    return found


async def _turn(program: Child, bare: Child, count: int, effort: Effort) -> dict[str, Any]:
    """Scrape both for a while: latencies by server, and seconds of a processor for a scrape."""
    turn: dict[str, Any] = {}
    for server, one in (("program", program), ("bare", bare)):
        before = _cpu(one)
        latencies = await scrape(one.url, count, effort.scrape_seconds)
        turn[server] = latencies
        turn[f"{server}_cpu"] = (_cpu(one) - before) / len(latencies)
    return turn


def _summed_up(turns: list[dict[str, Any]]) -> dict[str, float]:
    ours = sorted(latency for turn in turns for latency in turn["program"])
    bare = sorted(latency for turn in turns for latency in turn["bare"])
    ratios = [statistics.median(turn["program"]) / statistics.median(turn["bare"]) for turn in turns]
    cpu = statistics.median(turn["program_cpu"] for turn in turns)
    bare_cpu = statistics.median(turn["bare_cpu"] for turn in turns)
    return {
        "p50": ours[len(ours) // 2],
        "p99": ours[len(ours) * 99 // 100],
        "bare_p50": bare[len(bare) // 2],
        "bare_p99": bare[len(bare) * 99 // 100],
        "scrapes": len(ours),
        "ratio": statistics.median(ratios),
        "cpu": cpu,
        "bare_cpu": bare_cpu,
        "cpu_ratio": cpu / bare_cpu,
    }


async def _answer(program: Child) -> tuple[dict[str, str], bytes]:
    """Wait for a page with GPUs, and give its headers and its bytes as they are sent."""
    async with ClientSession(auto_decompress=False) as client:
        await first_good(client, program)
        async with client.get(f"{program.url}metrics", headers=_HEADERS) as answer:
            headers = {name: value for name, value in answer.headers.items() if name not in _OWN}
            return headers, await answer.read()


def _cpu(one: Child) -> float:
    """Return the seconds of a processor that the threads of a process have taken, to the nanosecond."""
    tasks = Path(f"/proc/{one.process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text("ascii").split()[0]) for task in tasks) / 1e9
