"""``serve`` and ``demo``: poll, and hand out what was found, until told to stop."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable

from exporter.commands.node_and_output import Node
from exporter.commands.signals_and_memory import shutdown_signals, tune_malloc, until_told
from exporter.doctor import Doctor
from exporter.exposition.page import Exposition
from exporter.history.ring import History, spans_of
from exporter.model import Snapshot
from exporter.model.poll_result import DEADLINE
from exporter.poll.gpu_log import NodeLog
from exporter.poll.poller import Poller
from exporter.poll.release_window import Release
from exporter.poll.sources import Sources
from exporter.prometheus import LongerHistory, Prometheus, PrometheusHistory
from exporter.web import Server, make_app
from exporter.web.auth import access_of
from exporter.web.live.broadcaster import Ticker
from exporter.web.render_cache import RenderCache
from exporter.web.site import Site
from exporter.web.timelines.sparklines import Sparklines

log = logging.getLogger(__name__)
# A driver that hangs must not keep the program from ending.
CLOSE_SECONDS = 1.0
# A person waits for a timeline.
PAST_SECONDS = 5.0
# So many objects more than before have the collector look for circles. A poll makes thousands for a while,
# and next to no circles: at Python's own 700 the collector took a twenty-fifth of the time of polls.
COLLECTED_AT = 5000


async def serve(node: Node, announce: Callable[[str], None]) -> None:
    """Serve until it is told to end. ``announce`` is called with the URL once it answers.

    Raises ListenError when the address cannot be listened on, and SettingsError for a web configuration
    that cannot be used.
    """
    tune_malloc()
    with shutdown_signals() as told:
        await _serve(node, announce, told)


async def _serve(node: Node, announce: Callable[[str], None], told: asyncio.Event) -> None:
    settings = node.settings
    access = access_of(settings.web_config)
    sources = Sources(settings, node.nvml_library)
    _follow_signals(sources.release)
    poller = Poller(settings, sources, demo=node.fake is not None)
    poller.subscribe(NodeLog().record)
    exposition = Exposition(dcgm_names=settings.dcgm_names, hostname_label=settings.dcgm_hostname_label)
    history = _history(poller)
    past = _past(poller, history)
    app = make_app(
        _site(poller, exposition, past, history),
        prefix=settings.route_prefix or "",
        frame_ancestors=settings.frame_ancestors,
    )
    server = Server(app, settings.listen, access=access)
    url = await server.start()
    polling = asyncio.create_task(_poll(poller))
    announce(url)
    try:
        await until_told(polling, told)
    finally:
        await server.stop()
        await past.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(poller.close(), CLOSE_SECONDS)


def _history(poller: Poller) -> History:
    """Keep the last hours in memory."""
    history = History(poller.settings.history_retention, poller.settings.poll_interval)
    poller.subscribe(history.record)
    return history


def _past(poller: Poller, history: History) -> LongerHistory:
    """Tell of the past from memory; what was before it a Prometheus tells, where one is named."""
    settings = poller.settings
    far = None
    if settings.prometheus_url is not None:
        prometheus = Prometheus(
            settings.prometheus_url,
            token_file=settings.prometheus_token_file,
            ca_file=settings.prometheus_ca_file,
            deadline=PAST_SECONDS,
        )
        far = PrometheusHistory(prometheus, lambda: poller.snapshot)
    return LongerHistory(history, far, kept=history.kept)


def _site(poller: Poller, exposition: Exposition, past: LongerHistory, history: History) -> Site:
    settings = poller.settings
    doctor = Doctor(lambda: poller.evidence, settings)
    poller.subscribe(doctor.record)
    pages = RenderCache(
        lambda: poller.snapshot,
        exposition,
        idle_after=settings.idle_after,
        interval=settings.poll_interval,
    )
    poller.subscribe(pages.turn)
    ticker = Ticker()
    poller.subscribe(ticker.tick)
    return Site(
        pages=pages,
        restart_reason=lambda: poller.restart_reason,
        report=doctor.report,
        past=past,
        sparkline=Sparklines(history).of,
        spans=spans_of(settings.history_retention, longer=settings.prometheus_url is not None),
        ticker=ticker,
    )


async def _poll(poller: Poller) -> None:
    await poller.first()
    _tell_first(poller)
    # What lives now lives for ever; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED_AT)
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
        log.warning("no GPU is visible; for a simulated node, run: gpuslice-exporter demo")


def _driver_hangs(snapshot: Snapshot) -> bool:
    return any(health.name == "nvml" and DEADLINE in health.errors for health in snapshot.collectors)


def _follow_signals(release: Release) -> None:
    """Give the driver up at SIGUSR1 and take it again at SIGUSR2; by default they end a process."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, release.give_up)
    loop.add_signal_handler(signal.SIGUSR2, release.take_again)
