"""Nodes, with their GPUs and holders: what ``inspect`` shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.fleet.gpus import Gpu, gpu_questions, read_gpus
from exporter.fleet.model import Node, Target
from exporter.fleet.nodes import QUESTIONS, read_nodes
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.queries import ask
from exporter.fleet.targets import UnknownNameError, query_targets, read_clock, some_names
from exporter.wording import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Nodes, with their GPUs if these were asked for."""

    at: float  # Unix time of Prometheus
    nodes: tuple[tuple[Node, tuple[Gpu, ...] | None], ...]  # GPUs are None if unknown
    gpus: bool  # whether GPUs were asked for
    problems: tuple[tuple[str, str], ...] = ()  # failed queries and their errors


async def inspect(
    prometheus: Prometheus, names: Sequence[str], *, details: bool, idle_after: float
) -> Inspection:
    """Return all nodes or the named ones; these, or all with ``details``, with their GPUs and holders.

    Raises PrometheusError, MissingSeriesError and UnknownNameError.
    """
    at = await read_clock(prometheus)
    wanted = _named((await query_targets(prometheus, at)).nodes, names)
    answers = await ask(prometheus, QUESTIONS, at)
    with_gpus = details or bool(names)
    answering = {node.key.name for node in wanted if not node.silent and with_gpus}
    of_gpus = await ask(prometheus, gpu_questions(answering), at)
    gpus = read_gpus(of_gpus, at, idle_after)
    return Inspection(
        at=at,
        nodes=tuple((node, _gpus_of(node, gpus)) for node in read_nodes(answers, wanted)),
        gpus=with_gpus,
        problems=tuple({**answers.problems, **of_gpus.problems}.items()),
    )


def _named(nodes: Sequence[Node], names: Sequence[str]) -> Sequence[Node]:
    """Return the nodes of these names, all without names; with or without their cluster."""
    if not names:
        return nodes
    known = {name for node in nodes for name in (str(node.key), node.key.name)}
    for name in names:
        if name not in known:
            there_are = some_names([str(node.key) for node in nodes])
            raise UnknownNameError(f"no node {printable(name)!r}; there are {there_are}")
    return [node for node in nodes if str(node.key) in names or node.key.name in names]


def _gpus_of(node: Node, gpus: Mapping[Target, tuple[Gpu, ...]] | None) -> tuple[Gpu, ...] | None:
    """Return the GPUs of a node; None if they are not known, or it has GPUs and none is reported."""
    if gpus is None or node.silent:
        return None
    return gpus.get(node.target) or (() if node.gpus.value == 0 else None)
