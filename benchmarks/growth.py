"""How cost grows with the number of holders."""

import math
import statistics
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from benchmarks.effort import Effort
from benchmarks.memory import fake_memory
from benchmarks.running import Child, subject

_WARM, _TURNS = 2, 8
MEASURES = ("poll", "page", "plain_bytes", "resident")
"""Seconds of a processor for a poll and for a page, the bytes of that, and the bytes of memory."""


async def measure(_name: str, effort: Effort) -> dict[str, Any]:
    """Measure nodes of ever more holders; ``exponents`` are by what power cost grows with them.

    All run at once and have turns, of which the least is taken: the machine may be slower for a while, which
    would bend the curve where it falls on some of them.
    """
    turns = min(_TURNS, effort.turns)
    fakes = [await fake_memory(_name_of(holders), _WARM + 3 * turns) for holders in effort.holders]
    async with AsyncExitStack() as stack:
        programs = [await stack.enter_async_context(_program(holders)) for holders in effort.holders]
        nodes = [await _turn(program) for program in programs]
        for _ in range(turns - 1):
            for node, program in zip(nodes, programs, strict=True):
                again = await _turn(program)
                node |= {what: min(node[what], again[what]) for what in ("poll", "page")}
        for node, program, fake in zip(nodes, programs, fakes, strict=True):
            node["resident"] = (await program.ask("usage"))["resident"] - fake
    return {"nodes": nodes, "exponents": {what: exponent(nodes, what) for what in MEASURES}}


def _name_of(holders: int) -> str:
    return f"crowd-{holders}"


@asynccontextmanager
async def _program(holders: int) -> AsyncIterator[Child]:
    async with subject("by-hand", _name_of(holders)) as program:
        await program.ask("poll", times=_WARM)
        yield program


async def _turn(program: Child) -> dict[str, float]:
    polled = await program.ask("poll", times=2)
    rendered = await program.ask("render", times=1)
    sizes = {what: rendered[what] for what in ("holders", "plain_bytes", "gzip_bytes")}
    return sizes | {"poll": statistics.mean(polled["poll"]), "page": rendered["page"][0]}


def exponent(nodes: list[dict[str, float]], what: str) -> float:
    """Fit a power to what holders add to the cost of the smallest node, where they add most: its upper half.

    What a node costs without holders would make any growth look flat.
    """
    least = nodes[0]
    pairs = [
        (math.log(node["holders"] - least["holders"]), math.log(node[what] - least[what]))
        for node in nodes[len(nodes) // 2 :]
        if node[what] > least[what]
    ]
    if len(pairs) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*pairs, strict=True)).slope
