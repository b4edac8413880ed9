"""The hub without a record or one of its rows, on clusters made at random: no number is another one."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from exporter.fleet import namespaces, nodes, sick_and_idle, targets
from exporter.fleet.json_data import fleet_json
from exporter.fleet.prometheus import Sample
from exporter.fleet.targets import CLOCK, MissingSeriesError
from exporter.fleet.watch import read_fleet
from tests.fleet.answering import AT
from tests.fleet.weaker import Recorded, changes

WINDOW = 3600
QUESTIONS = (
    targets.QUESTIONS | nodes.QUESTIONS | namespaces.namespace_questions(WINDOW) | sick_and_idle.QUESTIONS
)
SLICE = "nvidia.com/gpu"
# Sums that the rules record as 0 if there are no holders.
ZERO = ("idle_holders", "held_gpus", "idle_gpus", "held_bytes", "unused_gpus", "unused_bytes")
GIB = 2.0**30
Rows = dict[tuple[tuple[str, str], ...], float]


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container on a GPU; what it holds and uses in GPUs and in bytes, None if that is not known."""

    namespace: str
    slices: int | None
    held: tuple[float | None, float | None]
    used: tuple[float | None, float | None]
    idle: bool


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU; ``sick`` is whether it has a condition."""

    uuid: str
    model: str
    sharing: str
    sick: bool
    containers: list[Container] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node."""

    cluster: str
    name: str
    gpus: list[Gpu]


