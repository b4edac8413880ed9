"""Asking many questions at once, so that one that fails costs only what stands on it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from exporter.fleet.model import Target
from exporter.prometheus import Prometheus, PrometheusError, Sample

# A Prometheus evaluates 20 at a time by default, and others want answers too.
_AT_ONCE = 4

Figures: TypeAlias = Mapping[Target, float]


class Answers:
    """The answers to questions, by their names; ``problems`` are those that failed, and why."""

    def __init__(self, samples: Mapping[str, Sequence[Sample]], problems: Mapping[str, str]) -> None:
        self._samples = samples
        self.problems = problems

    def samples(self, name: str) -> Sequence[Sample]:
        """Give an answer, nothing where it failed."""
        return self._samples.get(name, ())

    def figures(self, name: str) -> Figures | None:
        """Give an answer by target, None where it failed."""
        found = self._samples.get(name)
        return None if found is None else {target_of(sample): sample.value for sample in found}


def target_of(sample: Sample) -> Target:
    """Tell which target a sample is of."""
    return Target(*(sample.labels.get(name, "") for name in Target._fields))


async def ask(prometheus: Prometheus, expressions: Mapping[str, str], at: float) -> Answers:
    """Evaluate expressions as of one Unix time."""
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
