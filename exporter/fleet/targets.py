"""Which targets there are, of which nodes, and which of them counts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from exporter.fleet import queries
from exporter.fleet.cluster_model import NodeKey, Target
from exporter.fleet.queries import Answers, Narrow, target_of
from exporter.model import ContainerRef
from exporter.prometheus import Sample

_HOLDER = ("namespace", "pod", "container")
_EXPORTED = "exported_"

QUESTIONS = {
    "nodes": queries.KNOWN,
    "last data": queries.LAST,
    "data": queries.NEWEST,
    "up": queries.UP,
    "number of targets": queries.ALL,
    "devices of other makers": queries.ANY_FOREIGN,
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
        unread=bool(answers.samples("devices of other makers")),
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


DEFAULT = "http://{instance}/"
# What a host and its port are written with, and nothing that would end them.
_OF_HOSTS = ":[]"


class TemplateError(ValueError):
    """The template makes no URL; the text says why."""


class NodeLinks:
    """Makes the URL of a node's page: a template with {instance}, {node}, {cluster} and {job} in braces.

    Raises TemplateError where that is no http or https URL, or has other braces.
    """

    def __init__(self, template: str = DEFAULT) -> None:
        self._template = template if template.endswith("/") else f"{template}/"
        try:
            made = urlsplit(self.of(NodeKey("cluster", "node"), Target("cluster", "job", "host:1")))
        except (KeyError, IndexError, ValueError) as error:
            raise TemplateError(f"{error} is none of {{instance}}, {{node}}, {{cluster}}, {{job}}") from None
        if made.scheme not in ("http", "https") or not made.netloc:
            raise TemplateError("it must begin with http:// or https://")

    def of(self, key: NodeKey, target: Target) -> str:
        """Give the URL, with a slash at its end; whatever is in a name stays in its place."""
        names = {"node": key.name, "cluster": target.cluster, "job": target.job}
        return self._template.format(
            instance=quote(target.instance, safe=_OF_HOSTS, errors="replace"),
            **{name: quote(value, safe="", errors="replace") for name, value in names.items()},
        )