def cluster(seed: int, *, known: bool) -> list[Node]:
    """Return the nodes of a cluster; if ``known``, every value is."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets

    def maybe(value: float) -> float | None:
        return value if known or chance.random() < 0.8 else None

    def container() -> Container:
        slices = chance.choice((0, 1, 1, 2))
        return Container(
            namespace=chance.choice(("ml", "dev", "batch")),
            slices=None if maybe(0) is None else slices,
            held=(maybe(slices / 4), maybe(slices * GIB)) if slices else (None, None),
            used=(maybe(chance.choice((0.0, 0.3))), maybe(chance.randrange(3) * GIB)),
            idle=chance.random() < 0.5,
        )

    def gpu(name: str) -> Gpu:
        return Gpu(
            uuid=name,
            model=chance.choice(("T4", "H100")),
            sharing=chance.choice(("exclusive", "time-slicing", "hami")),
            sick=chance.random() < 0.3,
            containers=[container() for _ in range(chance.randrange(3))],
        )

    return [
        Node(
            cluster=chance.choice(("", "east")),
            name=f"n{number}",
            gpus=[gpu(f"GPU-{number}-{place}") for place in range(chance.randrange(4))],
        )
        for number in range(chance.randrange(1, 4))
    ]


class Records:
    """The rows of records, by record."""

    def __init__(self, there: list[Node]) -> None:
        self.rows: dict[str, Rows] = defaultdict(lambda: defaultdict(float))
        for node in there:
            self._node(node)
        for level in ("node", "namespace"):
            without = [row for row, count in self.rows[f"{level}:gpuslice_holders:sum"].items() if not count]
            for name in ZERO:
                for row in without:
                    self.rows[f"{level}:gpuslice_{name}:sum"].setdefault(row, 0.0)

    def add(self, record: str, amount: float | None, /, **labels: str) -> None:
        """Add a value to a row of a record."""
        if amount is not None:
            self.rows[record][tuple(sorted((name, text) for name, text in labels.items() if text))] += amount

    def _node(self, node: Node) -> None:
        here = {"cluster": node.cluster, "node": node.name}
        target = {"cluster": node.cluster, "job": "gpus", "instance": f"{node.name}:9836"}
        self.add(QUESTIONS["nodes"], 1, **target, node=node.name)
        self.add(QUESTIONS["last data"], AT - 4, **target)
        self.add(QUESTIONS["data"], AT - 4, **target)
        self.add(QUESTIONS["records"], 1)
        self.add(QUESTIONS["number of GPUs"], len(node.gpus), **here)
        self.add(QUESTIONS["released drivers"], 0, **here)
        self.add("node:gpuslice_containers:count", 0, **here)
        for gpu in node.gpus:
            self._gpu(gpu, here)

    def _gpu(self, gpu: Gpu, here: Mapping[str, str]) -> None:
        of_model = {**here, "model": gpu.model}
        holders = [one.slices for one in gpu.containers]
        self.add("node:gpuslice_total_gpus:count", 1, **of_model)
        self.add("node:gpuslice_sharing:count", 1, **here, sharing=gpu.sharing)
        self.add("node:gpuslice_total_bytes:sum", 16 * GIB, **of_model)
        self.add("node:gpuslice_unhealthy_gpus:sum", int(gpu.sick), **of_model)
        if gpu.sick:
            raised = {**here, "gpu": "0", "uuid": gpu.uuid, "condition": "lost"}
            self.add(QUESTIONS["conditions"], 1, **raised)
        for value in ("total_bytes", "conditions", "offers", *(() if None in holders else ("holders",))):
            self._known(of_model, value)
        for value, amount in (("held_slices", sum(filter(None, holders))), ("offered_slices", 4)):
            self.add(f"node:gpuslice_{value}:sum", amount, **of_model, resource=SLICE)
            self._known(of_model, value, resource=SLICE)
        self._known(of_model, "slices", resource=SLICE)
        # The rule adds 0 if no GPU has a holder.
        if not gpu.containers:
            self.add("node:gpuslice_holders:sum", 0, **of_model)
        for one in gpu.containers:
            self._container(one, of_model)

    def _known(self, labels: Mapping[str, str], value: str, **more: str) -> None:
        self.add("node:gpuslice_known_gpus:count", 1, **labels, value=value, **more)

    def _container(self, one: Container, node: Mapping[str, str]) -> None:
        namespace = {"cluster": node["cluster"], "namespace": one.namespace}
        self.add("node:gpuslice_containers:count", 1, cluster=node["cluster"], node=node["node"])
        self.add("namespace:gpuslice_containers:count", 1, **namespace)
        holds = bool(one.slices)
        idle = int(one.idle) if holds and one.used[0] == 0 else (0 if holds and one.used[0] else None)
        values: dict[str, float | None] = {
            "holders": None if one.slices is None else int(holds),
            "idle_holders": idle,
            "idle_gpus": None if idle is None or one.held[0] is None else idle * one.held[0],
        }
        for quantity, held, used in zip(("gpus", "bytes"), one.held, one.used, strict=True):
            values |= {f"held_{quantity}": held, f"used_{quantity}": used}
            values[f"unused_{quantity}"] = None if held is None or used is None else max(held - used, 0)
        if idle:
            names = {"gpu": "0", "uuid": f"GPU-{len(self.rows[QUESTIONS['idle holders']])}", "pod": "p"}
            self.add(QUESTIONS["idle holders"], 900, **node, **names, namespace=one.namespace)
        for level, labels in (("node", node), ("namespace", namespace)):
            for name, value in values.items():
                self.add(f"{level}:gpuslice_{name}:sum", value, **labels)
                if value is not None:
                    self.add(f"{level}:gpuslice_known_containers:count", 1, **labels, value=name)
        for what in ("held", "used", "measured"):
            self.add(QUESTIONS[f"GPU-hours {what}"], 1800.0, **namespace)

    def prometheus(self) -> Recorded:
        """Return a Prometheus that has these records and no others."""
        answers = {
            expression: [Sample(dict(labels), value) for labels, value in self.rows[expression].items()]
            for expression in QUESTIONS.values()
        }
        return Recorded({**answers, CLOCK: [Sample({}, AT)]})


def _read(prometheus: Any) -> dict[str, Any] | None:
    """Return the cluster, None for an error."""
    try:
        return fleet_json(asyncio.run(read_fleet(prometheus, WINDOW)))
    except MissingSeriesError:
        return None


def _amounts(document: Any, where: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(document, Mapping):
        if document.keys() == {"value", "complete"}:
            yield where, document
        for name, value in document.items():
            yield from _amounts(value, f"{where}.{name}")
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from _amounts(value, f"{where}[{place}]")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("known", [True, False], ids=["known", "partly known"])
def test_a_missing_record_or_row_only_makes_numbers_unknown(seed: int, known: bool) -> None:
    whole = Records(cluster(seed, known=known)).prometheus()
    document = _read(whole)
    assert document is not None
    bad = [
        (expression, samples[place] if place is not None else "all rows", change)
        for expression, samples in whole.answers.items()
        if ":gpuslice_" in expression
        for place in (None, *range(len(samples)))
        for change in changes(document, _read(whole.without(expression, place)))
    ]

    assert not bad, "\n".join(map(str, bad))


@pytest.mark.parametrize("seed", range(12))
def test_with_all_records_every_sum_is_complete_but_that_of_slices_of_mixed_nodes(seed: int) -> None:
    there = cluster(seed, known=True)
    document = _read(Records(there).prometheus())
    assert document is not None
    missing = {where.rpartition(".")[2] for where, amount in _amounts(document) if not amount["complete"]}
    mixed = any(len({gpu.sharing == "hami" for gpu in node.gpus}) > 1 for node in there)

    assert missing == ({"slices_held", "slices_offered"} if mixed else set())
    assert document["all_namespaces"]
    assert document["all_sick"]
    assert document["idle_holders"]["complete"]
