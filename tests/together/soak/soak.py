"""The soak: a day of polls in minutes, with pods that come and go, and the usual faults.

The exporter is a process of its own, ``tests.together.soak.exporter``. The kubelet and the files of the node
are here, and so are the clients that scrape it and the judge of its pages.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout

from exporter.demo.node import FakeNode
from tests.core.commands.program import environment
from tests.together.soak.day import PERIOD, troubles
from tests.together.soak.judge import Sample
from tests.together.soak.laws import Books, check_page
from tests.together.soak.plan import Plan
from tests.together.soak.scenario import beginning
from tests.together.soak.visitors import Visitors

ROOT = Path(__file__).parents[3]
EXPORTER = (sys.executable, "-m", "tests.together.soak.exporter")
_SAMPLE_EVERY, _LAWS_EVERY = 5, 50
# A fault shows on the page for some polls after it.
_SETTLED = 13
_REPORT_SECONDS = 60.0
_LINE_BYTES = 1 << 20
_PATIENCE = 120.0


@dataclass(slots=True, kw_only=True)
class Run:
    """The result. ``looked`` counts pages whose laws were checked, ``broken`` are laws that did not hold."""

    plan: Plan
    books: Books
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    cpu: float = 0.0
    polls: int = 0
    requests: int = 0
    events: int = 0
    looked: int = 0
    samples: list[Sample] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def pods(self) -> int:
        """How many pods have come."""
        return self.plan.day.come(self.polls)


class Exporter:
    """The process that is measured, and what can be asked of it."""

    def __init__(self, process: Process, url: str) -> None:
        self.url = url
        self._process = process

    async def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        """Have it do something, and wait for its answer; raises EOFError when it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        line = await _line(self._process)
        if not line:
            raise EOFError(f"the exporter has ended with {await self._process.wait()}")
        return json.loads(line)


async def soak(plan: Plan, report: Callable[[str], None], program: Sequence[str] = EXPORTER) -> Run:
    """Run the day; a line a minute goes to ``report``. ``program`` is measured."""
    run = Run(plan=plan, books=Books(plan.day))
    with tempfile.TemporaryDirectory(prefix="gpuslice-soak-") as root:
        async with (
            FakeNode(plan.day.scenario(0), root=Path(root), clock=lambda: 0.0) as node,
            _exporter(plan, node, program) as exporter,
            ClientSession(auto_decompress=False, timeout=ClientTimeout(total=_PATIENCE)) as client,
        ):
            visitors = Visitors(client, exporter.url, plan.history)
            await _run_day(run, node, exporter, visitors, report)
    return run


async def _run_day(
    run: Run, node: FakeNode, exporter: Exporter, visitors: Visitors, report: Callable[[str], None]
) -> None:
    devices, reported = cycle(gpu.uuid for gpu in beginning().gpus), run.began
    await exporter.ask({"poll": 0})
    visitors.follow()
    try:
        while run.polls < run.plan.polls:
            await _turn(run, node, exporter, visitors, islice(devices, 1))
            if time.monotonic() - reported >= _REPORT_SECONDS:
                reported += _REPORT_SECONDS
                report(_progress(run))
    finally:
        run.seconds = time.monotonic() - run.began
        run.requests, run.events = visitors.requests, visitors.events
        await visitors.leave()
    run.books.end()
    run.broken += [f"{count} times {what}" for what, count in visitors.refused.items()]


async def _turn(
    run: Run, node: FakeNode, exporter: Exporter, visitors: Visitors, devices: Iterator[str]
) -> None:
    """Run one poll, and let the visitors look."""
    poll = run.polls
    node.scenario = run.plan.day.scenario(poll)
    await node.step(float(poll * PERIOD))
    run.cpu = (await exporter.ask({"poll": poll}))["cpu"]
    text = await visitors.scrape()
    run.books.enter(poll, text)
    # One that is unplugged has no page.
    await visitors.look(poll, (uuid for uuid in devices if f'uuid="{uuid}"' in text))
    if poll % _LAWS_EVERY == 0 and not troubles(poll - _SETTLED, poll + 1):
        run.looked += 1
        run.broken += [f"poll {poll}: {law}" for law in check_page(node, text)]
    run.polls = poll + 1
    if poll % _SAMPLE_EVERY == 0:
        run.samples.append(Sample(poll=poll, pods=run.pods, **await exporter.ask({"probe": True})))


def _progress(run: Run) -> str:
    last, minutes = run.samples[-1], (time.monotonic() - run.began) / 60
    wrong = len(run.broken) + len(run.books.objections)
    return (
        f"{minutes:5.1f} min  {run.polls:6} polls  {run.pods:7} pods  {last.resident / 1e6:6.1f} MB  "
        f"{last.heap / 1e6:5.1f} MB heap  {last.blocks:7} objects  {last.descriptors} fds  "
        f"{last.threads} threads  {last.tasks} tasks  {wrong} objections"
    )


@asynccontextmanager
async def _exporter(plan: Plan, node: FakeNode, program: Sequence[str]) -> AsyncIterator[Exporter]:
    paths = {f"GPUSLICE_{name.upper()}": str(path) for name, path in asdict(node.paths).items()}
    variables = paths | {
        "NODE_NAME": node.name,
        "GPUSLICE_LISTEN": "127.0.0.1:0",
        "GPUSLICE_KUBERNETES_API": "off",
        "GPUSLICE_HISTORY_RETENTION": f"{plan.history}s",
    }
    process = await asyncio.create_subprocess_exec(
        *program,
        str(plan.day.polls),
        str(plan.day.pods),
        stdin=PIPE,
        stdout=PIPE,
        cwd=ROOT,
        env=environment(**variables),
        limit=_LINE_BYTES,
    )
    try:
        yield Exporter(process, (await _line(process)).decode().strip())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _line(process: Process) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(_PATIENCE):
        return await process.stdout.readline()
