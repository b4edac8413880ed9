"""Which targets are nodes, and to which node and holder a series belongs."""

import pytest

from exporter.fleet.model import Target
from exporter.fleet.prometheus import Sample
from exporter.fleet.queries import Answers, holder_key
from exporter.fleet.targets import Targets, more_questions, read_targets
from exporter.model import ContainerRef

AT = 1000.0
OURS = {"namespace": "ml", "pod": "nb", "container": "main"}


def _target(instance: str, job: str = "gpus", **labels: str) -> dict[str, str]:
    return {"job": job, "instance": instance, **labels}


def _read(nodes, *, data=(), last=(), up=(), down=(), former=()) -> Targets:
    """Return the targets; ``up`` and ``former`` are answers to queries about those without data."""
    first = {
        "nodes": [Sample(labels, 1.0) for labels in nodes],
        "data": [Sample(_target(instance), at) for instance, at in data],
        "last data": [Sample(_target(instance), at) for instance, at in last],
        "down": [Sample(_target(instance), 0.0) for instance in down],
    }
    more = {
        "up": [Sample(_target(instance), value) for instance, value in up],
        "former nodes": [Sample(labels, 1.0) for labels in former],
    }
    answers = Answers(first, {})
    asked = more_questions(answers)
    return read_targets(answers, Answers({name: more[name] for name in asked}, {}), AT)


def test_of_two_targets_of_a_node_the_one_with_data_counts() -> None:
    """The pod of its exporter was replaced."""
    named = [_target("old:1", node="n1"), _target("new:1", node="n1")]
    targets = _read(named, data=[("new:1", 996)], last=[("old:1", 990), ("new:1", 996)])

    assert [(node.target.instance, node.age, node.silent) for node in targets.nodes] == [("new:1", 4, "")]


@pytest.mark.parametrize(
    ("up", "why"),
    [
        ([("a:1", 0)], "its exporter does not answer"),
        ([], "it is no longer scraped"),
        ([("a:1", 1)], "its exporter answers, but reports no data"),
    ],
)
def test_a_node_without_data_is_silent_with_reason_and_age(up, why) -> None:
    targets = _read([_target("a:1", node="n1")], last=[("a:1", 880)], up=up)

    assert [(node.key.name, node.age, node.silent) for node in targets.nodes] == [("n1", 120, why)]


def test_the_same_name_job_and_address_in_two_clusters_are_two_nodes() -> None:
    labels = [_target("a:1", node="n1", cluster=cluster) for cluster in ("east", "west")]
    targets = _read(labels)

    assert [str(node.key) for node in targets.nodes] == ["east/n1", "west/n1"]
    assert targets.key_of(Sample({"node": "n1", "cluster": "west"}, 1.0)) == targets.nodes[1].key
    assert [node.target for node in targets.nodes] == [
        Target(name, "gpus", "a:1") for name in ("east", "west")
    ]


@pytest.mark.parametrize(
    ("labels", "holder"),
    [(OURS, ("ml", "nb", "main")), ({"namespace": "ml", "pod": "nb"}, ("ml", "nb", ""))],
    ids=["all labels", "no container"],
)
def test_the_holder_of_a_series_is_in_its_labels(labels, holder) -> None:
    """Prometheus has no empty labels."""
    assert holder_key(Sample(labels, 1.0)).holder == ContainerRef(*holder)


def test_a_target_that_is_down_is_a_node_if_it_reported_one_before() -> None:
    former = [_target("a:1", node="n1"), _target("a:1", "web", node="n1")]
    targets = _read([], down=["a:1", "db:5432"], former=former)

    assert [(node.target, node.age, node.silent) for node in targets.nodes] == [
        (Target("", "gpus", "a:1"), None, "its exporter does not answer")
    ]


def test_further_queries_are_about_targets_without_data_only() -> None:
    named = [Sample(_target(instance, node=instance), 1.0) for instance in ("a:1", "b.c:1")]
    data = [Sample(_target("a:1"), 996.0)]
    again = [*named[:1], Sample(_target("a:1", "again", node="a:1"), 1.0)]

    assert more_questions(Answers({"nodes": again, "data": data}, {})) == {}
    assert more_questions(Answers({"nodes": named, "data": data}, {})) == {"up": 'up{instance=~"b\\\\.c:1"}'}
