#!/usr/bin/env python3
"""What the history of a node costs: memory when it is full, and time to write and to read.

Run as ``python benchmarks/history.py [gpus] [holders]``. It fills the history (6 h, a poll every 5 s) of a
node with that many GPUs and that many holders on each, and prints the memory that it takes (as tracemalloc
counts it, and by how much the process has grown), the time of one poll, and that of reading. Times are those
of the processor, of the best of many rounds.
"""

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from resource import getpagesize
from time import process_time
from timeit import repeat
from typing import Any

from exporter.history import Wanted
from exporter.history.ring import History
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    GpuIdentity,
    GpuReading,
    GpuRow,
    Memory,
    NodeRow,
    Snapshot,
)
from exporter.web.timelines.figures import node_figures
from exporter.web.timelines.routes import history_json
from exporter.web.timelines.sparklines import Sparklines

_KEPT, _STEP, _START = 6 * 3600.0, 5.0, 1.7e9
_ROUNDS = 7
_GIB = 1 << 30
_EVERYTHING = Wanted()
_FIGURES = Wanted(levels=frozenset({"container", "gpu"}))


def main(gpus: int, holders: int) -> None:
    """Measure and print."""
    polls = int(_KEPT / _STEP)
    snapshots = [_snapshot(gpus, holders, turn) for turn in range(7)]
    before = _resident()
    history = _filled(snapshots, polls)
    gc.collect()
    grown = _resident() - before
    _say(f"{gpus} GPUs with {holders} holders each, {polls} polls")
    _say(f"{'growth of the process':<40}{grown / 1e6:8.1f} MB")
    _say(f"{'memory of the history, traced':<40}{_traced(snapshots) / 1e6:8.1f} MB")
    turn = iter(range(polls, polls + 1000))

    def record() -> None:
        at = next(turn)
        history.record(replace(snapshots[at % 7], timestamp=_START + at * _STEP, sequence=at))

    _time("recording a poll", record)
    _time("reading 1 h of all, 240 steps", lambda: history.tell(**_asked(3600.0, 240, _EVERYTHING)))
    _time("reading 6 h of all, 240 steps", lambda: history.tell(**_asked(_KEPT, 240, _EVERYTHING)))
    past = history.tell(**_asked(3600.0, 240, _EVERYTHING))
    _say(f"{'as JSON':<40}{len(history_json(past)) / 1e6:8.1f} MB")
    _time("writing that as JSON", lambda: history_json(past))
    past = history.tell(**_asked(3600.0, 120, _FIGURES))
    _time("reading 1 h for figures, 120 steps", lambda: history.tell(**_asked(3600.0, 120, _FIGURES)))
    _time("drawing them", lambda: node_figures(past, {}))
    drawn = json.dumps([each.figure for each in node_figures(past, {})], separators=(",", ":"))
    _say(f"{'as JSON':<40}{len(drawn) / 1e3:8.1f} kB")
    rows = snapshots[0].containers
    _time("drawing all sparklines anew", lambda: [Sparklines(history).of(row) for row in rows])
    kept = Sparklines(history)
    _time("drawing all sparklines again", lambda: [kept.of(row) for row in rows])


def _asked(span: float, points: int, wanted: Wanted) -> dict[str, Any]:
    return {"span": span, "end": None, "points": points, "wanted": wanted}


def _traced(snapshots: list[Snapshot]) -> int:
    """Count what a history takes. It takes it at its first polls; to count all of them takes minutes."""
    tracemalloc.start()
    history = _filled(snapshots, len(snapshots))
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del history
    return traced


def _filled(snapshots: list[Snapshot], polls: int) -> History:
    history = History(_KEPT, _STEP, wall=lambda: _START + polls * _STEP)
    for turn in range(polls):
        shown = replace(snapshots[turn % 7], timestamp=_START + turn * _STEP, sequence=turn + 1)
        history.record(shown)
    return history


def _snapshot(gpus: int, holders: int, turn: int) -> Snapshot:
    uuids = [f"GPU-5a1c1e1e-0000-0000-0000-{index:012d}" for index in range(gpus)]
    return Snapshot(
        timestamp=0.0,
        sequence=1,
        node=NodeRow(name="node", gpu_count=gpus, process_view=True),
        gpus=tuple(_gpu(uuid, index, turn) for index, uuid in enumerate(uuids)),
        containers=tuple(_container(uuid, number, turn) for uuid in uuids for number in range(holders)),
    )


def _gpu(uuid: str, index: int, turn: int) -> GpuRow:
    identity = GpuIdentity(index=index, uuid=uuid, model="NVIDIA A100", pci_bus_id="", vendor="nvidia")
    reading = GpuReading(
        identity=identity,
        up=True,
        memory=Memory(total=80 * _GIB, used=(40 + turn) * _GIB, free=(40 - turn) * _GIB),
        utilization_percent=50 + turn,
        power_milliwatts=250_000 + turn,
        temperature_celsius=50 + turn,
    )
    return GpuRow(identity=identity, reading=reading, unattributed_memory=_GIB, unattributed_utilization=0.01)


def _container(uuid: str, number: int, turn: int) -> ContainerRow:
    return ContainerRow(
        holder=ContainerRef(f"team-{number % 40}", f"notebook-{uuid[-2:]}-{number}-7f9c4d5b8-x2x9z", "main"),
        device=DeviceKey(uuid),
        slices=1,
        memory_entitled=_GIB,
        memory_used=_GIB // 2 + turn * 1000,
        compute_entitled=1 / 80,
        compute_used=turn / 700,
    )


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


def _time(what: str, work: Callable[[], object]) -> None:
    _say(f"{what:<40}{min(repeat(work, timer=process_time, number=1, repeat=_ROUNDS)) * 1e3:8.2f} ms")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    asked = [int(argument) for argument in sys.argv[1:]]
    main(*(asked + [8, 80][len(asked) :]))
