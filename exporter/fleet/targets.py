"""Targets and their nodes, and which target of a node counts."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from exporter.fleet import queries
from exporter.fleet.cluster_model import NodeKey, Target
from exporter.fleet.queries import Answers, target_of
from exporter.model import ContainerRef
from exporter.prometheus import Sample

_HOLDER = ("namespace", "pod", "container")

QUESTIONS = {
    "nodes": queries.KNOWN,
    "last data": queries.LAST,
    "data": queries.NEWEST,
    "down": queries.DOWN,
    "records": queries.RECORDED,
}


class Scraped(NamedTuple):
    """The target that counts for a node."""

    key: NodeKey
    target: Target
    age: float | None  # as in Node
    silent: str  # as in Node


class Targets:
    """The nodes in order, each with the target that counts."""

    def __init__(self, nodes: Sequence[Scraped], *, several: bool = False) -> None:
        self.nodes = nodes
        self._several = several

    def key_of(self, sample: Sample) -> NodeKey:
        """Return the node of a sample; the cluster is part of it if there are several."""
        cluster = sample.labels.get("cluster", "") if self._several else ""
        return NodeKey(cluster, sample.labels.get("node", ""))


def more_questions(answers: Answers) -> dict[str, str]:
    """Return the queries for targets without current data; most often there are none."""
    now, down = answers.figures("data") or {}, answers.figures("down") or {}
    nodes = [(target_of(sample), sample.labels.get("node", "")) for sample in answers.samples("nodes")]
    answering = {(target.cluster, node) for target, node in nodes if target in now}
    silent = {target for target, node in nodes if (target.cluster, node) not in answering}
    gone = down.keys() - {target for target, _ in nodes}
    questions = {}
    if silent:
        questions["up"] = queries.some("up", "instance", {target.instance for target in silent})
    if gone:
        questions["former nodes"] = queries.former({target.instance for target in gone})
    return questions


def read_targets(answers: Answers, more: Answers, at: float) -> Targets:
    """Return the nodes, each with its target with the newest data, at Unix time ``at``."""
    last, now = answers.figures("last data") or {}, answers.figures("data") or {}
    down = answers.figures("down") or {}
    up = {**(more.figures("up") or {}), **down}
    by_node: dict[NodeKey, set[Target]] = defaultdict(set)
    former = (sample for sample in more.samples("former nodes") if target_of(sample) in down)
    for sample in (*answers.samples("nodes"), *former):
        target = target_of(sample)
        by_node[NodeKey(target.cluster, sample.labels.get("node", ""))].add(target)
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
            )
        )
    return Targets(sorted(nodes), several=several)


def holder_of(sample: Sample) -> ContainerRef:
    """Return the holder of a sample; labels of ours that are empty are missing."""
    return ContainerRef(*(sample.labels.get(name, "") for name in _HOLDER))


def holder_key(sample: Sample) -> tuple[str, ...]:
    """Return the identity of a sample of a container on a device."""
    return tuple(sample.labels.get(name, "") for name in ("cluster", "node", *_HOLDER, "uuid", "mig_uuid"))


def _why_silent(up: float | None) -> str:
    if up is None:
        return "it is no longer scraped"
    return "its exporter answers, but reports no data" if up else "its exporter does not answer"


DEFAULT = "http://{instance}/"
# Characters of a host and port that are not quoted.
_HOST_CHARACTERS = ":[]"


class TemplateError(ValueError):
    """The template is not a valid URL; the message has the reason."""


class NodeLinks:
    """The URL of a node's page: a template with {instance}, {node}, {cluster} and {job}.

    Raises TemplateError if that is not an http or https URL, or has other placeholders.
    """

    def __init__(self, template: str = DEFAULT) -> None:
        self._template = template if template.endswith("/") else f"{template}/"
        try:
            example = urlsplit(self.of(NodeKey("cluster", "node"), Target("cluster", "job", "host:1")))
        except (KeyError, IndexError, ValueError) as error:
            raise TemplateError(
                f"{error} is not one of {{instance}}, {{node}}, {{cluster}}, {{job}}"
            ) from None
        if example.scheme not in ("http", "https") or not example.netloc:
            raise TemplateError("it must begin with http:// or https://")

    def of(self, key: NodeKey, target: Target) -> str:
        """Return the URL, with a slash at its end; values are quoted."""
        names = {"node": key.name, "cluster": target.cluster, "job": target.job}
        return self._template.format(
            instance=quote(target.instance, safe=_HOST_CHARACTERS, errors="replace"),
            **{name: quote(value, safe="", errors="replace") for name, value in names.items()},
        )
