#!/usr/bin/env python3
"""How much faster the renderer is than a custom collector of prometheus_client on the same families.

Run as ``python benchmarks/exposition.py [containers]``. It prints, for a node with that many containers,
the time of one page made either way, the ratio, and the time of one sample. Times are those of the best
of many rounds; the ratio is what travels between machines.
"""

import sys
from collections.abc import Callable, Iterator
from timeit import repeat
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import generate_latest

from exporter.exposition import Exposition, Format
from exporter.metrics import ENTITIES, FAMILIES, AnyFamily, Family
from exporter.model import ContainerRef, ContainerRow, DeviceKey, NodeRow, Snapshot, Totals

_ROUNDS = 15
_KINDS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "info": InfoMetricFamily}


def main(containers: int) -> None:
    """Measure and print."""
    snapshot = _snapshot(containers)
    exposition = Exposition(dcgm_names="off")
    registry = CollectorRegistry()
    registry.register(_TableCollector(snapshot))
    samples = sum(not line.startswith(b"#") for line in generate_latest(registry).splitlines())
    ours = _best(lambda: exposition.page(snapshot).body(Format.TEXT))
    blocks = _best(lambda: exposition.blocks(snapshot))
    client = _best(lambda: generate_latest(registry))
    _report("prometheus_client, custom collector", client, samples)
    _report("our page", ours, samples)
    _report("of which the samples", blocks, samples)
    sys.stdout.write(f"ratio: {client / ours:.0f}\n")


def _report(what: str, seconds: float, samples: int) -> None:
    each = seconds / samples * 1e6
    sys.stdout.write(f"{what:<36}{seconds * 1e3:8.2f} ms for {samples} samples, {each:.2f} us each\n")


def _best(work: Callable[[], object]) -> float:
    return min(repeat(work, number=1, repeat=_ROUNDS))


def _snapshot(containers: int) -> Snapshot:
    return Snapshot(
        timestamp=1.7e9,
        sequence=1,
        node=NodeRow(name="node", gpu_count=8, process_view=True),
        containers=tuple(_container(index) for index in range(containers)),
    )


def _container(index: int) -> ContainerRow:
    return ContainerRow(
        holder=ContainerRef(f"team-{index % 40}", f"notebook-{index}-7f9c4d5b8-x2x9z", "main"),
        device=DeviceKey(f"GPU-5a1c1e1e-0000-0000-0000-{index % 8:012d}"),
        resource="nvidia.com/gpu.shared",
        sharing="time-slicing",
        slices=1,
        memory_entitled=4_294_967_296,
        memory_used=3_221_225_472 + index,
        compute_entitled=0.1,
        compute_used=(index % 100) / 100,
        processes=1,
        totals=Totals(
            first_seen=1.69e9,
            entitled_gpu_seconds=index * 1.5,
            used_gpu_seconds=index * 1.25,
            energy_joules=index * 100.5,
            last_active=1.7e9,
        ),
    )


class _TableCollector:
    """The native families as a custom collector of prometheus_client gives them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 450)
