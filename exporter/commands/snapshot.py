"""``snapshot``: print the result of one poll. ``poll_once`` is for other such commands too."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from exporter.commands.node import Node
from exporter.config import Settings
from exporter.exposition import Exposition, choose_format
from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from exporter.metrics.selection import Selection
from exporter.model import GpuReading, Snapshot
from exporter.model.poll_result import PollResult
from exporter.output import terminal_width
from exporter.poll.budget import Budget
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources

# Opening the driver takes up to half a minute on a node whose GPUs are not kept initialised.
PATIENCE_SECONDS = 60.0
CLOSE_SECONDS = 1.0
# Time between the two samples of a profiling metric. The values of a fake node change once a second.
WINDOW_SECONDS = 1.1
# The meter's group of readings, a key of ``withheld``.
METER = "profiling"
# A message explains a longer wait to the user at the terminal.
SILENCE_SECONDS = 3.0


async def poll_once(node: Node) -> tuple[Snapshot, PollResult]:
    """Read every source of the node once; return the snapshot and the poll's results."""
    # Sources that answered early must not become stale during the wait for the slowest one.
    stale_after = max(node.settings.stale_after, 2 * PATIENCE_SECONDS)
    budget = Budget.of_interval(node.settings.poll_interval).patient(PATIENCE_SECONDS)
    sources = Sources(node.settings, node.nvml_library, budget=budget)
    poller = Poller(replace(node.settings, stale_after=stale_after), sources, demo=node.fake is not None)
    message = (
        f"gpuslice-exporter: waiting for a source that does not answer, {PATIENCE_SECONDS:.0f} s at most\n"
    )
    waiting = asyncio.get_running_loop().call_later(SILENCE_SECONDS, sys.stderr.write, message)
    try:
        # A request to release the driver holds for a single poll, too.
        await sources.start()
        snapshot = await poller.poll()
        if any(map(_has_begun, poller.evidence.gpus)):
            await asyncio.sleep(WINDOW_SECONDS)
            snapshot = await poller.poll()
        elif any(sources.limited_cgroups.values()):
            # The driver is asked about the cgroups that the first poll found.
            snapshot = await poller.poll()
        return snapshot, poller.evidence
    finally:
        waiting.cancel()
        if node.fake is not None:
            # Calls that a fault of the fake node blocks would keep the program from ending.
            node.fake.nvml.release()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(poller.close(), CLOSE_SECONDS)


def _has_begun(gpu: GpuReading) -> bool:
    """Return whether a profiling metric has only its first sample, which has no value yet."""
    return gpu.identity.vendor == "nvidia" and gpu.up and not gpu.profiling and METER not in gpu.withheld


def _prometheus(snapshot: Snapshot, settings: Settings) -> str:
    exposition = Exposition(Selection.of(settings), hostname_label=settings.dcgm_hostname_label)
    return exposition.page(snapshot).body(choose_format("")).decode()


FORMATS: Mapping[str, Callable[[Snapshot, Settings], str]] = {
    "text": lambda snapshot, settings: snapshot_text(
        snapshot, idle_after=settings.idle_after, width=terminal_width()
    ),
    "json": lambda snapshot, settings: (
        json.dumps(snapshot_json(snapshot, idle_after=settings.idle_after), indent=2) + "\n"
    ),
    "csv": lambda snapshot, settings: snapshot_csv(snapshot, idle_after=settings.idle_after),
    "prometheus": _prometheus,
}


async def snapshot(node: Node, form: str) -> str:
    """Poll once and return the text to print, in one of FORMATS."""
    result, _ = await poll_once(node)
    return FORMATS[form](result, node.settings)
