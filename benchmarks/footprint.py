#!/usr/bin/env python3
"""What the exporter takes of a node: memory, and time of a processor at the default poll of 5 s.

Run as ``python benchmarks/footprint.py [seconds]``: nodes of several sizes, quiet with a scrape each 15 s,
and busy: with the Kubernetes client too, and five pages that stay open, each of whose readers has asked for
all that is remembered. The exporter is a process of its own, which has the faked driver in it: the time that
this takes is left out, its few megabytes are not. History grows as values change. Files, kubelet and API
server of the node are outside.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import ClientSession, ClientTimeout, web

from exporter.commands.node_and_output import Node
from exporter.commands.serve import serve
from exporter.config.settings import load_settings
from exporter.demo.machine import Machine
from exporter.demo.node import FakeNode
from exporter.demo.nvml.library import FakeNvml
from exporter.demo.present import present
from exporter.demo.scenario.catalog import Scenario, load, parse

_SECONDS, _WARM = 60.0, 12.0
_POLL, _SCRAPE, _PAGES = 5.0, 15.0, 5
_MIB = 1 << 20
_HTML, _METRICS = {"Accept": "text/html"}, {"Accept": "application/openmetrics-text; version=1.0.0"}
_BOARD = {
    "model": "NVIDIA H100 80GB HBM3",
    "architecture": 9,
    "memory_total": "80 GiB",
    "memory_reserved": "600 MiB",
    "overhead": "300 MiB",
    "power_idle_mw": 70_000,
    "power_max_mw": 700_000,
    "temperature_base": 30,
    "clocks": {"sm_idle": 345, "sm_max": 1980, "memory": 2619, "video_max": 1545},
}


class _Taken(NamedTuple):
    """Time of a processor in seconds, and memory in bytes: now, and at the most."""

    cpu: float
    resident: int
    peak: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A node by the name of its scenario, or by the number of its GPUs and of the holders on each."""

    scenario: str = ""
    gpus: int = 0
    holders: int = 0

    @property
    def name(self) -> str:
        """Say what it is."""
        return self.scenario or f"{self.gpus} GPUs x {self.holders} holders"

    def load(self) -> Scenario:
        """Make the node."""
        return load(self.scenario) if self.scenario else _large(self.gpus, self.holders)


CASES = [
    Case(scenario="a10-mps"),
    Case(scenario="showcase"),
    Case(gpus=8, holders=16),
    Case(gpus=16, holders=48),
]


def _large(gpus: int, holders: int) -> Scenario:
    """Make a node on which every holder of every GPU runs a process whose load goes up and down."""

    def pod(gpu: int, place: int) -> dict[str, Any]:
        process = {
            "command": "server",
            "memory": f"{60_000 // holders} MiB",
            "load": {"shape": "sine", "low": 0, "high": 100 // holders, "period": 40 + place, "noise": 1},
        }
        devices = {"nvidia.com/gpu": [f"{{gpu:{gpu}}}::{place}"]}
        container = {"name": "server", "devices": devices, "processes": [process]}
        name = f"inference-{gpu}-{place}"
        return {"namespace": f"team-{place % 12}", "name": name, "containers": [container]}

    document = {
        "name": "large",
        "description": "A node of many holders",
        "node": {
            "name": "large",
            "driver_version": "550.90.07",
            "nvml_version": "12.550.90.07",
            "cuda_version": 12040,
        },
        "gpus": [_BOARD] * gpus,
        "offers": [{"resource": "nvidia.com/gpu", "of": "gpus", "replicas": holders}],
        "pods": [pod(gpu, place) for gpu in range(gpus) for place in range(holders)],
    }
    return parse(json.dumps(document), "large")


async def _exporter(case: Case) -> None:
    """Be the process that is measured: serve, and for each line of input print what was taken so far."""
    scenario, machine, began = case.load(), Machine(0), time.monotonic()
    library = FakeNvml(scenario.node, scenario.missing_functions)
    faked = 0.0

    def move() -> None:
        nonlocal faked
        start = time.thread_time()
        now = present(scenario, time.monotonic() - began)
        library.show(machine.step(now, time.time()), now.nvml_faults, loaded=now.loaded)
        faked += time.thread_time() - start

    async def keep_moving() -> None:
        while True:
            await asyncio.sleep(_POLL)
            move()

    def answer() -> None:
        sys.stdin.readline()
        _say(json.dumps(_taken(faked)))

    move()
    moving = asyncio.create_task(keep_moving())
    asyncio.get_running_loop().add_reader(sys.stdin, answer)
    await serve(Node(settings=load_settings({}, os.environ), nvml_library=library), _say)
    moving.cancel()


def _taken(faked: float) -> _Taken:
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    sizes = {words[0]: int(words[1]) << 10 for words in lines if words[0] in ("VmRSS:", "VmHWM:")}
    return _Taken(time.process_time() - faked, sizes["VmRSS:"], sizes["VmHWM:"])


async def _measure(case: Case, seconds: float, *, busy: bool) -> None:
    """Run the exporter on a node, and print what it takes a minute."""
    scenario = case.load()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        node = await stack.enter_async_context(FakeNode(scenario, root=folder))
        paths = {f"GPUSLICE_{name.upper()}": str(path) for name, path in asdict(node.paths).items()}
        variables = paths | {"NODE_NAME": node.name, "GPUSLICE_LISTEN": "127.0.0.1:0"}
        if busy:
            url = await stack.enter_async_context(_api_server(scenario))
            variables |= {"GPUSLICE_KUBECONFIG": str(_kubeconfig(folder / "config", url))}
        else:
            variables |= {"GPUSLICE_KUBERNETES_API": "off"}
        words = [sys.executable, __file__, "--of", json.dumps(asdict(case))]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=PIPE, stdout=PIPE, env=os.environ | variables
        )
        url = await _line(process)
        client = await stack.enter_async_context(ClientSession(timeout=ClientTimeout(total=None)))
        visitors = [asyncio.create_task(_scrape(client, url))]
        visitors += [asyncio.create_task(_follow(client, url)) for _ in range(_PAGES if busy else 0)]
        await asyncio.sleep(_WARM)
        first = await _ask(process)
        await asyncio.sleep(seconds)
        last = await _ask(process)
        for visitor in visitors:
            visitor.cancel()
        process.terminate()
        await process.wait()
    milli = (last.cpu - first.cpu) / seconds * 1000
    how = "busy" if busy else "quiet"
    memory = f"{last.resident / _MIB:7.0f} MiB (at most {last.peak / _MIB:.0f})"
    begun = f"{first.cpu:5.1f} s of it in the first {_WARM:.0f} s"
    _say(f"{case.name:<24}{how:<6}{memory}{milli:8.1f} m, {begun}")


