#!/usr/bin/env python3
"""How long the page of a node takes to make, how large it is, and how soon it can be used in a browser.

Run as ``python benchmarks/page.py [gpus [holders]]``: GPUs with so many holders each, and the showcase.
Each page is made as the server does it, of another snapshot, in ms of a processor. The first load is all but
what timelines need. Chromium opens the page and gets a poll that changes all holders.
"""

import asyncio
import gc
import os
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count, cycle, islice
from random import Random
from uuid import UUID

from playwright.async_api import Browser, Page, async_playwright

from exporter.config.settings import ListenAddress, load_settings
from exporter.demo.node import FakeNode
from exporter.demo.scenario.catalog import load
from exporter.doctor.report import Report
from exporter.exposition.page import Exposition
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
    SliceCount,
    Snapshot,
    Totals,
)
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from exporter.web import Server, make_app
from exporter.web.html import page
from exporter.web.http.assets import bundle
from exporter.web.http.responses import compress
from exporter.web.pages.layout import node_drawing
from exporter.web.pages.page_pieces import Opened
from exporter.web.pages.views.scene import Scene
from exporter.web.render_cache import RenderCache
from exporter.web.site import Site
from exporter.web.timelines.sparklines import STEPS, Sparklines

_ROUNDS, _HOUR, _STEP = 60, 3600.0, 30.0
_SPANS = "5m", "1h", "6h"
_OTHERS = 12
_GIB = 1 << 30
_WHOLE = 80 * _GIB
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# What the names of pods are made of, such as 7d9f8b6c4-x2kqp.
_NAMED = "bcdfghjklmnpqrstvwxz2456789"
# Runs in the page before all else: notes when the filter is listened to, and tasks of 50 ms and longer.
_WATCH = """
  new MutationObserver((_, watch) => {
    if (!document.documentElement?.dataset.table) return;
    watch.disconnect();
    window.usable = performance.now();
  }).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-table"] });
  window.tasks = [];
  new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((task) => task.duration)))
    .observe({ type: "longtask", buffered: true });
"""
_PARSED = "performance.getEntriesByType('navigation')[0].domInteractive"
_RECEIVED = "performance.getEntries().reduce((sum, entry) => sum + (entry.transferSize ?? 0), 0)"
_UPDATED = """() => new Promise((done) => {
  window.tasks = [];
  document.addEventListener("gpuslice:update", () => {
    const told = performance.now();
    // Long tasks are told of when they are over.
    requestAnimationFrame(() => setTimeout(() => done({ told, tasks: window.tasks }), 300));
  }, { once: true });
})"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What is measured: snapshots one after the other, and the history before them."""

    name: str
    snapshots: Sequence[Snapshot]
    history: History


async def main(gpus: int, holders: int) -> None:
    """Measure and print."""
    nodes = [_large(gpus, holders), await _showcase()]
    # As the exporter does after its first poll.
    gc.collect()
    gc.freeze()
    for node in nodes:
        _report_server(node)
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        _say("no chromium on PATH: nothing is opened")
        return
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for node in nodes:
            await _report_browser(node, browser)
        await browser.close()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _report_server(node: Node) -> None:
    body, median, best = _made(node)
    static = sum(len(asset.zipped) for asset in bundle().assets.values())
    zipped = len(compress(body))
    _say(f"{node.name} (load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors)")
    _say(f"  made in {median:.1f} ms of a processor (best {best:.1f})")
    _say(f"  HTML {len(body) / 1e3:.0f} kB, compressed {zipped / 1e3:.1f} kB")
    _say(f"  first load compressed {(zipped + static) / 1e3:.1f} kB")


def _made(node: Node) -> tuple[bytes, float, float]:
    sparklines = Sparklines(node.history)
    taken, body = [], b""
    for _, snapshot in zip(range(_ROUNDS), cycle(node.snapshots), strict=False):
        now = snapshot.timestamp
        opened = Opened("live/", "1-0", now, now, 5.0, "0")
        start = time.process_time()
        scene = Scene(snapshot, now=now, sparkline=sparklines.of, spans=_SPANS)
        body = page(node_drawing(scene), "", opened).encode()
        taken.append((time.process_time() - start) * 1e3)
    return body, statistics.median(taken), min(taken)


async def _report_browser(node: Node, browser: Browser) -> None:
    async with _served(node) as (url, poll):
        context = await browser.new_context()
        await context.add_init_script(_WATCH)
        window = await context.new_page()
        async with window.expect_response(lambda answer: "/live/" in answer.url):
            await window.goto(url)
        await window.wait_for_function("window.usable")
        usable = await _number(window, "window.usable")
        _say(f"{node.name} in a browser (load of the machine {os.getloadavg()[0]:.1f})")
        parsed, received = await _number(window, _PARSED), await _number(window, _RECEIVED)
        _say(f"  parsed after {parsed:.0f} ms, a filter can be typed after {usable:.0f} ms")
        _say(f"  {received / 1e3:.0f} kB received in all, with headers")
        update = asyncio.ensure_future(window.evaluate(_UPDATED))
        await asyncio.sleep(0)
        poll()
        tasks: list[float] = (await update)["tasks"]
        _say(f"  longest task of an update {max(tasks, default=0):.0f} ms (0 where none takes 50)")
        typed = time.perf_counter()
        await window.fill("#holders-filter", "gpu:0")
        await window.locator("#holders-count", has_text="shown").wait_for()
        _say(f"  a filter shows after {(time.perf_counter() - typed) * 1e3:.0f} ms")
        await context.close()


