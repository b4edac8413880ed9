"""Queries for Prometheus, sent separately: one that fails costs only the values that need it."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from exporter.fleet.model import Target
from exporter.fleet.prometheus import PartialVector, Prometheus, PrometheusError, Sample
from exporter.model import ContainerRef

# A regular expression of more values is slower than all series.
_MOST_VALUES = 500
# Prometheus runs 20 queries at a time by default, and has other clients.
_AT_ONCE = 4
# Series that have ended are remembered by their values at one of these times ago.
_REMEMBERED = ("1h", "3h", "12h", "1d", "3d", "7d")

Level: TypeAlias = Literal["node", "namespace"]
Place: TypeAlias = tuple[str, ...]  # a cluster, and a node or namespace of it
Sums: TypeAlias = Mapping[tuple[str, ...], float]
SumsByPlace: TypeAlias = Mapping[Place, Sums]


def selector(metric: str, label: str, values: Iterable[str]) -> str:
    """Return a selector of a metric with one of some values of a label."""
    pattern = "|".join(re.escape(value) for value in sorted(set(values)))
    return f"{metric}{{{label}=~{json.dumps(pattern)}}}"


def selector_or_all(metric: str, label: str, values: Collection[str]) -> str:
    """Return the same, or the metric if there are too many values for a query."""
    return selector(metric, label, values) if len(values) <= _MOST_VALUES else metric


def earlier(selected: str) -> str:
    """Return a query for selected series as they were at one of some times in the last week."""
    return " or ".join(f"{selected} offset {ago}" for ago in _REMEMBERED)


class HolderKey(NamedTuple):
    """A container on a device, by labels; without a container it is the device."""

    cluster: str
    node: str
    uuid: str
    mig_uuid: str
    namespace: str = ""
    pod: str = ""
    container: str = ""

    @property
    def holder(self) -> ContainerRef:
        """The container."""
        return ContainerRef(self.namespace, self.pod, self.container)


def holder_key(sample: Sample) -> HolderKey:
    """Return the container on a device that a sample is about."""
    return HolderKey(*sample.texts(*HolderKey._fields))


def target_of(sample: Sample) -> Target:
    """Return the target of a sample."""
    return Target(*sample.texts(*Target._fields))


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to queries, by the name of the query."""

    _samples: Mapping[str, Sequence[Sample]]
    problems: Mapping[str, str]  # the failed queries and their errors

    def samples(self, name: str) -> Sequence[Sample]:
        """Return an answer, empty if its query failed."""
        return self._samples.get(name, ())

    @property
    def names(self) -> Sequence[str]:
        """The names of the queries with an answer."""
        return tuple(self._samples)

    def by_target(self, name: str) -> dict[Target, float]:
        """Return an answer by target, empty if its query failed."""
        return {target_of(sample): sample.value for sample in self.samples(name)}

    def sums(self, name: str, *labels: str) -> Sums | None:
        """Return the sums of an answer by some labels, None if its query failed."""
        if name not in self._samples:
            return None
        sums: dict[tuple[str, ...], float] = defaultdict(float)
        for sample in self._samples[name]:
            sums[sample.texts(*labels)] += sample.value
        return sums

    def by_place(self, name: str, level: Level, *labels: str, value: str = "") -> SumsByPlace | None:
        """Return the sums of each place by further labels, None if the query failed.

        ``value`` selects the samples that have it as a label.
        """
        if name not in self._samples:
            return None
        places: dict[Place, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
        for sample in self._samples[name]:
            if not value or sample.text("value") == value:
                places[sample.texts("cluster", level)][sample.texts(*labels)] += sample.value
        return places


async def ask(prometheus: Prometheus, expressions: Mapping[str, str], at: float) -> Answers:
    """Return the values of expressions at one Unix time."""
    samples: dict[str, list[Sample]] = {}
    problems: dict[str, str] = {}
    turns = asyncio.Semaphore(_AT_ONCE)

    async def ask_one(name: str, expression: str) -> None:
        async with turns:
            try:
                samples[name] = await prometheus.query(expression, at)
            except PrometheusError as error:
                problems[name] = str(error)

    async with asyncio.TaskGroup() as group:
        for name, expression in expressions.items():
            group.create_task(ask_one(name, expression))
    return Answers(samples, problems)


async def ask_whole(prometheus: Prometheus, expressions: Mapping[str, str], at: float) -> Answers:
    """Return the same; an answer in which the server warns that samples may be missing counts as failed."""
    answers = await ask(prometheus, expressions, at)
    samples: dict[str, Sequence[Sample]] = {}
    problems = dict(answers.problems)
    for name in answers.names:
        found = answers.samples(name)
        if isinstance(found, PartialVector):
            problems[name] = f"the answer of Prometheus is not complete: {found.warning}"
        else:
            samples[name] = found
    return Answers(samples, problems)
