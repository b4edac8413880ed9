"""``hub``: serve the page of the cluster, with data from a Prometheus."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from exporter.commands.signals_and_memory import run_until, shutdown_signals, tune_malloc
from exporter.config.settings import Settings, SettingsError
from exporter.fleet.read import Aim
from exporter.fleet.targets import NodeLinks, TemplateError
from exporter.fleet.watch import Watch, hub_registry
from exporter.prometheus import Prometheus
from exporter.web import Server
from exporter.web.auth import access_of
from exporter.web.cluster.routes import Cluster, FleetPages, make_hub_app
from exporter.web.live.broadcaster import Ticker

# Queries of a large cluster take Prometheus a while.
DEADLINE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """The options of the hub alone."""

    refresh: float
    """Seconds between two reads of the cluster."""
    window: float
    """Seconds over which GPU-hours are summed."""
    node_url_template: str
    """URL of a node's page, with placeholders."""


def prometheus_of(settings: Settings, deadline: float = DEADLINE) -> Prometheus:
    """Return the client of the Prometheus in the settings; raises SettingsError without one."""
    if settings.prometheus_url is None:
        raise SettingsError(
            "no Prometheus is set: set --prometheus-url or GPUSLICE_PROMETHEUS_URL to one that scrapes the "
            "nodes, such as http://localhost:9090 with: "
            "kubectl -n monitoring port-forward svc/prometheus-operated 9090"
        )
    return Prometheus(
        settings.prometheus_url,
        token_file=settings.prometheus_token_file,
        ca_file=settings.prometheus_ca_file,
        deadline=deadline,
    )


async def hub(settings: Settings, options: HubOptions, announce: Callable[[str], None]) -> None:
    """Serve until a shutdown signal. ``announce`` is called with the URL once it answers.

    Raises SettingsError for an invalid setting, and ListenError.
    """
    tune_malloc()
    with shutdown_signals() as shutdown:
        await _hub(settings, options, announce, shutdown)


async def _hub(
    settings: Settings, options: HubOptions, announce: Callable[[str], None], shutdown: asyncio.Event
) -> None:
    try:
        links = NodeLinks(options.node_url_template)
    except TemplateError as error:
        raise SettingsError(f"--node-url-template: {error}") from None
    access = access_of(settings.web_config)
    prometheus = prometheus_of(settings)
    watch = Watch(prometheus, Aim(settings.idle_after, options.window), interval=options.refresh)
    ticker = Ticker()
    pages = FleetPages(lambda: watch.newest, links, idle_after=settings.idle_after)
    app = make_hub_app(
        Cluster(pages, ticker, hub_registry(lambda: watch.newest)),
        prefix=settings.route_prefix or "",
        frame_ancestors=settings.frame_ancestors,
    )
    server = Server(app, settings.listen, access=access)
    url = await server.start()
    watching = asyncio.create_task(watch.run(ticker.tick))
    announce(url)
    try:
        await run_until(shutdown, watching)
    finally:
        await server.stop()
        await prometheus.close()
