"""What is measured inside the process of the program, beside its polls; times are seconds of a processor."""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from benchmarks import bare
from benchmarks.by_hand import Bench
from benchmarks.collector import TableCollector
from exporter.exposition.page import Exposition, Format, Page
from exporter.model import Snapshot

# They keep what they have spelt once, as that of the program does.
_WHOLE, _NATIVE = Exposition(), Exposition(dcgm_names="off")


async def _bare(bench: Bench, times: int) -> dict[str, Any]:
    """Poll once, and make the calls of that poll so many times, with nothing around them.

    ``driver`` and ``kubelet`` are those that a poll cannot do without, ``binding`` those to a driver that
    does nothing, ``files`` is reading where processes run.
    """
    with bare.recorded() as calls:
        await bench.poll()
    settings, workloads = bench.poller.settings, bench.poller.evidence.workloads
    pids = list(workloads.places) if workloads is not None else []
    found: dict[str, Any] = {"calls": len(calls), "driver": [], "binding": [], "kubelet": [], "files": []}
    for _ in range(times):
        found["driver"].append(_taken(partial(bare.replay, calls)))
        with bare.idle_driver():
            found["binding"].append(_taken(partial(bare.replay, calls)))
        start = time.process_time()
        await bare.ask_kubelet(settings.pod_resources_socket, settings.pods_api_socket)
        found["kubelet"].append(time.process_time() - start)
        found["files"].append(_taken(partial(bare.read_places, str(settings.proc_root), pids)))
    return found


async def _render(bench: Bench, times: int) -> dict[str, Any]:
    """Poll so many times, and render each snapshot: whole, and its native families in two ways.

    ``page`` and ``gzip`` are of the page that is served; ``native`` and ``client`` are the native families,
    by the exporter and by a collector of prometheus_client.
    """
    times_of: dict[str, list[float]] = {"page": [], "gzip": [], "native": [], "client": []}
    for _ in range(times):
        snapshot, _ = await bench.poll()
        page = _WHOLE.page(snapshot)
        times_of["page"].append(_taken(partial(page.body, Format.TEXT)))
        times_of["gzip"].append(_taken(partial(page.gzipped, Format.TEXT)))
        times_of["native"].append(_taken(partial(_NATIVE.page(snapshot).families, Format.TEXT)))
        times_of["client"].append(_taken(partial(generate_latest, _registry(snapshot))))
    return {**times_of, **_size(page), "holders": len(snapshot.containers)}


def _size(page: Page) -> dict[str, int]:
    body, zipped = page.body(Format.TEXT), page.gzipped(Format.TEXT)
    samples = sum(not line.startswith(b"#") for line in body.splitlines())
    return {"samples": samples, "plain_bytes": len(body), "gzip_bytes": len(zipped)}


def _registry(snapshot: Snapshot) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(TableCollector(snapshot))
    return registry


def _taken(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


PARTS: Mapping[str, Callable[[Bench, int], Awaitable[dict[str, Any]]]] = {"bare": _bare, "render": _render}
"""By the name of the request."""
