"""What is measured inside the process of the program, apart from its polls; times are CPU seconds.

It is compared with the calls to driver and kubelet that a poll cannot do without, with nothing around them,
and with prometheus_client.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pynvml
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import generate_latest

from benchmarks.bench import Bench
from exporter.exposition import Exposition, Format
from exporter.metrics import ENTITIES, FAMILIES, Family
from exporter.metrics.selection import Selection
from exporter.model import Snapshot
from exporter.nvml.driver.binding import CORRECTED
from podresources import messages
from podresources.channel import target

Call = tuple[Callable[..., Any], tuple[Any, ...]]
# It waits for events in a thread of its own, and is not a part of a poll.
_WAITS = "nvmlEventSetWait"
# Its wrapper takes a record from the caller, which is one more argument.
_MADE_BY_CALLER = "nvmlDeviceGetGpuFabricInfoV"
# Bytes; the files of a process that are read are shorter.
_READ_BYTES = 4096
_LISTS = (
    (messages.LIST_V1, messages.ListPodResourcesResponse),
    (messages.ALLOCATABLE_V1, messages.AllocatableResourcesResponse),
)


class _Within(threading.local):
    """Whether this thread is inside a wrapper already: one may call another."""

    call = False


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Record each call of a wrapper of the binding inside the block, by any thread.

    Where the exporter replaces a wrapper by its own, the binding's is recorded. Replay before the next poll:
    arguments may point to memory of the caller.
    """
    calls: list[Call] = []
    within = _Within()

    def recording(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        bare = function if name == _MADE_BY_CALLER else wrappers.get(name, function)

        def record(*arguments: Any) -> Any:
            if within.call or name.startswith(_WAITS):
                return function(*arguments)
            calls.append((bare, arguments))
            within.call = True
            try:
                return function(*arguments)
            finally:
                within.call = False

        return record

    wrappers = {
        name: value for name, value in vars(pynvml).items() if name.startswith("nvml") and callable(value)
    }
    # The exporter holds this object, so its items are replaced in place.
    table = cast("dict[str, Callable[..., Any]]", CORRECTED)
    corrected = dict(table)
    vars(pynvml).update({name: recording(name, value) for name, value in wrappers.items()})
    table.update({name: recording(name, value) for name, value in corrected.items()})
    try:
        yield calls
    finally:
        vars(pynvml).update(wrappers)
        table.update(corrected)


def replay(calls: list[Call]) -> None:
    """Make the calls again, and drop the answers."""
    for function, arguments in calls:
        with suppress(pynvml.NVMLError):
            function(*arguments)


@contextmanager
def idle_driver() -> Iterator[None]:
    """Replace the open driver by one that does nothing: what is left of a call is the binding."""
    pynvml.nvmlLib, library = _Idle(), pynvml.nvmlLib
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - the binding has no public way
    try:
        yield
    finally:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - as above


class _Idle:
    """A library whose functions all return success."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: pynvml.NVML_SUCCESS


async def ask_kubelet(pod_resources: Path, pods: Path) -> None:
    """Make the kubelet calls of a poll by bare gRPC stubs, and parse the answers by protobuf."""
    async with _channel(pod_resources) as channel:
        for method, answer in _LISTS:
            await channel.unary_unary(method, response_deserializer=answer.FromString)(b"")
    if await asyncio.to_thread(pods.exists):
        async with _channel(pods) as channel:
            answer = messages.ListPodsResponse.FromString
            listed = await channel.unary_unary(messages.LIST_PODS, response_deserializer=answer)(b"")
        for payload in listed.pods:
            messages.Pod.FromString(payload)


def read_places(proc_root: str, pids: Iterable[int]) -> None:
    """Read the cgroup and the start time of each process by system calls."""
    for pid in pids:
        for name in ("stat", "cgroup"):
            file = os.open(f"{proc_root}/{pid}/{name}", os.O_RDONLY)
            os.read(file, _READ_BYTES)
            os.close(file)


def _channel(path: Path) -> grpc.aio.Channel:
    authority = ("grpc.default_authority", "localhost")
    return grpc.aio.insecure_channel(target(str(path)), (authority,))


# They keep rendered labels from page to page, as that of the program does.
_WHOLE, _NATIVE = Exposition(), Exposition(Selection(metric_set="full", dcgm_names="off"))
_KINDS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "info": InfoMetricFamily}


async def _bare(bench: Bench, times: int) -> dict[str, Any]:
    """Poll once, and repeat the bare calls of that poll ``times`` times.

    ``driver`` and ``kubelet`` are the calls that a poll cannot do without, ``binding`` those to a driver that
    does nothing, ``files`` reading from /proc where processes run.
    """
    with recorded() as calls:
        await bench.poll()
    settings, workloads = bench.poller.settings, bench.poller.evidence.workloads
    pids = list(workloads.places) if workloads is not None else []
    taken: dict[str, list[float]] = {"driver": [], "binding": [], "kubelet": [], "files": []}
    for _ in range(times):
        taken["driver"].append(_cpu(partial(replay, calls)))
        with idle_driver():
            taken["binding"].append(_cpu(partial(replay, calls)))
        start = time.process_time()
        await ask_kubelet(settings.pod_resources_socket, settings.pods_api_socket)
        taken["kubelet"].append(time.process_time() - start)
        taken["files"].append(_cpu(partial(read_places, str(settings.proc_root), pids)))
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
