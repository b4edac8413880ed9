"""Load our exporter part by part and say what each part took: JSON of (step, resident, private) in bytes.

The environment points it at a node. It imports nothing that it measures, nor the modules beside it.
"""

import gc
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

IMPORTS = (
    ("standard library: asyncio, logging, ssl and the like", ("asyncio", "argparse", "logging", "ssl")),
    ("protobuf", ("google.protobuf.descriptor_pb2", "google.protobuf.message_factory")),
    ("grpc", ("grpc", "grpc.aio")),
    ("aiohttp", ("aiohttp.web",)),
    ("jinja2", ("jinja2",)),
    ("prometheus_client, yaml", ("prometheus_client", "yaml")),
    ("pynvml", ("pynvml",)),
    ("our own modules", ("exporter.cli", "exporter.commands.serve", "exporter.poll.sources")),
)
Note = Callable[[str], None]


def measured() -> list[tuple[str, int, int]]:
    """Return what each step added, and at last the whole."""
    found: list[tuple[str, int, int]] = []
    before = (0, 0)

    def note(step: str) -> None:
        nonlocal before
        gc.collect()
        now = _memory()
        found.append((step, now[0] - before[0], now[1] - before[1]))
        before = now

    note("the interpreter")
    for step, names in IMPORTS:
        for name in names:
            importlib.import_module(name)
        note(step)
    importlib.import_module("asyncio").run(_polled(note))
    return [*found, ("all of these", *before)]


async def _polled(note: Note) -> None:
    """Poll the node once and keep what a server keeps of it."""
    from exporter.config.settings import load_settings  # noqa: PLC0415
    from exporter.exposition.page import Exposition, Format  # noqa: PLC0415 - it was measured above
    from exporter.history.ring import History  # noqa: PLC0415
    from exporter.poll.poller import Poller  # noqa: PLC0415
    from exporter.poll.sources import Sources  # noqa: PLC0415

    settings = load_settings({}, dict(importlib.import_module("os").environ))
    poller = Poller(settings, Sources(settings, None))
    await poller.first()
    note("first poll: kubelet, driver, /proc")
    history = History(settings.history_retention, settings.poll_interval)
    history.record(poller.snapshot)
    note("history of six hours")
    page = Exposition(dcgm_names="on").page(poller.snapshot)
    page.body(Format.TEXT)
    note("a page of metrics")
    await poller.close()


def _memory() -> tuple[int, int]:
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    sizes = {words[0]: int(words[1]) << 10 for words in lines}
    return sizes["Rss:"], sizes["Private_Clean:"] + sizes["Private_Dirty:"]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measured()))
