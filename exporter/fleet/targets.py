"""Targets and their nodes, which target of a node counts, and the URL of its page."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from exporter.fleet import Node, NodeKey, Target, queries
from exporter.fleet.prometheus import Prometheus, PrometheusError, Sample
from exporter.fleet.queries import Answers, ask, target_of
from exporter.model import ContainerRef
from exporter.wording import printable

_HOLDER = ("namespace", "pod", "container")
_NAMED = 20

QUESTIONS = {
    "nodes": queries.KNOWN,
    "last data": queries.LAST,
    "data": queries.NEWEST,
    "down": queries.DOWN,
    "records": queries.RECORDED,
}


@dataclass(frozen=True, slots=True)
class Targets:
    """The nodes in order, each with the target that counts and no values yet.

    ``several`` clusters are part of their names.
    """

    nodes: Sequence[Node]
    several: bool = False

    def key_of(self, sample: Sample) -> NodeKey:
        """Return the node of a sample; the cluster is part of it if there are several."""
        return NodeKey(sample.text("cluster") if self.several else "", sample.text("node"))


def more_questions(answers: Answers) -> dict[str, str]:
    """Return the queries for targets without current data; most often there are none."""
    now, down = answers.figures("data") or {}, answers.figures("down") or {}
    nodes = [(target_of(sample), sample.text("node")) for sample in answers.samples("nodes")]
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
        by_node[NodeKey(target.cluster, sample.text("node"))].add(target)
    several = len({key.cluster for key in by_node}) > 1
    nodes = []
    for key, targets in by_node.items():
        newest = max(targets, key=lambda target: (target in now, last.get(target, 0.0), target))
        seen = last.get(newest)
        nodes.append(
            Node(
                key=key if several else key._replace(cluster=""),
                target=newest,
                age=None if seen is None else max(at - seen, 0.0),
                silent="" if newest in now else _why_silent(up.get(newest)),
            )
        )
    return Targets(sorted(nodes, key=lambda node: node.key), several=several)


class MissingSeriesError(Exception):
    """Prometheus answers, but has no series of this exporter, or none of its recording rules."""


class UnknownNameError(Exception):
    """There is no node or namespace of that name; the message lists the known ones."""


def some_names(names: Sequence[str]) -> str:
    """Return names as text, of many the first."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(map(printable, names[:_NAMED]))}{more}"


async def read_clock(prometheus: Prometheus) -> float:
    """Return the Unix time of Prometheus, at which all other queries are evaluated."""
    answer = await prometheus.query(queries.CLOCK)
    if not answer:
        raise PrometheusError("Prometheus does not return its time")
    return answer[0].value


async def read_targets_at(prometheus: Prometheus, at: float) -> Targets:
    """Return the nodes.

    Raises PrometheusError if a query fails, and MissingSeriesError if there are no nodes, or no records.
    """
    answers = await ask(prometheus, QUESTIONS, at)
    more = await ask(prometheus, more_questions(answers), at)
    for name, why in (answers.problems | more.problems).items():
        raise PrometheusError(f"{name}: {why}")
    scraped = read_targets(answers, more, at)
    if not scraped.nodes:
        raise MissingSeriesError(
            "this Prometheus has no series of gpuslice-exporter: does it scrape the nodes?"
        )
    if not answers.samples("records") and not all(node.silent for node in scraped.nodes):
        raise MissingSeriesError(
            "this Prometheus has no records of gpuslice-exporter: load alerts/rules/gpuslice-recording.yaml "
            "(see docs/recording-rules.md); new rules have records after a minute"
        )
    return scraped


def holder_of(sample: Sample) -> ContainerRef:
    """Return the holder of a sample."""
    return ContainerRef(*sample.texts(*_HOLDER))


def holder_key(sample: Sample) -> tuple[str, ...]:
    """Return the identity of a sample of a container on a device."""
    return sample.texts("cluster", "node", *_HOLDER, "uuid", "mig_uuid")


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
