"""Memory before the first poll: the interpreter, each library, and the program itself."""

import statistics
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.markdown import mebibytes
from benchmarks.markdown import table as markdown_table
from benchmarks.processes import Memory, started

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


def measure(_node: str, *, quick: bool) -> dict[str, Any]:
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


def table(figures: Mapping[str, Any]) -> str:
    """Return the table of stages."""
    stages = {**figures["stages"], "all": figures}
    rows = [(name, mebibytes("resident")(stage), mebibytes("files")(stage)) for name, stage in stages.items()]
    return markdown_table(("", "resident", "of that files"), rows)
