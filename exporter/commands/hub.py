"""``hub``: the page of the cluster, from what a Prometheus knows of its nodes, until told to stop."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from exporter.commands.signals_and_memory import shutdown_signals, tune_malloc, until_told
from exporter.config.settings import Settings, SettingsError
from exporter.fleet.read import Aim
from exporter.fleet.targets import NodeLinks, TemplateError
from exporter.fleet.watch import Watch, hub_registry
from exporter.prometheus import Prometheus
from exporter.web import Server
from exporter.web.auth import access_of
from exporter.web.cluster.routes import Cluster, FleetPages, make_hub_app
from exporter.web.live.broadcaster import Ticker

# Questions of a large cluster take Prometheus a while.
DEADLINE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """What only the hub is told: seconds from look to look, those of GPU-hours, and the URL of a node."""

    refresh: float
    window: float
    node_url_template: str


def prometheus_of(settings: Settings, deadline: float = DEADLINE) -> Prometheus:
    """Make the client of the Prometheus that the settings name; raises SettingsError without one."""
    if settings.prometheus_url is None:
        raise SettingsError(
            "no Prometheus is given: set --prometheus-url or GPUSLICE_PROMETHEUS_URL to one that scrapes the "
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
    """Serve until it is told to end. ``announce`` is called with the URL once it answers.

    Raises SettingsError for what cannot be used, and ListenError.
    """
    tune_malloc()
    with shutdown_signals() as told:
        await _hub(settings, options, announce, told)


async def _hub(
    settings: Settings, options: HubOptions, announce: Callable[[str], None], told: asyncio.Event
) -> None:
    try:
        links = NodeLinks(options.node_url_template)
    except TemplateError as error:
        raise SettingsError(f"--node-url-template: {error}") from None
    access = access_of(settings.web_config)
    prometheus = prometheus_of(settings)
    watch = Watch(prometheus, Aim(settings.idle_after, options.window), interval=options.refresh)
    ticker = Ticker()
    pages = FleetPages(lambda: watch.look, links, idle_after=settings.idle_after)
    app = make_hub_app(
        Cluster(pages, ticker, hub_registry(lambda: watch.look)),
        prefix=settings.route_prefix or "",
        frame_ancestors=settings.frame_ancestors,
    )
    server = Server(app, settings.listen, access=access)
    url = await server.start()
    looking = asyncio.create_task(watch.run(ticker.tick))
    announce(url)
    try:
        await until_told(looking, told)
    finally:
        await server.stop()
        await prometheus.close()
