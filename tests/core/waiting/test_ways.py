"""What could help a waiting pod: each way holds once it is carried out on the objects of the cluster."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from exporter.model.mig_geometry import Span
from exporter.waiting.answer import Answer, Answering
from exporter.waiting.filters import CORDON
from exporter.waiting.gpu_facts import GpuFacts, IdlePod, MigGpu, SharedGpu, SickDevice, SmallerRequest
from exporter.waiting.objects import (
    ClusterNode,
    Objects,
    PlacedPod,
    PodKey,
    WaitingPod,
)
from exporter.waiting.verdict import Judge
from exporter.waiting.way import KINDS, Way
from exporter.wording import TIMES
from tests.core.waiting.records import cluster, node, pod

BIG, SMALL = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
WHOLE = "nvidia.com/mig-7g.80gb"
SHARED = "nvidia.com/gpu.shared"
H100 = "NVIDIA H100 80GB HBM3"
INSTANCES = {(H100, "1g.10gb"): 7, (H100, "3g.40gb"): 2, (H100, "7g.80gb"): 1}
HOURS = 3600.0


def mig_node(name: str = "n1", big: int = 1, cpu: int = 8000, **more: Any) -> ClusterNode:
    """Return a node with MIG devices."""
    return node(name, allocatable={"cpu": cpu, "memory": 1 << 40, "pods": 20, BIG: big}, **more)


def wants(resource: str = BIG, count: int = 1, **more: Any) -> WaitingPod:
    """Return a pod that waits for slices."""
    return pod(requests={"cpu": 1000, "pods": 1, resource: count}, **more)


def holder(name: str, place: str = "n1", **more: Any) -> PlacedPod:
    """Return a pod that holds a slice."""
    fields: dict[str, Any] = {"requests": {"cpu": 1000, "pods": 1, BIG: 1}}
    return PlacedPod(node=place, key=PodKey("ml", name), **(fields | more))


def gpu(*used: Span, held: bool = True, **more: Any) -> MigGpu:
    """Return a GPU in MIG mode."""
    fields: dict[str, Any] = {"node": "n1", "gpu": "2", "uuid": "GPU-2", "model": H100, "offered": {}}
    return MigGpu(used=used, held=held, **(fields | more))


def facts(**more: Any) -> GpuFacts:
    """Return what is known of GPUs: nothing else."""
    return GpuFacts(at=0.0, instances=INSTANCES, **more)


def answered(waiting: WaitingPod, objects: Objects, known: GpuFacts) -> Answer:
    """Return the answer for a pod."""
    return Answering(replace(objects, waiting=(*objects.waiting, waiting)), known, 60.0).answer(waiting)


def kinds(answer: Answer) -> list[str]:
    """Return the kinds of the ways of an answer."""
    return [way.kind for way in answer.ways]


def test_a_pod_that_is_ending_is_the_nearest_way():
    objects = cluster(mig_node(), placed=(holder("old", ending=True),))

    (way,) = answered(wants(), objects, facts(idle=(IdlePod(PodKey("ml", "old"), "n1", 9 * HOURS),))).ways

    assert (way.kind, way.pods, way.asked) == ("ending", (PodKey("ml", "old"),), "none: wait")


def test_a_pod_that_should_have_ended_is_a_matter_of_on_call():
    late, soon = holder("late", ending=True, ends=60.0 - HOURS), holder("soon", "n2", ending=True, ends=50.0)
    nodes = mig_node(), mig_node("n2")

    (nearest,) = answered(wants(), cluster(*nodes, placed=(late, soon)), facts()).ways
    (stuck,) = answered(wants(), cluster(mig_node(), placed=(late,)), facts()).ways

    assert (nearest.node, nearest.asked, nearest.others) == ("n2", "none: wait", 1)
    assert stuck.asked == "on-call: it does not end"
    assert stuck.what == "wait for ml/late on n1, which is ending; it should have ended 1 h 0 min ago"


def test_the_owner_of_the_longest_idle_pod_is_asked():
    objects = cluster(mig_node(big=2), placed=(holder("notebook"), holder("other")))
    idle = (IdlePod(PodKey("ml", "other"), "n1", HOURS), IdlePod(PodKey("ml", "notebook"), "n1", 9 * HOURS))

    (way,) = answered(wants(), objects, facts(idle=idle)).ways

    assert (way.kind, way.pods, way.others) == ("idle", (PodKey("ml", "notebook"),), 1)
    assert way.what == "scale down ml/notebook on n1, idle for 9 h 0 min"


def test_two_idle_pods_are_a_way_together_and_a_third_is_left_alone():
    placed = (holder("a"), holder("b"), holder("c", requests={"cpu": 1000, BIG: 1}))
    idle = tuple(IdlePod(each.key, "n1", hours * HOURS) for hours, each in enumerate(placed, 1))

    (way,) = answered(wants(count=2), cluster(mig_node(big=3), placed=placed), facts(idle=idle)).ways

    assert way.pods == (PodKey("ml", "c"), PodKey("ml", "b"))


def test_an_idle_pod_does_not_help_where_cpu_is_missing_too():
    placed = (holder("notebook"), holder("web", requests={"cpu": 7000}))
    idle = (IdlePod(PodKey("ml", "notebook"), "n1", 9 * HOURS),)
    waiting = replace(wants(), requests={"cpu": 2000, BIG: 1})

    answer = answered(waiting, cluster(mig_node(), placed=placed), facts(idle=idle))

    assert not answer.ways
    assert [each.what for each in answer.not_helping] == [
        "ml/notebook on n1 is idle, but without it 1000 of 8000 cpu free, 2000 requested"
    ]


def test_an_idle_pod_that_is_gone_or_has_moved_is_no_way():
    idle = (IdlePod(PodKey("ml", "gone"), "n1", HOURS), IdlePod(PodKey("ml", "notebook"), "n2", HOURS))
    objects = cluster(mig_node(), placed=(holder("notebook"),))

    assert not answered(wants(), objects, facts(idle=idle)).ways


def test_an_instance_is_added_at_a_free_placement_with_the_command_of_the_driver():
    used = (Span(0, 4), Span(4, 1))
    objects = cluster(mig_node(), placed=(holder("train"),))

    (way,) = answered(wants(), objects, facts(mig=(gpu(Span(0, 4)),))).ways

    assert way.kind == "recut"
    assert way.commands == ("nvidia-smi mig -i 2 -cgi 3g.40gb:4 -C",)
    assert way.what == f"add 1 {TIMES} 3g.40gb to GPU 2 of n1, at free memory slices 4-7"
    assert not answered(wants(), objects, facts(mig=(gpu(*used),))).ways


def test_free_slices_that_are_not_adjacent_are_said_not_to_help():
    used = (Span(0, 1), Span(4, 1))
    objects = cluster(mig_node(), placed=(holder("train"),))

    answer = answered(wants(), objects, facts(mig=(gpu(*used),)))

    assert not answer.ways
    assert [each.what for each in answer.not_helping] == [
        "GPU 2 of n1 has 6 free memory slices, but no place of a 3g.40gb is free"
    ]


def test_a_gpu_without_holders_is_cut_again_and_loses_what_it_offers():
    used = tuple(Span(start, 1) for start in range(7))
    place = mig_node(big=0)
    place = replace(place, allocatable={**place.allocatable, SMALL: 7})
    empty = gpu(*used, held=False, offered={SMALL: 7})

    (way,) = answered(wants(), cluster(place), facts(mig=(empty,))).ways

    assert way.commands == (
        "nvidia-smi mig -i 2 -dci",
        "nvidia-smi mig -i 2 -dgi",
        "nvidia-smi mig -i 2 -cgi 3g.40gb:0 -C",
    )
    assert f"7 {TIMES} nvidia.com/mig-1g.10gb" in way.stops


def test_a_gpu_with_a_holder_is_never_cut_again():
    used = tuple(Span(start, 1) for start in range(7))

    assert not answered(wants(), cluster(mig_node(big=0)), facts(mig=(gpu(*used, held=True),))).ways


def test_a_pod_that_also_needs_what_the_recut_removes_gets_no_such_way():
    used = tuple(Span(start, 1) for start in range(7))
    place = replace(mig_node(big=0), allocatable={"cpu": 8000, "pods": 9, SMALL: 7})
    waiting = pod(requests={BIG: 1, SMALL: 1})
    empty = gpu(*used, held=False, offered={SMALL: 7})

    assert not answered(waiting, cluster(place), facts(mig=(empty,))).ways


def test_a_larger_slice_that_is_free_is_another_request():
    place = mig_node(big=0)
    place = replace(place, allocatable={**place.allocatable, WHOLE: 1, SMALL: 3})

    (way,) = answered(wants(), cluster(place), facts()).ways

    assert (way.kind, way.resource, way.instead_of) == ("larger", WHOLE, BIG)
    assert (way.what, way.asked) == (
        f"ask for 1 {TIMES} {WHOLE} instead of {BIG}: 1 is free on n1",
        "its owner",
    )


def test_more_replicas_are_a_way_on_a_shared_gpu_only():
    place = node(allocatable={"cpu": 8000, "pods": 9, SHARED: 2})
    full = cluster(place, placed=(holder("a", requests={SHARED: 2}),))
    shared = (SharedGpu("n1", SHARED, "time-slicing"),)

    (way,) = answered(wants(SHARED), full, facts(shared=shared)).ways

    assert (way.kind, way.asked) == ("replicas", "who configures the device plugin")
    assert not answered(wants(SHARED), full, facts(shared=())).ways


def test_sick_slices_and_cordoned_nodes_are_ways_of_those_who_repair():
    sick = (SickDevice("n1", "5", "GPU-5", {BIG: 2}, "needs a reset"),)

    (repair,) = answered(wants(), cluster(mig_node(big=0)), facts(sick=sick)).ways
    cordoned = mig_node(cordoned=True, taints=(CORDON,))
    (uncordon,) = answered(wants(), cluster(cordoned), facts()).ways

    of_it = f"2 {TIMES} nvidia.com/mig-3g.40gb of it are unhealthy"
    assert repair.what == f"repair GPU 5 of n1 (needs a reset): {of_it}"
    assert (uncordon.what, uncordon.asked) == ("uncordon n1: the pod fits there", "who cordoned it")


def test_of_a_cordoned_node_that_is_not_judged_wholly_it_is_not_said_that_the_pod_fits():
    (uncordon,) = answered(wants(unjudged=("volumes",)), cluster(mig_node(cordoned=True)), facts()).ways

    assert (uncordon.what, uncordon.unjudged) == ("uncordon n1", ("volumes",))


def test_a_gpu_on_which_pods_have_started_since_is_not_cut_again():
    """Holders are read at intervals, and pods come at any time."""
    place = mig_node(big=0)
    place = replace(place, allocatable={**place.allocatable, SMALL: 2})
    empty = facts(mig=(gpu(Span(0, 1), Span(4, 1), held=False, offered={SMALL: 2}),))
    new = holder("new", requests={SMALL: 1})

    assert kinds(answered(wants(), cluster(place), empty)) == ["recut"]
    assert not answered(wants(), cluster(place, placed=(new,)), empty).ways


def test_a_smaller_request_is_a_way_by_the_advice_on_its_workload():
    place = mig_node(big=0)
    place = replace(place, allocatable={**place.allocatable, SMALL: 1})
    advised = (SmallerRequest("ml", "web", "1g.10gb", "high"),)

    mine = answered(wants(owner="ReplicaSet web-5d9f7c"), cluster(place), facts(smaller=advised))
    other = answered(wants(owner="Job train"), cluster(place), facts(smaller=advised))

    assert kinds(mine) == ["smaller"]
    assert not other.ways


def test_what_is_not_judged_of_the_pod_stays_with_each_way():
    objects = cluster(mig_node(), placed=(holder("old", ending=True),))

    (way,) = answered(wants(unjudged=("volumes",)), objects, facts()).ways

    assert way.unjudged == ("volumes",)


def test_a_pod_that_may_fit_already_gets_no_ways():
    objects = cluster(mig_node(), mig_node("n2"), placed=(holder("old", ending=True),))

    answer = answered(wants(), objects, facts())

    assert (answer.fits, answer.ways) == (1, ())


def test_nothing_is_concluded_from_what_is_not_known():
    objects = cluster(mig_node(), placed=(holder("notebook"),))

    answer = answered(wants(), objects, GpuFacts(at=0.0))

    assert (answer.ways, answer.not_helping) == ((), ())


def test_pods_of_higher_priority_and_older_ones_of_the_same_resource_are_ahead():
    others = (
        wants(uid="1", key=PodKey("a", "1"), created=50.0, priority=1),
        wants(uid="2", key=PodKey("a", "2"), created=5.0),
        wants(uid="3", key=PodKey("a", "3"), created=15.0),
        wants(uid="4", key=PodKey("a", "4"), created=5.0, gates=("quota",)),
        wants(SMALL, uid="5", key=PodKey("a", "5"), created=5.0),
        wants(uid="6", key=PodKey("a", "6"), created=5.0, scheduler="volcano"),
        wants(uid="7", key=PodKey("a", "7"), created=None),
    )
    objects = cluster(mig_node(big=0), waiting=others)

    assert answered(wants(created=10.0), objects, facts()).ahead == 2
    assert answered(wants(created=None), objects, facts()).ahead is None
    assert answered(wants(created=10.0, priority=None), objects, facts()).ahead is None
    assert answered(wants(created=10.0, scheduler="volcano"), objects, facts()).ahead is None


NODES = ("n1", "n2", "n3")
RESOURCES = (BIG, SMALL, WHOLE, SHARED)


@st.composite
def clusters(draw: Any) -> tuple[WaitingPod, Objects, GpuFacts]:
    """Draw a small cluster that is rather full, a pod that waits, and facts about its GPUs."""
    nodes = [
        node(
            name,
            allocatable={"cpu": 4000, "pods": 9}
            | {each: draw(st.integers(0, 3)) for each in draw(st.sets(st.sampled_from(RESOURCES)))},
            cordoned=draw(st.booleans()) and draw(st.booleans()),
        )
        for name in NODES
    ]
    resource = draw(st.sampled_from(RESOURCES))
    placed = tuple(
        PlacedPod(
            node=draw(st.sampled_from(NODES)),
            requests={
                "cpu": draw(st.integers(0, 2000)),
                "pods": 1,
                draw(st.sampled_from((resource, resource, *RESOURCES))): draw(st.integers(1, 2)),
            },
            ending=draw(st.booleans()) and draw(st.booleans()),
            key=PodKey("ml", f"p{number}"),
        )
        for number in range(draw(st.integers(0, 9)))
    )
    idle = tuple(
        IdlePod(each.key, each.node, HOURS * number)
        for number, each in enumerate(placed, 1)
        if draw(st.booleans())
    )
    sick = tuple(SickDevice(name, "1", "GPU-1", {BIG: 1}, "") for name in NODES if draw(st.booleans()))
    shared = tuple(SharedGpu(name, SHARED, "mps") for name in NODES if draw(st.booleans()))
    waiting = pod(requests={"cpu": draw(st.integers(0, 4000)), resource: draw(st.integers(1, 3))})
    mig = tuple(draw(migs(name)) for name in NODES if draw(st.booleans()))
    return waiting, cluster(*nodes, placed=placed), facts(idle=idle, sick=sick, shared=shared, mig=mig)


@st.composite
def migs(draw: Any, name: str) -> MigGpu:
    """Draw a GPU in MIG mode."""
    used = draw(st.sampled_from([(), (Span(0, 4),), (Span(4, 4),), (Span(1, 1), Span(2, 2)), (Span(0, 8),)]))
    return gpu(*used, held=draw(st.booleans()), node=name, offered={SMALL: draw(st.integers(0, 2))})


def carried_out(way: Way, waiting: WaitingPod, objects: Objects, known: GpuFacts) -> tuple[Any, Objects]:
    """Return the pod and the cluster after a way, by its own words and not by its trial."""
    place = objects.nodes[way.node]
    allocatable = dict(place.allocatable)
    (asked, count) = next((name, count) for name, count in waiting.requests.items() if "/" in name)
    cordoned = place.cordoned
    if way.kind == "recut":
        (recut,) = [each for each in known.mig or () if each.node == way.node]
        if len(way.commands) > 1:
            for name, offered in recut.offered.items():
                allocatable[name] = max(allocatable.get(name, 0) - offered, 0)
        created = way.commands[-1].split()[-2].split(",")
        allocatable[asked] = allocatable.get(asked, 0) + len(created)
    elif way.kind == "replicas":
        allocatable[asked] = allocatable.get(asked, 0) + int(way.what.split()[1])
    elif way.kind == "device" and way.gpu:
        for each in known.sick or ():
            for name, unhealthy in each.unhealthy.items() if each.node == way.node else ():
                allocatable[name] = allocatable.get(name, 0) + unhealthy
    elif way.kind == "device":
        cordoned = False
    changed = replace(place, allocatable=allocatable, cordoned=cordoned)
    stay = tuple(each for each in objects.placed if each.key not in way.pods)
    requests = {
        way.resource if way.resource and name == asked else name: n for name, n in waiting.requests.items()
    }
    assert count > 0
    return (
        replace(waiting, requests=requests),
        replace(objects, nodes={**objects.nodes, way.node: changed}, placed=stay),
    )


@given(clusters())
def test_each_way_holds_once_it_is_carried_out(drawn: tuple[WaitingPod, Objects, GpuFacts]):
    waiting, objects, known = drawn
    answer = answered(waiting, objects, known)

    assert len(answer.ways) <= 5
    assert [KINDS.index(way.kind) for way in answer.ways] == sorted(
        KINDS.index(way.kind) for way in answer.ways
    )
    for way in answer.ways:
        asking, after = carried_out(way, waiting, objects, known)
        verdict = Judge(after).judge(asking).by_node[way.node]
        assert verdict.answer == "fits", way
        assert not way.unjudged
        if way.kind == "recut":
            (recut,) = [each for each in known.mig or () if each.node == way.node]
            assert len(way.commands) == 1 or not recut.held


def lacks_a_device_of(held: PlacedPod, waiting: WaitingPod, objects: Objects) -> bool:
    """Return whether a pod holds a device of which its node has too few for the one that waits."""

    def free(name: str) -> int:
        taken = sum(each.requests.get(name, 0) for each in objects.placed if each.node == held.node)
        return objects.nodes[held.node].allocatable.get(name, 0) - taken

    return any(
        "/" in name and held.requests.get(name, 0) > 0 and free(name) < count
        for name, count in waiting.requests.items()
    )


@given(clusters())
def test_each_single_idle_pod_that_would_do_is_found(drawn: tuple[WaitingPod, Objects, GpuFacts]):
    """If a device is missing: an idle pod that is only in the way of processors is not blamed."""
    waiting, objects, known = drawn
    if any(each.answer != "no" for each, _ in Judge(objects).judge(waiting).groups):
        return
    doing = False
    for each in known.idle or ():
        (held,) = [other for other in objects.placed if other.key == each.key]
        stay = tuple(other for other in objects.placed if other.key != each.key)
        fits = Judge(replace(objects, placed=stay)).judge(waiting).by_node[each.node].answer == "fits"
        doing = doing or (fits and not held.ending and lacks_a_device_of(held, waiting, objects))

    assert ("idle" in kinds(answered(waiting, objects, known))) or not doing
