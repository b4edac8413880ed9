"""What the hub says of itself: when it last saw the cluster, and how its looks go."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exporter.fleet.watch import Look
from exporter.selfmetrics import SelfMetrics


def hub_registry(current: Callable[[], Look]) -> CollectorRegistry:
    """Make a registry with the hub's own series, those of its process and of its build."""
    registry = SelfMetrics().registry
    registry.register(_Looks(current))
    return registry


class _Looks(Collector):
    def __init__(self, current: Callable[[], Look]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        look = self._current()
        looks = CounterMetricFamily("gpuslice_hub_looks", "Times that the cluster was looked at.")
        looks.add_metric((), look.looks)
        yield looks
        failures = CounterMetricFamily("gpuslice_hub_failures", "Looks at the cluster that failed.")
        failures.add_metric((), look.failures)
        yield failures
        yield _gauge(
            "up", "1 if the newest look at the cluster succeeded.", int(bool(look.looks) and not look.error)
        )
        if look.read_at is not None:
            text = "Unix time of the newest look at the cluster that succeeded."
            yield _gauge("last_success_timestamp_seconds", text, look.read_at)
        if look.seconds is not None:
            yield _gauge("duration_seconds", "How long the newest look at the cluster took.", look.seconds)
        if look.fleet is not None:
            yield _gauge("nodes", "Nodes that are known.", len(look.fleet.nodes))
            yield _gauge("nodes_silent", "Nodes that do not answer.", len(look.fleet.silent))
            yield _gauge("problems", "Questions of the newest look that failed.", len(look.fleet.problems))


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gpuslice_hub_{name}", text, value=value)
