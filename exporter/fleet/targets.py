"""Which targets there are, of which nodes, and which of them counts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.fleet import expressions
from exporter.fleet.asking import Answers, target_of
from exporter.fleet.expressions import Narrow
from exporter.fleet.model import NodeKey, Target
from exporter.model import ContainerRef
from exporter.prometheus import Sample

_HOLDER = ("namespace", "pod", "container")
_EXPORTED = "exported_"

QUESTIONS = {
    "nodes": expressions.KNOWN,
    "last data": expressions.LAST,
    "data": expressions.NEWEST,
    "up": expressions.UP,
    "number of targets": expressions.ALL,
    "devices of other makers": expressions.ANY_FOREIGN,
}


class Scraped(NamedTuple):
    """The target that counts of a node. ``age`` and ``silent`` are those of a Node.

    ``own`` are those of the labels of holders that the target has itself.
    """

    key: NodeKey
    target: Target
    age: float | None
    silent: str
    own: frozenset[str]


class Targets:
    """The nodes in order, each with the target that counts."""

    def __init__(self, nodes: Sequence[Scraped]) -> None:
        self.nodes = nodes
        self._by_target = {node.target: node for node in nodes if not node.silent}

    def of(self, sample: Sample) -> Scraped | None:
        """Tell which node a sample is of; None where its target does not count, or is silent."""
        return self._by_target.get(target_of(sample))


def read_targets(answers: Answers, at: float) -> Targets:
    """Find the nodes, and of each the target with the newest data, as of Unix time ``at``."""
    last = answers.figures("last data") or {}
    now, up = answers.figures("data") or {}, answers.figures("up") or {}
    by_node: dict[NodeKey, dict[Target, frozenset[str]]] = defaultdict(dict)
    for sample in answers.samples("nodes"):
        target = target_of(sample)
        by_node[NodeKey(target.cluster, _name(sample))][target] = _own(sample)
    several = len({key.cluster for key in by_node}) > 1
    nodes = []
    for key, targets in by_node.items():
        newest = max(targets, key=lambda target: (target in now, last.get(target, 0.0), target))
        seen = last.get(newest)
        nodes.append(
            Scraped(
                key if several else key._replace(cluster=""),
                newest,
                None if seen is None else max(at - seen, 0.0),
                "" if newest in now else _why_silent(up.get(newest)),
                targets[newest],
            )
        )
    return Targets(sorted(nodes))


def narrow_of(answers: Answers) -> Narrow:
    """Tell what has to be left out of sums."""
    targets = sum(sample.value for sample in answers.samples("number of targets"))
    return Narrow(
        foreign=bool(answers.samples("devices of other makers")),
        several=targets != len(answers.samples("data")),
    )


def holder_of(sample: Sample, own: frozenset[str]) -> ContainerRef:
    """Tell whose a sample is.

    Where the target's own labels come first, ours are ``exported_…``, and what is called as ours is the
    target's; one of ours that is empty is not there at all.
    """
    labels = sample.labels
    renamed = any(_EXPORTED + name in labels for name in _HOLDER)
    return ContainerRef(*(_label(labels, name, renamed and name in own) for name in _HOLDER))


def namespace_of(sample: Sample) -> str:
    """Tell which namespace a sample is of; that of a container is never empty."""
    return _label(sample.labels, "namespace", hidden=False)


def _label(labels: Mapping[str, str], name: str, hidden: bool) -> str:
    return labels.get(_EXPORTED + name, "" if hidden else labels.get(name, ""))


def _name(sample: Sample) -> str:
    return _label(sample.labels, "node", hidden=False)


def _own(sample: Sample) -> frozenset[str]:
    return frozenset(name for name in _HOLDER if sample.labels.get(name))


def _why_silent(up: float | None) -> str:
    if up is None:
        return "it is no longer scraped"
    return "its exporter answers, and tells nothing" if up else "its exporter does not answer"
