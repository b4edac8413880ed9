"""How long the program takes from the start of its process to the first scrape that shows GPUs."""

import asyncio
import time
from typing import Any

from aiohttp import ClientSession

from benchmarks.effort import Effort
from benchmarks.running import Child, child, surroundings

# A sample that only a page with GPUs has.
GOOD = b"\ngpuslice_gpu_info{"
_PLAIN = {"Accept-Encoding": "identity"}
_LOOK_SECONDS = 0.01


async def measure(name: str, effort: Effort) -> dict[str, Any]:
    """Start the program several times; times are in seconds, less what the faked driver took to make.

    The best of all starts is told, and the middle one of ``wall``.
    """
    starts = [await _start(name) for _ in range(effort.starts)]
    walls = sorted(wall for wall, _ in starts)
    return {"wall": walls[0], "wall_median": walls[len(walls) // 2], "cpu": min(cpu for _, cpu in starts)}


async def _start(name: str) -> tuple[float, float]:
    async with surroundings(name) as (variables, url), ClientSession() as client:
        began = time.perf_counter()
        async with child("benchmarks.subject", "live", name, variables=variables, url=url) as program:
            await first_good(client, program)
            wall = time.perf_counter() - began
            taken = await program.ask("usage")
    return wall - taken["faked_wall"], taken["cpu"] - taken["faked_cpu"]


async def first_good(client: ClientSession, program: Child) -> None:
    """Scrape until GPUs are on the page; RuntimeError where the program has ended."""
    while program.process.returncode is None:
        try:
            async with client.get(f"{program.url}metrics", headers=_PLAIN) as answer:
                if GOOD in await answer.read():
                    return
        except OSError:
            pass
        await asyncio.sleep(_LOOK_SECONDS)
    raise RuntimeError(f"the program has ended with {program.process.returncode}")
