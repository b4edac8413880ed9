"""Judging nodes and pods together gives the verdicts of judging each pod on each node alone."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.waiting.objects import (
    AvoidedPods,
    NodeTerm,
    Objects,
    PlacedPod,
    PodKey,
    Requirement,
    Taint,
    Toleration,
    WaitingPod,
)
from exporter.waiting.verdict import ABORTS, Judge, Verdict
from tests.core.waiting.records import (
    DRIVER,
    claim,
    cluster,
    device,
    node,
    piece,
    pod,
    request,
)
from tests.core.waiting.test_devices import CLASSES

GPU, FEW = "nvidia.com/gpu", st.integers(0, 2)
NAMES = ("n1", "n2", "n3", "n4", "n5", "n6")
LABELS = st.dictionaries(st.sampled_from(("zone", "disk", "gpus")), st.sampled_from(("a", "b", "8")))
TAINTS = st.lists(
    st.builds(
        Taint,
        st.sampled_from(("gpu", "team")),
        st.sampled_from(("", "7")),
        st.sampled_from(("NoSchedule", "PreferNoSchedule")),
    ),
    max_size=2,
).map(tuple)
TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        st.sampled_from(("gpu", "team", "")),
        st.sampled_from(("Exists", "Equal", "Gt")),
        st.sampled_from(("", "7", "9")),
        st.just(""),
    ),
    max_size=2,
).map(tuple)
CONDITIONS = st.builds(
    Requirement,
    st.sampled_from(("zone", "disk", "gpus")),
    st.sampled_from(("In", "NotIn", "Gt")),
    st.sampled_from((("a",), ("a", "b"), ("7",))),
)
FIELDS = st.builds(
    Requirement,
    st.just("metadata.name"),
    st.sampled_from(("In", "NotIn")),
    st.sampled_from((("n1",), ("n2",))),
)
TERMS = st.builds(
    NodeTerm,
    st.lists(CONDITIONS, max_size=2).map(tuple),
    st.lists(FIELDS, max_size=1).map(tuple),
)
AVOIDED = st.builds(
    AvoidedPods,
    topology=st.sampled_from(("zone", "disk")),
    namespaces=st.sampled_from((frozenset({"ml"}), frozenset())),
    labels=st.sampled_from((None, (), (Requirement("app", "In", ("x",)),))),
    everywhere=st.sampled_from((False, True, None)),
)


NODE_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "labels": LABELS,
    "allocatable": st.fixed_dictionaries(
        {"cpu": st.sampled_from((1000, 4000)), "pods": st.just(5)}, optional={GPU: FEW, "ex.com/gpu": FEW}
    ),
    "unread": st.just((GPU,)),
    "taints": TAINTS,
    "cordoned": st.just(True),
}
POD_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "requests": st.fixed_dictionaries(
        {"cpu": st.sampled_from((500, 1000, 3500)), "pods": st.just(1)},
        optional={GPU: FEW, "ex.com/gpu": FEW},
    ),
    "priority": FEW,
    "nominated": st.sampled_from(("n1", "n2")),
    "scheduler": st.just("volcano"),
    "gates": st.just(("quota",)),
    "selector": LABELS,
    "affinity": st.lists(TERMS, min_size=1, max_size=2).map(tuple),
    "tolerations": TOLERATIONS,
    "claims": st.sampled_from((("c1",), ("c2",), ("c1", "c2"), ("c3",), ("gone",))),
    "labels": st.just({"app": "x"}),
    "unjudged": st.sampled_from((("volumes",), ("host ports", "topology spread"))),
}


@st.composite
def varied(draw: Any, fields: dict[str, st.SearchStrategy[Any]], most: int) -> list[dict[str, Any]]:
    """Draw fields of some records that differ in one or two of them, so that most of each is alike."""
    own = draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=2, unique=True))
    same = {name: draw(fields[name]) for name in draw(st.sets(st.sampled_from(sorted(fields)), max_size=2))}
    count = draw(st.integers(2, most))
    return [same | {name: draw(fields[name]) for name in own if draw(st.booleans())} for _ in range(count)]


def placed(number: int) -> st.SearchStrategy[PlacedPod]:
    """Return pods on nodes."""
    return st.builds(
        PlacedPod,
        node=st.sampled_from((*NAMES, "no-such-node")),
        requests=st.fixed_dictionaries({"cpu": st.sampled_from((100, 900)), "pods": st.just(1), GPU: FEW}),
        avoids=st.one_of(st.just(()), st.just(()), st.lists(AVOIDED, max_size=2).map(tuple)),
        readable=st.sampled_from((True, True, False)),
        key=st.just(PodKey("ml", f"p{number}")),
    )


@st.composite
def clusters(draw: Any) -> Objects:
    """Draw a cluster whose nodes and pods are often alike in part."""
    chosen = [node(name, **fields) for name, fields in zip(NAMES, draw(varied(NODE_FIELDS, 6)), strict=False)]
    sick = (Taint("sick", "", "NoExecute"),)
    slices = [
        piece(
            device("a", profile="3g", taints=draw(st.sampled_from(((), sick)))),
            device("b", unread=draw(st.sampled_from(((), ("bindingConditions",))))),
            node=each.name,
            pool=each.name,
        )
        for each in chosen
        if draw(st.booleans())
    ]
    failing = request(selectors=(f"device.attributes['{DRIVER}'].profile == '3g'",))
    claims = (
        claim(request(count=draw(FEW) + 1), name="c1")
        | claim(draw(st.sampled_from((request(), failing))), name="c2")
        | claim(request(), name="c3", allocated=(device("a").name,))
    )
    return cluster(
        *chosen,
        placed=tuple(draw(placed(number)) for number in range(draw(st.integers(0, 6)))),
        waiting=tuple(
            pod(key=PodKey(draw(st.sampled_from(("ml", "web"))), f"w{number}"), uid=f"u{number}", **fields)
            for number, fields in enumerate(draw(varied(POD_FIELDS, 5)))
        ),
        claims=claims,
        slices=tuple(slices),
        classes=draw(st.sampled_from((CLASSES, CLASSES, None))),
    )


def alone(waits: WaitingPod, objects: Objects) -> dict[str, Verdict]:
    """Return the verdict on each node, by judges that know no other node or pod."""
    return {name: Judge(objects, (name,)).judge(waits).by_node[name] for name in sorted(objects.nodes)}


def without_errors(verdict: Verdict) -> tuple[object, ...]:
    """Return a verdict without the doubt about an error, which may be met on any node, and without order."""
    certain = frozenset(verdict.unjudged) - {ABORTS}
    answer = "fits" if verdict.answer == "not judged" and not certain else verdict.answer
    return answer, verdict.filter, frozenset(verdict.reasons), certain


def check(objects: Objects) -> None:
    """Compare the verdicts of all pods that wait."""
    judge = Judge(objects)
    for waits in objects.waiting:
        together, single = judge.judge(waits), alone(waits, objects)
        verdicts = together.by_node

        assert list(verdicts) == sorted(objects.nodes)
        for name, verdict in verdicts.items():
            assert without_errors(verdict) == without_errors(single[name])
        # An error on one node ends the attempt for all.
        doubtful = any(ABORTS in each.unjudged for each in single.values())
        assert all((ABORTS in each.unjudged) is doubtful for each in verdicts.values())
        assert together.nodes == len(objects.nodes)
        for answer in ("no", "not judged", "fits"):
            assert together.count(answer) == sum(each.answer == answer for each in verdicts.values())


@settings(max_examples=500)
@given(clusters())
def test_what_is_judged_together_is_as_judged_alone(objects: Objects) -> None:
    check(objects)


def test_pods_that_differ_only_in_priority_are_not_alike_if_preemption_makes_room() -> None:
    others = tuple(pod(uid=str(each), nominated="n1", priority=each) for each in (4, 5, 6))

    check(cluster(node(allocatable={"cpu": 2500, "pods": 10}), waiting=others))


def test_pods_that_differ_only_in_labels_are_not_alike_if_pods_keep_others_out() -> None:
    avoided = AvoidedPods("zone", frozenset({"ml"}), (Requirement("app", "In", ("x",)),))
    guard = PlacedPod("n1", {"pods": 1}, avoids=(avoided,))
    pods = tuple(pod(labels={"app": app}, uid=app) for app in "yx")

    check(cluster(node(labels={"zone": "a"}), placed=(guard,), waiting=pods))


def test_nodes_that_differ_only_in_what_could_not_be_read_are_not_alike() -> None:
    asking = pod(requests={GPU: 1, "pods": 1})

    check(cluster(node("n1"), node("n2", unread=(GPU,)), node("n3"), waiting=(asking,)))
