"""Starting the processes that are measured, and asking them."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.nodes import load
from benchmarks.ports import free_port
from exporter.demo.node import FakeNode

ROOT = Path(__file__).parents[1]
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Child:
    """A process that answers lines of JSON; ``url`` is where it serves HTTP, ending in a slash."""

    process: Process
    url: str = ""

    async def ask(self, do: str, **details: Any) -> dict[str, Any]:
        """Ask for something and return the answer; RuntimeError where the process has ended instead."""
        assert self.process.stdin is not None  # noqa: S101 - it is a pipe
        self.process.stdin.write(json.dumps({"do": do} | details).encode() + b"\n")
        return await self.told()

    async def told(self) -> dict[str, Any]:
        """Wait for a line that comes by itself, as ``ask`` does for an answer."""
        assert self.process.stdout is not None  # noqa: S101 - as above
        line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that is measured has ended with {await self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def child(*words: str, variables: dict[str, str] | None = None, url: str = "") -> AsyncIterator[Child]:
    """Run a module of this package, and end it afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, stdin=PIPE, stdout=PIPE, env=_clean() | (variables or {}), cwd=ROOT
    )
    try:
        yield Child(process, url)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


@asynccontextmanager
async def surroundings(name: str) -> AsyncIterator[tuple[dict[str, str], str]]:
    """Start what is around the program on a node: its kubelet and its files.

    Gives the environment that leads there, and the URL at which the program is to serve then.
    """
    async with FakeNode(load(name), clock=lambda: 0.0) as node:
        paths = {f"GPUSLICE_{field.upper()}": str(path) for field, path in asdict(node.paths).items()}
        address = f"127.0.0.1:{free_port()}"
        here = {"NODE_NAME": node.name, "GPUSLICE_LISTEN": address, "GPUSLICE_LOG_LEVEL": "warning"}
        yield paths | here | {"GPUSLICE_KUBERNETES_API": "off"}, f"http://{address}/"


@asynccontextmanager
async def subject(how: str, name: str) -> AsyncIterator[Child]:
    """Run the program on a node, ``live`` or ``by-hand``; in the latter case it has polled once already."""
    async with (
        surroundings(name) as (variables, url),
        child("benchmarks.subject", how, name, variables=variables, url=url) as program,
    ):
        if how == "by-hand":
            await program.told()
        yield program


def _clean() -> dict[str, str]:
    """Return the environment of this process without what would set options of the program."""
    ours = ("GPUSLICE_", "NODE_NAME", "POD_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
