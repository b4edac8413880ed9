"""Commands on a cluster, from a Prometheus: ``hub`` serves its page, ``inspect`` prints its GPUs."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exporter.commands.node_and_printing import print_text
from exporter.commands.signals_and_memory import run_until, shutdown_signals, tune_malloc
from exporter.config.settings import Settings, SettingsError
from exporter.fleet.cluster_advice import NoRecordsError, advice_text, cluster_advice_json, read_advice
from exporter.fleet.inspection import UnknownNodeError, inspect, inspection_json, inspection_text
from exporter.fleet.read import MissingSeriesError
from exporter.fleet.targets import NodeLinks, TemplateError
from exporter.fleet.watch import Watch, hub_registry
from exporter.formats.advice import advice_csv
from exporter.prometheus import Prometheus, PrometheusError
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
    watch = Watch(prometheus, window=options.window, interval=options.refresh)
    ticker = Ticker()
    pages = FleetPages(lambda: watch.newest, links, settings.gpu_hour_price)
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


FAILED = 1


async def inspect_cluster(settings: Settings, names: Sequence[str], *, output: str, details: bool) -> int:
    """Print the named nodes, or all, and return the exit code: 1 if something could not be read.

    Raises SettingsError without a Prometheus.
    """
    prometheus = prometheus_of(settings)
    try:
        inspection = await inspect(prometheus, names, details=details, idle_after=settings.idle_after)
    except (PrometheusError, MissingSeriesError, UnknownNodeError) as error:
        sys.stderr.write(f"gpuslice-exporter: {error}\n")
        return FAILED
    finally:
        await prometheus.close()
    if output == "json":
        print_text(json.dumps(inspection_json(inspection, details=details), indent=2) + "\n")
    else:
        print_text(inspection_text(inspection, details=details))
    return FAILED if inspection.problems else 0


async def advise_cluster(settings: Settings, namespace: str, *, output: str) -> int:
    """Print the advice on a namespace, or on all, and return the exit code: 1 if something could not be read.

    Raises SettingsError without a Prometheus.
    """
    prometheus = prometheus_of(settings)
    try:
        found = await read_advice(prometheus, namespace)
    except (PrometheusError, NoRecordsError) as error:
        sys.stderr.write(f"gpuslice-exporter: {error}\n")
        return FAILED
    finally:
        await prometheus.close()
    if output == "json":
        print_text(json.dumps(cluster_advice_json(found, settings.gpu_hour_price), indent=2) + "\n")
    elif output == "csv":
        print_text(advice_csv(found.advices))
        sys.stderr.writelines(f"not known: {problem}\n" for problem in found.problems)
    else:
        print_text(advice_text(found))
    return FAILED if found.problems else 0
