"""What is measured inside the process of the program, apart from its polls; times are CPU seconds."""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import generate_latest

from benchmarks import bare
from benchmarks.by_hand import Bench
from exporter.exposition.page import Exposition, Format
from exporter.metrics import ENTITIES, FAMILIES, Family
from exporter.metrics.selection import Selection
from exporter.model import Snapshot

# They keep rendered labels from page to page, as that of the program does.
_WHOLE, _NATIVE = Exposition(), Exposition(Selection(metric_set="full", dcgm_names="off"))
_KINDS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "info": InfoMetricFamily}


async def _bare(bench: Bench, times: int) -> dict[str, Any]:
    """Poll once, and repeat the bare calls of that poll ``times`` times.

    ``driver`` and ``kubelet`` are the calls that a poll cannot do without, ``binding`` those to a driver that
    does nothing, ``files`` reading from /proc where processes run.
    """
    with bare.recorded() as calls:
        await bench.poll()
    settings, workloads = bench.poller.settings, bench.poller.evidence.workloads
    pids = list(workloads.places) if workloads is not None else []
    taken: dict[str, list[float]] = {"driver": [], "binding": [], "kubelet": [], "files": []}
    for _ in range(times):
        taken["driver"].append(_cpu(partial(bare.replay, calls)))
        with bare.idle_driver():
            taken["binding"].append(_cpu(partial(bare.replay, calls)))
        start = time.process_time()
        await bare.ask_kubelet(settings.pod_resources_socket, settings.pods_api_socket)
        taken["kubelet"].append(time.process_time() - start)
        taken["files"].append(_cpu(partial(bare.read_places, str(settings.proc_root), pids)))
    return {"calls": len(calls), **taken}


async def _render(bench: Bench, times: int) -> dict[str, Any]:
    """Poll ``times`` times, and render each snapshot.

    ``page`` and ``gzip`` are of the page that is served; ``native`` and ``client`` are the native families,
    by the exporter and by a collector of prometheus_client.
    """
    taken: dict[str, list[float]] = {"page": [], "gzip": [], "native": [], "client": []}
    for _ in range(times):
        snapshot, _ = await bench.poll()
        page = _WHOLE.page(snapshot)
        taken["page"].append(_cpu(partial(page.body, Format.TEXT)))
        taken["gzip"].append(_cpu(partial(page.gzipped, Format.TEXT)))
        taken["native"].append(_cpu(partial(_NATIVE.page(snapshot).families, Format.TEXT)))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_TableCollector(snapshot))
        taken["client"].append(_cpu(partial(generate_latest, registry)))
    body = page.body(Format.TEXT)
    return {
        **taken,
        "samples": sum(not line.startswith(b"#") for line in body.splitlines()),
        "plain_bytes": len(body),
        "gzip_bytes": len(page.gzipped(Format.TEXT)),
        "holders": len(snapshot.containers),
    }


class _TableCollector:
    """A custom collector of prometheus_client, the usual way in Python: all native families of a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> tuple[Metric, ...]:
        """Return no family: registering must not collect them."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the families with all samples."""
        for family in FAMILIES:
            metric = _KINDS[family.type](family.name.removesuffix("_info"), family.help)
            for names, values, row in ENTITIES[family.level](self._snapshot):
                labels = dict(zip(names, values, strict=True))
                samples = [((), family.value(row))] if isinstance(family, Family) else family.samples(row)
                for extra, value in samples:
                    if value is not None:
                        own = dict(zip(family.labels, extra, strict=True))
                        metric.add_sample(family.name, labels | own, value)
            if metric.samples:
                yield metric


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


PARTS: Mapping[str, Callable[[Bench, int], Awaitable[dict[str, Any]]]] = {"bare": _bare, "render": _render}
"""By the name of the request."""
