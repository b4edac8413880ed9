"""Commands on a cluster, from a Prometheus: ``hub`` serves its page, the others print."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from exporter.config import Settings, SettingsError
from exporter.fleet.cluster_advice import advice_text, cluster_advice_json
from exporter.fleet.cluster_source import ClusterWatch, api_of_hub
from exporter.fleet.csv_tables import holders_csv, missing_holders, nodes_csv
from exporter.fleet.json_data import inspection_json
from exporter.fleet.model import Node
from exporter.fleet.narrowed import inspection_of, read_advice_of
from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pages.routes import FleetPages, make_hub_app
from exporter.fleet.pages.usage import UsagePages
from exporter.fleet.pages.waiting_routes import WaitingPages
from exporter.fleet.pod import read_pod
from exporter.fleet.pod_json import pod_json
from exporter.fleet.pod_text import pod_text
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.request_headers import HeaderError
from exporter.fleet.targets import MissingSeriesError, UnknownNameError
from exporter.fleet.text import inspection_text
from exporter.fleet.usage.prices import read_prices
from exporter.fleet.waiting_watch import WaitingWatch
from exporter.fleet.watch import Inspection, Watch, inspect
from exporter.formats.advice import advice_csv
from exporter.output import print_text, terminal_width
from exporter.server_process import run_until, shutdown_signals, tune_malloc
from exporter.web.kit.auth import access_of
from exporter.web.kit.http.server import Server
from exporter.web.kit.live.broadcaster import Ticker
from exporter.wording import printable

# Queries of a large cluster take Prometheus a while.
_DEADLINE = 60.0
FAILED = 1
_CODES = {"holds": 0, "unknown": FAILED, "held": 3, "none": 4}
Result = TypeVar("Result")


def prometheus_of(settings: Settings) -> Prometheus:
    """Return the client of the Prometheus in the settings; raises SettingsError."""
    if settings.prometheus_url is None:
        raise SettingsError(
            "no Prometheus is set: set --prometheus-url or GPUSLICE_PROMETHEUS_URL to one that scrapes the "
            "nodes, such as http://localhost:9090 with: "
            "kubectl -n monitoring port-forward svc/prometheus-operated 9090"
        )
    try:
        return Prometheus(
            settings.prometheus_url,
            token_file=settings.prometheus_token_file,
            headers=settings.prometheus_header,
            header_file=settings.prometheus_header_file,
            ca_file=settings.prometheus_ca_file,
            deadline=_DEADLINE,
        )
    except HeaderError as error:
        raise SettingsError(str(error)) from None


async def read_once(settings: Settings, read: Callable[[Prometheus], Awaitable[Result]]) -> Result | None:
    """Return what is read from Prometheus; None if it cannot be, after printing the reason."""
    prometheus = prometheus_of(settings)
    try:
        return await read(prometheus)
    except (PrometheusError, MissingSeriesError, UnknownNameError) as error:
        sys.stderr.write(f"gpuslice-exporter: {error}\n")
        return None
    finally:
        await prometheus.close()


async def hub(  # noqa: PLR0913 - by keyword: its options
    settings: Settings,
    announce: Callable[[str], None],
    *,
    refresh: float,
    window: float,
    node_url_template: str,
    namespaces: Sequence[str] = (),
) -> None:
    """Serve until a shutdown signal: the cluster is read every ``refresh`` seconds.

    GPU-hours are summed over ``window`` seconds. The template is the URL of a node's page, with placeholders.
    If there are ``namespaces``, only their holders are shown.
    ``announce`` is called with the URL of the hub once it answers. Raises SettingsError for an invalid
    setting, and ListenError.
    """
    tune_malloc()
    with shutdown_signals() as shutdown:
        node_url = NodeUrl(node_url_template)
        access = access_of(settings.web_config)
        prices = None if settings.prices is None else read_prices(settings.prices)
        prometheus = prometheus_of(settings)
        watch = Watch(prometheus, window=window, interval=refresh)
        cluster = ClusterWatch(prometheus, api_of_hub(settings))
        waiting = _waiting(prometheus, cluster, watch, refresh)
        ticker, only = Ticker(), tuple(namespaces)
        app = make_hub_app(
            FleetPages(lambda: watch.newest, node_url, settings.gpu_hour_price, only),
            ticker,
            waiting=WaitingPages(lambda: waiting.newest, lambda: _nodes(watch), node_url, only),
            usage=UsagePages(prometheus, prices, only),
            prefix=settings.route_prefix or "",
            frame_ancestors=settings.frame_ancestors,
        )
        server = Server(app, settings.listen, access=access)
        url = await server.start()
        watching = asyncio.create_task(
            _together(watch.run(ticker.tick), cluster.run(), waiting.run(ticker.tick))
        )
        announce(url)
        try:
            await run_until(shutdown, watching)
        finally:
            await server.stop()
            await prometheus.close()


def _waiting(prometheus: Prometheus, cluster: ClusterWatch, watch: Watch, interval: float) -> WaitingWatch:
    return WaitingWatch(
        prometheus, lambda: cluster.view, lambda: watch.newest.advice.found, interval=interval
    )


def _nodes(watch: Watch) -> tuple[Node, ...]:
    fleet = watch.newest.fleet
    return fleet.nodes if fleet else ()


async def _together(*works: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


async def inspect_cluster(
    settings: Settings, names: Sequence[str], namespaces: Sequence[str], *, output: str, details: bool
) -> int:
    """Print the named nodes, or all, and return the exit code: 1 if something could not be read.

    With ``details`` their holders are printed, with ``namespaces`` the holders in these. Raises SettingsError
    without a Prometheus.
    """
    holders = details or bool(namespaces)

    async def read(prometheus: Prometheus) -> Inspection:
        idle_after = settings.idle_after
        whole = await inspect(prometheus, names, details=details, idle_after=idle_after, holders=holders)
        return await inspection_of(prometheus, whole, namespaces)

    inspection = await read_once(settings, read)
    if inspection is None:
        return FAILED
    if output == "csv":
        nodes = (node for node, _ in inspection.nodes)
        print_text(holders_csv(inspection) if holders else nodes_csv(nodes))
        print_unknown(f"{name}: {why}" for name, why in inspection.problems)
        print_unknown(missing_holders(inspection) if holders else ())
    elif output == "json":
        print_text(json.dumps(inspection_json(inspection, details=holders), indent=2) + "\n")
    else:
        print_text(inspection_text(inspection, details=holders, width=terminal_width()))
    return FAILED if inspection.problems else 0


def print_unknown(problems: Iterable[str]) -> None:
    """Print what a table for programs does not have, beside it."""
    sys.stderr.writelines(f"not known: {printable(problem)}\n" for problem in problems)


async def advise_cluster(settings: Settings, namespaces: Sequence[str], *, output: str) -> int:
    """Print the advice on these namespaces, or on all.

    Return the exit code: 1 if something could not be read. Raises SettingsError without a Prometheus.
    """
    found = await read_once(settings, lambda prometheus: read_advice_of(prometheus, namespaces))
    if found is None:
        return FAILED
    if output == "json":
        print_text(json.dumps(cluster_advice_json(found, settings.gpu_hour_price), indent=2) + "\n")
    elif output == "csv":
        print_text(advice_csv(found.advices))
        print_unknown(found.problems)
    else:
        print_text(advice_text(found, terminal_width()))
    return FAILED if found.problems else 0


async def describe_pod(
    settings: Settings, namespace: str, pod: str, *, output: str, node_url_template: str
) -> int:
    """Print what a pod holds and uses, and return the exit code of ``HELP``.

    Raises SettingsError without a Prometheus, or for a template that is not valid.
    """
    node_url = NodeUrl(node_url_template)
    found = await read_once(
        settings,
        lambda prometheus: read_pod(
            prometheus, namespace, pod, idle_after=settings.idle_after, node_url=node_url
        ),
    )
    if found is None:
        return FAILED
    if output == "json":
        print_text(json.dumps(pod_json(found, settings.gpu_hour_price), indent=2) + "\n")
    else:
        print_text(pod_text(found, terminal_width()))
    return FAILED if found.problems else _CODES[found.state]
