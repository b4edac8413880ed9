"""One poll, for the commands that print something and end."""

import asyncio
import contextlib
import sys
from dataclasses import replace

from exporter.commands.node_and_output import Node
from exporter.model import GpuReading, Snapshot
from exporter.model.poll_result import PollResult
from exporter.poll.budget import Budget
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources

# Opening the driver takes up to half a minute on a node whose GPUs are not kept initialised.
PATIENCE_SECONDS = 60.0
CLOSE_SECONDS = 1.0
# Time between the two samples of a profiling meter, whose key among what is withheld is this. The hardware of
# a fake node moves once a second.
WINDOW_SECONDS = 1.1
METER = "profiling"
# After this long somebody who waits at a terminal wants to know why.
SILENCE_SECONDS = 3.0


async def poll_once(node: Node) -> tuple[Snapshot, PollResult]:
    """Read every source of the node once; return what was found and what it was made of."""
    # What was read while the slowest source was waited for is not stale.
    stale_after = max(node.settings.stale_after, 2 * PATIENCE_SECONDS)
    budget = Budget.of_interval(node.settings.poll_interval).patient(PATIENCE_SECONDS)
    sources = Sources(node.settings, node.nvml_library, budget=budget)
    poller = Poller(
        replace(node.settings, stale_after=stale_after),
        sources,
        demo=node.fake is not None,
    )
    waiting = asyncio.get_running_loop().call_later(SILENCE_SECONDS, _tell_wait)
    try:
        # Whoever wants the driver now does not want it opened for a look either.
        await sources.start()
        snapshot = await poller.poll()
        if any(map(_has_begun, poller.evidence.gpus)):
            await asyncio.sleep(WINDOW_SECONDS)
            snapshot = await poller.poll()
        return snapshot, poller.evidence
    finally:
        waiting.cancel()
        if node.fake is not None:
            # What is held up there, and nothing else, would be waited for.
            node.fake.nvml.release()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(poller.close(), CLOSE_SECONDS)


def _has_begun(gpu: GpuReading) -> bool:
    """Whether a profiling meter has taken its first sample, of which nothing can be told yet."""
    return gpu.identity.vendor == "nvidia" and gpu.up and not gpu.profiling and METER not in gpu.withheld


def _tell_wait() -> None:
    sys.stderr.write(
        f"gpuslice-exporter: waiting for a source that does not answer, {PATIENCE_SECONDS:.0f} s at most\n"
    )
