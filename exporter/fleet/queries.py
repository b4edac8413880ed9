"""The queries for Prometheus, sent separately: one that fails affects only the values that need it.

Those for the whole cluster ask recording rules, and series of which each node has one.
"""

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from exporter.fleet.cluster_model import Target
from exporter.prometheus import Prometheus, PrometheusError, Sample

TARGET = "cluster, job, instance"
# A target that is gone for longer than this counts as removed.
SEEN = "15m"
# A target that no longer answers is remembered by its values at one of these times ago.
REMEMBERED = ("1h", "3h", "12h", "1d", "3d", "7d")

SNAPSHOT = "gpuslice_snapshot_timestamp_seconds"
NODE_INFO = "gpuslice_node_info"
CLOCK = "vector(time())"

NEWEST = f"topk by (cluster, node) (1, {SNAPSHOT})"
"""The target with the newest data of each node."""

KNOWN = f"max by ({TARGET}, node) (last_over_time({NODE_INFO}[{SEEN}]))"
"""The targets that answer, or did so recently."""

LAST = f"max by ({TARGET}) (last_over_time({SNAPSHOT}[{SEEN}]))"
DOWN = f"max by ({TARGET}) (up == 0)"
"""All targets that cannot be scraped, not only exporters."""

RECORDED = "count(node:gpuslice_exporters:count)"
"""Without a value the recording rules are not loaded, or no exporter answers."""


def of(metric: str, label: str, values: Iterable[str]) -> str:
    """Return a selector of a metric with one of some values of a label."""
    pattern = "|".join(re.escape(value) for value in sorted(set(values)))
    return f"{metric}{{{label}=~{json.dumps(pattern)}}}"


def some(metric: str, label: str, values: Collection[str]) -> str:
    """Return the same, or the metric if there are too many values for a query."""
    return of(metric, label, values) if len(values) <= _MANY else metric


def former(instances: Collection[str]) -> str:
    """Return the nodes that these targets reported at one of the REMEMBERED times."""
    info = some(NODE_INFO, "instance", instances)
    return f"max by ({TARGET}, node) ({' or '.join(f'{info} offset {ago}' for ago in REMEMBERED)})"


# A regular expression of more values is slower than all series.
_MANY = 500
# Prometheus runs 20 queries at a time by default, and has other clients.
_AT_ONCE = 4

Figures: TypeAlias = Mapping[Target, float]
Sums: TypeAlias = Mapping[tuple[str, ...], float]


class Answers:
    """Answers to queries by name; ``problems`` are the failed queries and their errors."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]], problems: dict[str, str]) -> None:
        self._samples = samples
        self.problems = problems

    def samples(self, name: str) -> Sequence[Sample]:
        """Return an answer, empty if its query failed."""
        return self._samples.get(name, ())

    def figures(self, name: str) -> Figures | None:
        """Return an answer by target, None if its query failed."""
        samples = self._samples.get(name)
        return None if samples is None else {target_of(sample): sample.value for sample in samples}

    def sums(self, name: str, *labels: str) -> Sums | None:
        """Return the sums of an answer by some labels, None if its query failed."""
        samples = self._samples.get(name)
        if samples is None:
            return None
        sums: dict[tuple[str, ...], float] = {}
        for sample in samples:
            key = tuple(sample.labels.get(label, "") for label in labels)
            sums[key] = sums.get(key, 0.0) + sample.value
        return sums


def target_of(sample: Sample) -> Target:
    """Return the target of a sample."""
    return Target(*(sample.labels.get(name, "") for name in Target._fields))


async def ask(prometheus: Prometheus, expressions: Mapping[str, str], at: float) -> Answers:
    """Return the values of expressions at one Unix time."""
    samples: dict[str, list[Sample]] = {}
    problems: dict[str, str] = {}
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str, expression: str) -> None:
        async with turns:
            try:
                samples[name] = await prometheus.query(expression, at)
            except PrometheusError as error:
                problems[name] = str(error)

    async with asyncio.TaskGroup() as group:
        for name, expression in expressions.items():
            group.create_task(one(name, expression))
    return Answers(samples, problems)
