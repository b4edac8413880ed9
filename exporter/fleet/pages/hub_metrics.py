"""Series of the hub itself: its reads of the cluster, and the pods that wait."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exporter.fleet.waiting_watch import WaitingRead
from exporter.fleet.watch import FleetRead


class WaitingMetrics(Collector):
    """The numbers of pods that wait, as series."""

    def __init__(self, current: Callable[[], WaitingRead]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        """Yield the series; there are none while the pods are not known."""
        read = self._current()
        if read.waiting is None or read.waiting.answers is None:
            return
        pods = GaugeMetricFamily(
            "gpuslice_waiting_pods",
            "Pods that wait for a device, by resource (other: no node offers it; claim: a resource claim) "
            "and by the first reason that holds.",
            labels=("resource", "reason"),
        )
        for (resource, reason), number in sorted(read.counts.by_reason.items()):
            pods.add_metric((resource, reason), number)
        yield pods
        idle = GaugeMetricFamily(
            "gpuslice_waiting_pods_blocked_by_idle",
            "Pods that wait and, as far as is judged, would fit a node without an idle pod there.",
            labels=("resource",),
        )
        for resource, number in sorted(read.counts.by_idle.items()):
            idle.add_metric((resource,), number)
        yield idle


class HubMetrics(Collector):
    """The state of reading the cluster, as series."""

    def __init__(self, current: Callable[[], FleetRead]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        """Yield the series."""
        read = self._current()
        yield _counter("reads", "Reads of the cluster from Prometheus, failed ones too.", read.reads)
        yield _counter("read_failures", "Reads of the cluster that failed.", read.failures)
        succeeded = bool(read.reads) and not read.error
        yield _gauge("up", "1 if the newest read of the cluster succeeded.", int(succeeded))
        if read.read_at is not None:
            text = "Unix time of the newest successful read of the cluster."
            yield _gauge("last_success_timestamp_seconds", text, read.read_at)
        if read.seconds is not None:
            yield _gauge("read_duration_seconds", "Duration of the newest read of the cluster.", read.seconds)
        if read.fleet is not None:
            yield _gauge("nodes", "Nodes that Prometheus has series of.", len(read.fleet.nodes))
            yield _gauge("nodes_silent", "Nodes that do not answer.", len(read.fleet.silent))
            yield _gauge("problems", "Queries of the newest read that failed.", len(read.fleet.problems))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"gpuslice_hub_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpuslice_hub_{name}", text, value=value)
