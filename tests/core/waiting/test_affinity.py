"""Node selectors, affinity and tolerations are evaluated as the scheduler does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.waiting.affinity import any_term_matches, labels_match, named_nodes
from exporter.waiting.filters import tolerates
from exporter.waiting.objects import NodeTerm, Requirement, Taint, Toleration
from tests.core.waiting.records import node

GPU = node("gpu-1", labels={"zone": "a", "gpus": "8", "driver": "x570"})


def condition(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key, operator, values)


@pytest.mark.parametrize(
    ("met", "asked"),
    [
        (True, condition("zone", "In", "a", "b")),
        (False, condition("zone", "In", "b")),
        (False, condition("none", "In", "a")),
        (False, condition("zone", "NotIn", "a")),
        (True, condition("none", "NotIn", "a")),
        (True, condition("zone", "Exists")),
        (False, condition("none", "Exists")),
        (True, condition("none", "DoesNotExist")),
        (False, condition("zone", "DoesNotExist")),
        (True, condition("gpus", "Gt", "7")),
        (False, condition("gpus", "Gt", "8")),
        (True, condition("gpus", "Lt", "0009")),
        (False, condition("driver", "Gt", "1")),
        (False, condition("none", "Lt", "1")),
    ],
)
def test_conditions_on_labels(met: bool, asked: Requirement) -> None:
    assert labels_match((asked,), GPU.labels) is met


@pytest.mark.parametrize(
    "asked",
    [
        condition("zone", "In"),
        condition("none", "NotIn"),
        condition("zone", "Exists", "a"),
        condition("none", "DoesNotExist", "a"),
        condition("gpus", "Gt", "seven"),
        condition("gpus", "Gt", "1", "2"),
        condition("gpus", "Lt", "9223372036854775808"),
        condition("none", "NotIn", "not a label value"),
        condition("none", "NotIn", "-"),
        condition("zone", "", "a"),
        condition("zone", "in", "a"),
        condition("a/b/c", "DoesNotExist"),
    ],
)
def test_a_term_with_a_condition_that_cannot_be_evaluated_matches_nothing(asked: Requirement) -> None:
    assert not any_term_matches([NodeTerm((asked,))], GPU)
    assert not any_term_matches([NodeTerm((condition("zone", "Exists"), asked))], GPU)
    # Another term is not affected.
    assert any_term_matches([NodeTerm((asked,)), NodeTerm((condition("zone", "Exists"),))], GPU)


@pytest.mark.parametrize(
    ("matches", "terms"),
    [
        (False, []),
        (False, [NodeTerm()]),
        (True, [NodeTerm(fields=(condition("metadata.name", "In", "gpu-1"),))]),
        (False, [NodeTerm(fields=(condition("metadata.name", "In", "gpu-1", "gpu-2"),))]),
        (True, [NodeTerm(fields=(condition("metadata.name", "NotIn", "gpu-2"),))]),
        (False, [NodeTerm(fields=(condition("metadata.name", "Exists"),))]),
        (False, [NodeTerm((condition("zone", "In", "b"),), (condition("metadata.name", "In", "gpu-1"),))]),
    ],
)
def test_terms_and_names(matches: bool, terms: list[NodeTerm]) -> None:
    assert any_term_matches(terms, GPU) is matches


def test_names_narrow_the_nodes_only_if_each_term_has_them() -> None:
    first, second = (NodeTerm(fields=(condition("metadata.name", "In", name),)) for name in ("a", "b"))
    both = NodeTerm(fields=(*first.fields, *second.fields))

    assert named_nodes(None) is None
    assert named_nodes(()) is None
    assert named_nodes((first, NodeTerm((condition("zone", "Exists"),)))) is None
    assert named_nodes((first, second)) == {"a", "b"}
    assert named_nodes((both,)) == frozenset()


TAINT = Taint("gpu", "8", "NoSchedule")


@pytest.mark.parametrize(
    ("tolerated", "toleration"),
    [
        (True, Toleration("gpu", "Equal", "8", "NoSchedule")),
        (True, Toleration("gpu", "", "8", "")),
        (False, Toleration("gpu", "Equal", "7", "")),
        (False, Toleration("gpu", "Equal", "8", "NoExecute")),
        (True, Toleration("gpu", "Exists", "", "")),
        (True, Toleration("", "Exists", "", "")),
        (False, Toleration("cpu", "Exists", "", "")),
        (False, Toleration("gpu", "In", "8", "")),
        # The scheduler compares numbers only with a feature gate that is off by default.
        (None, Toleration("gpu", "Gt", "7", "")),
        (None, Toleration("gpu", "Lt", "9", "")),
        (False, Toleration("gpu", "Gt", "8", "")),
        (False, Toleration("gpu", "Lt", "8", "")),
        (False, Toleration("gpu", "Gt", "many", "")),
    ],
)
def test_a_toleration(tolerated: bool | None, toleration: Toleration) -> None:
    assert tolerates((toleration,), TAINT) is tolerated


WORDS = st.sampled_from(["", "a", "b", "1", "2", "NoSchedule", "NoExecute"])
TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        key=WORDS,
        operator=st.sampled_from(["", "Equal", "Exists", "Gt", "Lt", "?"]),
        value=WORDS,
        effect=WORDS,
    ),
    max_size=4,
)


@given(TOLERATIONS, st.builds(Taint, key=WORDS, value=WORDS, effect=WORDS))
def test_more_tolerations_never_tolerate_less(tolerations: list[Toleration], taint: Taint) -> None:
    ranks = {False: 0, None: 1, True: 2}
    answers = [ranks[tolerates(tolerations[:count], taint)] for count in range(len(tolerations) + 1)]

    assert answers[0] == 0
    assert answers == sorted(answers)
    assert tolerates([*tolerations, Toleration("", "Exists", "", "")], taint) is True


CONDITIONS = st.builds(
    Requirement,
    key=st.sampled_from(["zone", "gpus", "none"]),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "?"]),
    values=st.lists(st.sampled_from(["a", "7", "8", "not valid"]), max_size=2).map(tuple),
)


@given(st.lists(CONDITIONS, max_size=3), st.lists(CONDITIONS, min_size=1, max_size=3))
def test_conditions_narrow_and_terms_widen(one: list[Requirement], other: list[Requirement]) -> None:
    first, second = NodeTerm(tuple(one)), NodeTerm(tuple(other))

    assert any_term_matches([first, second], GPU) == (
        any_term_matches([first], GPU) or any_term_matches([second], GPU)
    )
    both = labels_match([*one, *other], GPU.labels)
    assert both == (labels_match(one, GPU.labels) and labels_match(other, GPU.labels))


@given(st.sampled_from(["zone", "none"]), st.lists(st.sampled_from("abc"), min_size=1).map(tuple))
def test_in_and_not_in_are_opposites(key: str, values: tuple[str, ...]) -> None:
    labels = GPU.labels

    assert labels_match([Requirement(key, "In", values)], labels) is not labels_match(
        [Requirement(key, "NotIn", values)], labels
    )
