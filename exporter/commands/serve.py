"""``serve`` and ``demo``: poll the node and serve its pages until a shutdown signal."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Sequence

from exporter.advice.kept import Keeper
from exporter.advice.model import Advice
from exporter.advice.node_windows import advice_of_node
from exporter.commands.node import Node
from exporter.doctor.checks import Doctor
from exporter.doctor.requests import RequestLog
from exporter.exposition import Exposition
from exporter.history.ended import EndedHolders
from exporter.history.plan import spans_of
from exporter.history.ring import History
from exporter.metrics.selection import Selection
from exporter.model import ContainerRef, Snapshot
from exporter.model.poll_result import DEADLINE
from exporter.poll.gpu_log import NodeLog
from exporter.poll.poller import Poller
from exporter.poll.release_window import Release
from exporter.poll.sources import Sources
from exporter.server_process import run_until, shutdown_signals, tune_malloc
from exporter.web.kit.auth import access_of
from exporter.web.kit.http.server import Server
from exporter.web.kit.live.broadcaster import Ticker
from exporter.web.node.app import Site, make_app
from exporter.web.node.caches import DocumentCache, MetricsCache, PageCache
from exporter.web.node.timelines.sparklines import Sparklines

log = logging.getLogger(__name__)
# A driver that hangs must not keep the program from ending.
CLOSE_SECONDS = 1.0
# Number of new objects that starts a garbage collection. A poll allocates thousands, with almost no reference
# cycles: at Python's default of 700, collections took 4 % of the time of polls.
COLLECTED_AT = 5000


async def serve(node: Node, announce: Callable[[str], None]) -> None:
    """Serve until a shutdown signal. ``announce`` is called with the URL once it answers.

    Raises ListenError if it cannot listen on the address, and SettingsError for an invalid web configuration.
    """
    tune_malloc()
    with shutdown_signals() as shutdown:
        await _serve(node, announce, shutdown)


async def _serve(node: Node, announce: Callable[[str], None], shutdown: asyncio.Event) -> None:
    settings = node.settings
    access = access_of(settings.web_config)
    selection = Selection.of(settings)
    sources = Sources(settings, node.nvml_library, skip=selection.unneeded())
    _follow_signals(sources.release)
    poller = Poller(settings, sources, demo=node.fake is not None)
    poller.subscribe(NodeLog().record)
    for problem in selection.unmatched():
        # After a rename, an old name must not stop the exporter.
        log.warning("--metric-allowlist or --metric-denylist: %s", problem)
    exposition = Exposition(selection, hostname_label=settings.dcgm_hostname_label)
    history = History(settings.history_retention, settings.poll_interval)
    poller.subscribe(history.record)
    app = make_app(
        _site(poller, exposition, history),
        prefix=settings.route_prefix or "",
        frame_ancestors=settings.frame_ancestors,
    )
    server = Server(app, settings.listen, access=access)
    url = await server.start()
    polling = asyncio.create_task(_poll(poller))
    announce(url)
    try:
        await run_until(shutdown, polling)
    finally:
        await server.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(poller.close(), CLOSE_SECONDS)


def _site(poller: Poller, exposition: Exposition, history: History) -> Site:
    settings = poller.settings
    doctor = Doctor(lambda: poller.evidence, settings)
    poller.subscribe(doctor.record)
    poller.subscribe(RequestLog(lambda: poller.evidence, settings).record)
    keeper = Keeper()
    poller.subscribe(keeper.record)
    ended = EndedHolders(settings.history_retention)
    poller.subscribe(ended.record)

    def current() -> Snapshot:
        return poller.snapshot

    def advise(snapshot: Snapshot, only: ContainerRef | None) -> Sequence[Advice]:
        return advice_of_node(snapshot, keeper, only)

    metrics = MetricsCache(current, exposition)
    poller.subscribe(metrics.turn)
    ticker = Ticker()
    poller.subscribe(ticker.tick)
    return Site(
        current=current,
        pages=PageCache(
            current,
            idle_after=settings.idle_after,
            interval=settings.poll_interval,
            spans=spans_of(settings.history_retention),
            sparkline=Sparklines(history).of,
            advise=advise,
            report=doctor.report,
            ended=ended,
        ),
        documents=DocumentCache(
            current,
            idle_after=settings.idle_after,
            advise=advise,
            report=doctor.report,
            price=settings.gpu_hour_price,
        ),
        metrics=metrics,
        restart_reason=lambda: poller.restart_reason,
        past=history,
        ticker=ticker,
    )


async def _poll(poller: Poller) -> None:
    await poller.first()
    _log_first(poller)
    # Objects that exist now stay for good; collections can skip them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AT)
    await poller.run()


def _log_first(poller: Poller) -> None:
    snapshot = poller.snapshot
    log.info(
        "polling every %g s: %d GPUs, %d MIG devices or partitions, %d containers",
        poller.settings.poll_interval,
        len(snapshot.gpus),
        len(snapshot.migs),
        len(snapshot.containers),
    )
    hangs = any(health.name == "nvml" and DEADLINE in health.errors for health in snapshot.collectors)
    if snapshot.node.gpu_count == 0 or (not snapshot.gpus and not hangs):
        log.warning("no GPU is visible; for a simulated node, run: gpuslice-exporter demo")


def _follow_signals(release: Release) -> None:
    """Release the driver on SIGUSR1 and open it again on SIGUSR2; by default these end a process."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, release.release)
    loop.add_signal_handler(signal.SIGUSR2, release.reopen)
