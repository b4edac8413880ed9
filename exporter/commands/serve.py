"""``serve`` and ``demo``: poll, and hand out what was found, until told to stop."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable

from exporter.collector import DEADLINE
from exporter.commands.node import Node
from exporter.doctor import examine
from exporter.exposition import Exposition
from exporter.history.ring import History
from exporter.model import Snapshot
from exporter.poller import Poller
from exporter.release import Release
from exporter.sources import Sources
from exporter.web import Server, make_app
from exporter.web.pages import Pages
from exporter.web.site import Site

log = logging.getLogger(__name__)
# A driver that hangs must not keep the program from ending.
CLOSE_SECONDS = 1.0


async def serve(node: Node, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. ``announce`` is called with the URL once it answers.

    Raises ListenError when the address cannot be listened on.
    """
    settings = node.settings
    sources = Sources(settings, node.nvml_library)
    _follow_signals(sources.release)
    poller = Poller(settings, sources, demo=node.fake is not None)
    exposition = Exposition(dcgm_names=settings.dcgm_names, hostname_label=settings.dcgm_hostname_label)
    server = Server(make_app(_site(poller, exposition)), settings.listen)
    url = await server.start()
    polling = asyncio.create_task(_poll(poller))
    announce(url)
    try:
        await _until_stopped(polling)
    finally:
        await server.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(poller.close(), CLOSE_SECONDS)


def _site(poller: Poller, exposition: Exposition) -> Site:
    settings = poller.settings
    history = History(settings.history, settings.poll_interval)
    poller.subscribe(history.record)
    return Site(
        pages=Pages(lambda: poller.snapshot, exposition, idle_after=settings.idle_after),
        restart_reason=lambda: poller.restart_reason,
        report=lambda: examine(poller.snapshot, poller.evidence, settings),
        past=history,
    )


async def _until_stopped(polling: "asyncio.Task[None]") -> None:
    """Wait for the signal to stop; a poll loop that ends by itself raises what ended it."""
    stopping = asyncio.create_task(_stop_signal().wait())
    await asyncio.wait({polling, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    polling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await polling


async def _poll(poller: Poller) -> None:
    await poller.first()
    _tell_first(poller)
    # What lives now lives for ever; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    await poller.run()


def _tell_first(poller: Poller) -> None:
    snapshot = poller.snapshot
    log.info(
        "polling every %g s: %d GPUs, %d MIG devices or partitions, %d containers",
        poller.settings.poll_interval,
        len(snapshot.gpus),
        len(snapshot.migs),
        len(snapshot.containers),
    )
    if snapshot.node.gpu_count == 0 or (not snapshot.gpus and not _driver_hangs(snapshot)):
        log.warning("no GPU is visible here; see a fake node with: gpuslice-exporter demo")


def _driver_hangs(snapshot: Snapshot) -> bool:
    return any(health.name == "nvml" and DEADLINE in health.errors for health in snapshot.collectors)


def _follow_signals(release: Release) -> None:
    """Give the driver up at SIGUSR1 and take it again at SIGUSR2; by default they end a process."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, release.give_up)
    loop.add_signal_handler(signal.SIGUSR2, release.take_again)


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    return stopped
