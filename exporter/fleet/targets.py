"""The nodes, and of each the target of Prometheus that counts."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.fleet.model import Node, NodeKey, Target
from exporter.fleet.prometheus import Prometheus, PrometheusError, Sample
from exporter.fleet.queries import Answers, ask, earlier, selector_or_all, target_of
from exporter.wording import printable

CLOCK = "vector(time())"
SNAPSHOT = "gpuslice_snapshot_timestamp_seconds"
NODE_INFO = "gpuslice_node_info"
# A target that is gone for longer than this counts as removed.
_SEEN = "15m"
_TARGET = "cluster, job, instance"
_MOST_NAMES = 20

QUESTIONS = {
    # The targets that answer, or did so recently.
    "nodes": f"max by ({_TARGET}, node)"
    f" (last_over_time({NODE_INFO}[{_SEEN}]) or last_over_time({SNAPSHOT}[{_SEEN}]))",
    "last data": f"max by ({_TARGET}) (last_over_time({SNAPSHOT}[{_SEEN}]))",
    # The target with the newest data of each node.
    "data": f"topk by (cluster, node) (1, {SNAPSHOT})",
    # All targets that cannot be scraped, not only exporters.
    "down": f"max by ({_TARGET}) (up == 0)",
    # Without a value the recording rules are not loaded, or no exporter answers.
    "records": "count(node:gpuslice_exporters:count)",
}


class MissingSeriesError(Exception):
    """Prometheus answers, but has no series of this exporter, or none of its recording rules."""


class UnknownNameError(Exception):
    """There is no node or namespace of that name; the message lists the known ones."""


def some_names(names: Sequence[str]) -> str:
    """Return names as text, of many the first."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(map(printable, names[:_MOST_NAMES]))}{more}"


@dataclass(frozen=True, slots=True)
class Targets:
    """The nodes in order, each with the target that counts and no values yet."""

    nodes: Sequence[Node]
    several: bool = False  # whether there are several clusters, which are then part of the names

    def key_of(self, sample: Sample) -> NodeKey:
        """Return the node of a sample."""
        return NodeKey(sample.text("cluster") if self.several else "", sample.text("node"))


async def read_clock(prometheus: Prometheus) -> float:
    """Return the Unix time of Prometheus, at which all other queries are evaluated."""
    answer = await prometheus.query(CLOCK)
    if not answer:
        raise PrometheusError("Prometheus does not return its time")
    return answer[0].value


async def query_targets(prometheus: Prometheus, at: float, *, need_records: bool = True) -> Targets:
    """Return the nodes.

    Raises PrometheusError if a query fails, and MissingSeriesError if there are no nodes, or no records and
    these are needed.
    """
    answers = await ask(prometheus, QUESTIONS, at)
    more = await ask(prometheus, more_questions(answers), at)
    for name, why in (*answers.problems.items(), *more.problems.items()):
        raise PrometheusError(f"{name}: {why}")
    targets = read_targets(answers, more, at)
    if not targets.nodes:
        raise MissingSeriesError(
            "this Prometheus has no series of gpuslice-exporter: does it scrape the nodes?"
        )
    if need_records and not answers.samples("records") and not all(node.silent for node in targets.nodes):
        raise MissingSeriesError(
            "this Prometheus has no records of gpuslice-exporter: load alerts/rules/gpuslice-recording.yaml "
            "(see docs/recording-rules.md); new rules have records after a minute"
        )
    return targets


def more_questions(answers: Answers) -> dict[str, str]:
    """Return the queries for targets without current data; most often there are none."""
    now, down = answers.by_target("data"), answers.by_target("down")
    nodes = [(target_of(sample), sample.text("node")) for sample in answers.samples("nodes")]
    answering = {(target.cluster, node) for target, node in nodes if target in now}
    silent = {target.instance for target, node in nodes if (target.cluster, node) not in answering}
    gone = {target.instance for target in down.keys() - {target for target, _ in nodes}}
    questions = {}
    if silent:
        questions["up"] = selector_or_all("up", "instance", silent)
    if gone:
        info = selector_or_all(NODE_INFO, "instance", gone)
        questions["former nodes"] = f"max by ({_TARGET}, node) ({earlier(info)})"
    return questions


def read_targets(answers: Answers, more: Answers, at: float) -> Targets:
    """Return the nodes, each with its target with the newest data, at Unix time ``at``."""
    last, now, down = (answers.by_target(name) for name in ("last data", "data", "down"))
    up = more.by_target("up") | down
    by_node: dict[NodeKey, set[Target]] = defaultdict(set)
    former = [sample for sample in more.samples("former nodes") if target_of(sample) in down]
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
    return Targets(sorted(nodes, key=lambda node: node.key), several)


def _why_silent(up: float | None) -> str:
    if up is None:
        return "it is no longer scraped"
    return "its exporter answers, but reports no data" if up else "its exporter does not answer"