async def _number(window: Page, script: str) -> float:
    told: float = await window.evaluate(script)
    return told


@asynccontextmanager
async def _served(node: Node) -> AsyncIterator[tuple[str, Callable[[], None]]]:
    """Serve a node; the function that is given publishes its next snapshot."""
    snapshots = cycle(node.snapshots)
    current = next(snapshots)
    site = Site(
        pages=RenderCache(lambda: current, Exposition()),
        restart_reason=lambda: None,
        report=lambda: Report(current.node.name, ()),
        past=node.history,
        spans=_SPANS,
        sparkline=Sparklines(node.history).of,
    )

    def poll() -> None:
        nonlocal current
        current = next(snapshots)
        site.ticker.tick()

    server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
    url = await server.start()
    try:
        yield url, poll
    finally:
        await server.stop()


async def _showcase() -> Node:
    async with FakeNode(load("showcase"), clock=lambda: 0.0) as node:
        settings = replace(load_settings({}, {}), node_name=node.name, **asdict(node.paths))
        poller = Poller(settings, Sources(settings, node.nvml), demo=True, wall=time.time)
        snapshots = []
        for second in (0, 15, 30):
            await node.step(second)
            snapshots.append(await poller.poll())
        await poller.close()
    return Node(name="showcase", snapshots=snapshots, history=_remembering(cycle(snapshots)))


def _large(gpus: int, holders: int) -> Node:
    numbers = Random(0)  # noqa: S311 - names and numbers, no secrets
    now = time.time()
    uuids = [f"GPU-{UUID(int=numbers.getrandbits(128))}" for _ in range(gpus)]
    containers = [_holder(uuid, numbers, holders) for uuid in uuids for _ in range(holders)]
    first = Snapshot(
        timestamp=now,
        sequence=1,
        node=NodeRow(name="large", gpu_count=gpus, process_view=True),
        gpus=tuple(_gpu(uuid, index, holders) for index, uuid in enumerate(uuids)),
        containers=tuple(sorted(containers, key=lambda row: (row.holder, row.device))),
    )
    # More of them than what is kept of numbers that came before would help with.
    later = (_later(first, numbers) for _ in count())
    snapshots = list(islice(later, _OTHERS))
    return Node(name=f"{gpus} GPUs x {holders} holders", snapshots=snapshots, history=_remembering(later))


def _remembering(snapshots: Iterator[Snapshot]) -> History:
    """Keep an hour in which every step that a small picture has is another one."""
    history = History(_HOUR, _STEP)
    end = time.time()
    polls = int(_HOUR / _STEP)
    each = polls // STEPS
    for number in range(polls):
        if number % each == 0:
            snapshot = next(snapshots)
        at = end - _HOUR + (number + 1) * _STEP
        history.record(replace(snapshot, timestamp=at, sequence=number + 1))
    return history


def _later(snapshot: Snapshot, numbers: Random) -> Snapshot:
    """Have every holder use other amounts; some have computed nothing for a while."""

    def used(row: ContainerRow) -> ContainerRow:
        compute = max(numbers.random() - 0.3, 0.0) * (row.compute_entitled or 0)
        last = snapshot.timestamp - (0 if compute else numbers.randrange(4) * 700)
        memory = int(numbers.random() ** 2 * 1.1 * (row.memory_entitled or 0))
        totals = Totals(first_seen=last, last_active=last)
        return replace(row, memory_used=memory, compute_used=compute, totals=totals)

    return replace(snapshot, containers=tuple(map(used, snapshot.containers)))


def _gpu(uuid: str, index: int, holders: int) -> GpuRow:
    identity = GpuIdentity(index=index, uuid=uuid, model="NVIDIA H100 80GB HBM3")
    reading = GpuReading(
        identity=identity,
        memory=Memory(total=_WHOLE, used=70 * _GIB, free=10 * _GIB, reserved=0),
        utilization_percent=88,
        power_milliwatts=400_000,
        temperature_celsius=60,
        mig_enabled=False,
    )
    return GpuRow(
        identity=identity,
        reading=reading,
        sharing="mps",
        slices=(SliceCount("nvidia.com/gpu.shared", holders, holders),),
        holders=holders,
        memory_entitled=_WHOLE,
        unattributed_memory=_GIB,
        unattributed_utilization=0.02,
    )


def _holder(uuid: str, numbers: Random, holders: int) -> ContainerRow:
    team = numbers.randrange(12)
    # A replica set is called after a hash, and each of its pods has some letters of its own.
    of_set = "".join(Random(team).choices(_NAMED, k=9))  # noqa: S311 - a name, no secret
    pod = f"inference-{of_set}-{''.join(numbers.choices(_NAMED, k=5))}"
    return ContainerRow(
        holder=ContainerRef(f"team-{team}", pod, "server"),
        device=DeviceKey(uuid),
        resource="nvidia.com/gpu.shared",
        sharing="mps",
        isolation="soft",
        slices=1,
        memory_entitled=_WHOLE // holders,
        compute_entitled=1 / holders,
        processes=1,
    )


if __name__ == "__main__":
    counts = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(*counts, *(16, 48)[len(counts) :]))
