"""The native families as a custom collector of prometheus_client gives them: what is usual in Python."""

from collections.abc import Iterator
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from exporter.metrics import ENTITIES, FAMILIES, AnyFamily, Family
from exporter.model import Snapshot

_KINDS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "info": InfoMetricFamily}


class TableCollector:
    """Collects all native families of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> tuple[Metric, ...]:
        """Name no family: registering must not collect them."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Make all samples, as the client library has it."""
        for family in FAMILIES:
            metric = _KINDS[family.type](family.name.removesuffix("_info"), family.help)
            for labels, value in self._samples(family):
                metric.add_sample(family.name, labels, value)
            if metric.samples:
                yield metric

    def _samples(self, family: AnyFamily) -> Iterator[tuple[dict[str, str], Any]]:
        for names, values, row in ENTITIES[family.level](self._snapshot):
            own = dict(zip(names, values, strict=True))
            found = [((), family.value(row))] if isinstance(family, Family) else family.samples(row)
            for extra, value in found:
                if value is not None:
                    yield own | dict(zip(family.labels, extra, strict=True)), value
