#!/usr/bin/env python3
"""How long the page of a node takes to make, how large it is, and how soon it can be used in a browser.

Run as ``python benchmarks/page.py [gpus [holders]]``: a node with that many GPUs in replicas and holders on
each, and the showcase. A page is drawn anew each time, with views and templates; the median and the best of
many are printed. With Chromium on the PATH it is then opened there, and a filter is typed into it.
"""

import asyncio
import gzip
import shutil
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from random import Random

from markupsafe import Markup
from playwright.async_api import Browser, async_playwright

from exporter.demo.catalog import load
from exporter.demo.node import FakeNode
from exporter.exposition import Exposition
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
from exporter.poller import Poller
from exporter.report import Report
from exporter.settings import ListenAddress, load_settings
from exporter.sources import Sources
from exporter.web import Server, make_app
from exporter.web.html import page
from exporter.web.pages import Pages
from exporter.web.site import Site
from exporter.web.timelines.sparklines import STEPS
from exporter.web.timelines.sparklines import draw as drawn
from exporter.web.views.pages import node_drawing
from exporter.web.views.scene import Scene

_ROUNDS = 60
_GIB = 1 << 30
_WHOLE = 80 * _GIB
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


async def main(gpus: int, holders: int) -> None:
    """Measure and print."""
    nodes = {f"{gpus} GPUs x {holders} holders": _large(gpus, holders), "showcase": await _showcase()}
    for name, snapshot in nodes.items():
        _report_server(name, snapshot)
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if path is None:
        sys.stdout.write("no chromium on PATH: nothing is opened\n")
        return
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name, snapshot in nodes.items():
            await _report_browser(name, snapshot, browser)
        await browser.close()


def _report_server(name: str, snapshot: Snapshot) -> None:
    lines = _sparklines(snapshot)

    def draw() -> str:
        scene = Scene(snapshot, now=snapshot.timestamp, sparkline=lambda row: lines[row.holder, row.device])
        return page(node_drawing(scene), "")

    body = draw().encode()
    median, best = _times(draw)
    size, zipped = len(body) / 1000, len(gzip.compress(body, 6)) / 1000
    sys.stdout.write(
        f"{name}: {median:.1f} ms of a core for a page (best {best:.1f}), "
        f"{size:.0f} kB, {zipped:.1f} kB compressed\n"
    )


def _sparklines(snapshot: Snapshot) -> dict[tuple[ContainerRef, DeviceKey], Markup]:
    """Draw an hour that is another one for each holder; a server keeps these pictures for minutes."""
    numbers = Random(0)  # noqa: S311 - a picture, no secret
    return {
        (row.holder, row.device): drawn([numbers.random() / 50 for _ in range(STEPS)], row.compute_entitled)
        for row in snapshot.containers
    }


def _times(work: Callable[[], object]) -> tuple[float, float]:
    taken = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        work()
        taken.append((time.process_time() - start) * 1e3)
    return statistics.median(taken), min(taken)


async def _report_browser(name: str, snapshot: Snapshot, browser: Browser) -> None:
    async with _served(snapshot) as url:
        window = await browser.new_page()
        start = time.perf_counter()
        await window.goto(url, wait_until="domcontentloaded")
        ready = time.perf_counter() - start
        await window.locator("html[data-table]").wait_for()
        usable = time.perf_counter() - start
        typed = time.perf_counter()
        await window.fill("#holders-filter", "gpu:0")
        await window.locator("#holders-count", has_text="shown").wait_for()
        filtered = time.perf_counter() - typed
        sent = await window.evaluate(
            "performance.getEntries().reduce((sum, entry) => sum + (entry.transferSize ?? 0), 0)"
        )
        await window.close()
    sys.stdout.write(
        f"{name}: loaded after {ready * 1e3:.0f} ms, usable after {usable * 1e3:.0f} ms, "
        f"a filter shows after {filtered * 1e3:.0f} ms, {sent / 1000:.0f} kB received in all\n"
    )


@asynccontextmanager
async def _served(snapshot: Snapshot) -> AsyncIterator[str]:
    site = Site(
        pages=Pages(lambda: snapshot, Exposition()),
        restart_reason=lambda: None,
        report=lambda: Report(snapshot.node.name, ()),
        past=History(3600, 5),
    )
    server = Server(make_app(site), ListenAddress("127.0.0.1", 0))
    url = await server.start()
    try:
        yield url
    finally:
        await server.stop()


async def _showcase() -> Snapshot:
    async with FakeNode(load("showcase"), clock=lambda: 0.0) as node:
        settings = replace(load_settings({}, {}), node_name=node.name, **asdict(node.paths))
        poller = Poller(settings, Sources(settings, node.nvml), demo=True, wall=time.time)
        for second in (0, 15, 30):
            await node.step(second)
            shown = await poller.poll()
        await poller.close()
        return shown


def _large(gpus: int, holders: int) -> Snapshot:
    now = time.time()
    containers = [_holder(now, gpu, number, holders) for gpu in range(gpus) for number in range(holders)]
    return Snapshot(
        timestamp=now,
        sequence=1,
        node=NodeRow(name="large", gpu_count=gpus, process_view=True),
        gpus=tuple(_gpu(number, holders) for number in range(gpus)),
        containers=tuple(sorted(containers, key=lambda row: (row.holder, row.device))),
    )


def _gpu(number: int, holders: int) -> GpuRow:
    identity = GpuIdentity(index=number, uuid=_uuid(number), model="NVIDIA H100 80GB HBM3")
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


def _holder(now: float, gpu: int, number: int, holders: int) -> ContainerRow:
    name = f"infer-{gpu}-{number}-7d9f8b6c4-x2k{number}"
    return ContainerRow(
        holder=ContainerRef(f"team-{number % 12}", name, "server"),
        device=DeviceKey(_uuid(gpu)),
        resource="nvidia.com/gpu.shared",
        sharing="mps",
        isolation="soft",
        slices=1,
        memory_entitled=_WHOLE // holders,
        compute_entitled=1 / holders,
        memory_used=_GIB + number * 1_000_000,
        compute_used=(number % 5) / 100 * 0.9,
        processes=1,
        totals=Totals(first_seen=now - 9999, last_active=now - (number % 4) * 700),
    )


def _uuid(gpu: int) -> str:
    return f"GPU-{gpu:08x}-aaaa-bbbb-cccc-123456789abc"


if __name__ == "__main__":
    counts = [int(each) for each in sys.argv[1:]]
    asyncio.run(main(*counts, *(16, 48)[len(counts) :]))