async def _line(process: Process) -> str:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    return (await process.stdout.readline()).decode().strip()


async def _ask(process: Process) -> _Taken:
    assert process.stdin is not None  # noqa: S101 - as above
    process.stdin.write(b"\n")
    return _Taken(*json.loads(await _line(process)))


async def _scrape(client: ClientSession, url: str) -> None:
    while True:
        async with client.get(f"{url}metrics", headers=_METRICS) as answer:
            await answer.read()
        await asyncio.sleep(_SCRAPE)


async def _follow(client: ClientSession, url: str) -> None:
    """Open the page of the node with its timelines and keep it open, and ask for all that is remembered."""
    for path in ("", "figures/node?range=6h", "api/v1/history?range=6h&points=1440", "api/v1/snapshot"):
        async with client.get(url + path, headers=_HTML) as answer:
            answer.raise_for_status()
            await answer.read()
    async with client.get(f"{url}live/", headers={"Accept": "text/event-stream"}) as events:
        async for _ in events.content.iter_any():
            pass


@asynccontextmanager
async def _api_server(scenario: Scenario) -> AsyncIterator[str]:
    """Answer lists of the node's pods and of the node, and hold watches open."""
    pods = [
        {
            "metadata": {
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
                "labels": {"app": "x"},
            },
            "spec": {"containers": [{"name": each.name} for each in pod.containers]},
            "status": {"phase": "Running"},
        }
        for pod in scenario.pods
    ]
    nodes = [{"metadata": {"name": scenario.node.name, "uid": "node", "labels": {}}}]
    kept = {"pods": pods, "nodes": nodes}
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = kept[request.match_info["kind"]]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        watch = web.StreamResponse()
        await watch.prepare(request)
        await over.wait()
        return watch

    app = web.Application()
    app.router.add_get("/api/v1/{kind}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        over.set()
        await runner.cleanup()


def _kubeconfig(path: Path, url: str) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "this", "user": "me"}}],
        "clusters": [{"name": "this", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": "none"}}],
    }
    path.write_text(json.dumps(config))
    return path


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def main(seconds: float) -> None:
    """Measure and print; m are thousandths of a processor."""
    _say(f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    for case in CASES:
        for busy in (False, True):
            await _measure(case, seconds, busy=busy)


if __name__ == "__main__":
    if "--of" in sys.argv:
        asyncio.run(_exporter(Case(**json.loads(sys.argv[-1]))))
    else:
        asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else _SECONDS))
