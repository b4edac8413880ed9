"""What is in memory before the first poll: the interpreter, each library, and the program itself."""

import asyncio
import json
import statistics
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from typing import Any

from benchmarks.effort import Effort
from benchmarks.running import ROOT

STAGES: Mapping[str, tuple[str, ...]] = {
    "Python": (),
    "asyncio, with TLS": ("asyncio",),
    "gRPC and protobuf": ("grpc.aio", "google.protobuf.message_factory"),
    "aiohttp": ("aiohttp.web",),
    "pynvml": ("pynvml",),
    "prometheus_client": ("prometheus_client",),
    "the exporter": ("exporter.cli", "exporter.commands.serve"),
}
"""What is imported one after the other; each has what those before it have not brought along."""
_SCRIPT = """
import importlib, json, sys
from pathlib import Path

def taken():
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    sizes = {words[0]: int(words[1]) << 10 for words in lines if words[0] in ("VmRSS:", "RssFile:")}
    return sizes["VmRSS:"], sizes["RssFile:"]

found = []
for modules in json.loads(sys.argv[1]):
    for module in modules:
        importlib.import_module(module)
    found.append(taken())
print(json.dumps(found))
"""


async def measure(_name: str, effort: Effort) -> dict[str, Any]:
    """Measure what each stage adds to the resident memory, in bytes; ``files`` is what of it are files.

    What is of files is there once for all processes that use them, and the system may drop it.
    """
    runs = [await _run() for _ in range(effort.starts)]
    found: dict[str, dict[str, float]] = {}
    before = (0.0, 0.0)
    for place, name in enumerate(STAGES):
        resident, files = (statistics.median(run[place][what] for run in runs) for what in (0, 1))
        found[name] = {"resident": resident - before[0], "files": files - before[1]}
        before = resident, files
    return {"stages": found, "resident": before[0], "files": before[1]}


async def _run() -> list[tuple[int, int]]:
    stages = json.dumps(list(STAGES.values()))
    command = (sys.executable, "-c", _SCRIPT, stages)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=ROOT)
    told, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"importing has ended with {process.returncode}")
    taken: list[tuple[int, int]] = json.loads(told)
    return taken
