"""Rule 14 of docs/join.md where certainty ends: limits of several containers, two names, unread cgroups."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import GpuIdentity
from exporter.model.readings import CgroupMemory
from tests.core.attribution.build import GIB, UUID, gpu, held, join, replicas, row
from tests.core.attribution.test_charges import (
    CAPACITY,
    PCI,
    cid,
    group,
    misc,
    node,
    of,
    path,
    pod_path,
    shared,
    the_gpu,
    tree,
    uid,
)

LIMITED = (3 * GIB, 0, 5 * GIB)
OTHER = "GPU-00000000-0000-0000-0000-00000000000b"
OTHER_PCI = "0000:03:00.0"
TWO_OF_A = held("a", f"{UUID}::0") + held("a", f"{UUID}::1", container="other")


def other_gpu(address="00000000:03:00.0"):
    identity = GpuIdentity(uuid=OTHER, index=1, minor=1, model="T4", pci_bus_id=address)
    return gpu(None, uuid=OTHER, identity=identity, compute_mode="default")


def two_containers(cgroups, reading=None):
    """Join a GPU that both containers of the pod a hold; return their rows."""
    who = node(cgroups, containers=("main", "other"))
    result = join(reading or the_gpu(), TWO_OF_A, replicas(4), who)
    return row(result, "a"), row(result, "a", "other")


def claims(each):
    return each.memory_used, each.memory_entitled, each.isolation


NOTHING = (None, 4 * GIB, "none")


@pytest.mark.parametrize("unanswered", [(), ("/kubepods.slice",), (pod_path("a"), pod_path("b"))])
def test_a_limit_of_the_driver_far_above_is_not_that_of_each_pod(unanswered):
    below = ("/kubepods.slice", pod_path("a"), path("a"), pod_path("b"), path("b"))
    answers = dict.fromkeys(below, LIMITED)
    result = shared(*misc(answers, of("a"), of("b"), unanswered=unanswered))
    assert [claims(row(result, pod)) for pod in "ab"] == [NOTHING, NOTHING]
    assert row(result, "a").memory_limit == 5 * GIB
    assert result.gpus[0].unattributed_memory == 8 * GIB


def test_answers_of_the_driver_of_different_moments_are_one_figure():
    answers = {
        pod_path("a"): (3 * GIB + 2, 0, 5 * GIB),
        path("a"): LIMITED,
        path("a", 1): (3 * GIB + 1, 0, 5 * GIB),
    }
    cgroups, reading = misc(answers, of("a"), of("a", number=1))
    assert [claims(each) for each in two_containers(cgroups, reading)] == [NOTHING, NOTHING]


def test_a_limit_of_which_the_source_is_not_known_may_be_that_of_both():
    answers = {path("a"): LIMITED, path("a", 1): LIMITED}
    cgroups, reading = misc(answers, of("a"), of("a", number=1), unanswered=[pod_path("a")])
    assert [claims(each) for each in two_containers(cgroups, reading)] == [NOTHING, NOTHING]


def test_own_limits_of_the_driver_are_the_containers_own():
    answers = {path("a"): LIMITED, path("a", 1): (GIB, 0, 2 * GIB)}
    cgroups, reading = misc(answers, of("a"), of("a", number=1))
    main, other = two_containers(cgroups, reading)
    assert claims(main) == (3 * GIB, 5 * GIB, "hard")
    assert claims(other) == (GIB, 2 * GIB, "hard")
    assert not main.memory_limit_above


@pytest.mark.parametrize("unanswered", [(), (pod_path("a"),)])
def test_the_sandbox_of_a_pod_does_not_count_its_limit_twice(unanswered):
    answers = dict.fromkeys((pod_path("a"), path("a"), path("a", 7)), LIMITED)
    cgroups, reading = misc(answers, of("a"), of("a", number=7), of("b"), unanswered=unanswered)
    assert row(shared(cgroups, reading, ids=False), "a").memory_used == 3 * GIB


def test_a_limit_of_the_pod_may_be_for_a_container_that_cannot_be_read():
    above = group(pod_path("a"), 3 * GIB, hard=6 * GIB, places=[(uid("a"), "")])
    unreadable = replace(of("a", number=1), memory={})
    readable = tree(of("a", 3 * GIB), above)
    cgroups = replace(readable, cgroups={**readable.cgroups, unreadable.path: unreadable})
    main, other = two_containers(cgroups)
    assert claims(main) == (3 * GIB, 4 * GIB, "none")
    assert other.memory_used is None


def two_gpus(*cgroups):
    return replace(tree(*cgroups), capacity={PCI: CAPACITY, OTHER_PCI: CAPACITY})


def nameless(cgroups):
    """Return the workloads of a node that knows no names, but which containers run."""
    return replace(node(cgroups), pods=None, running={uid("a"): frozenset({cid("a")})})


def test_a_pod_without_a_name_is_not_two_pods():
    """Rule 4, by cgroups: the one that is charged on both GPUs holds one of them at most."""
    both = of("a", 2 * GIB)
    both = replace(both, memory={**both.memory, OTHER_PCI: CgroupMemory(used=GIB, limit=4 * GIB)})
    who = nameless(two_gpus(both))
    holders = held("x", f"{UUID}::0") + held("y", f"{OTHER}::0")
    result = join([the_gpu(), other_gpu()], holders, replicas(4) + replicas(4, OTHER), who)
    assert [claims(row(result, pod)) for pod in "xy"] == [NOTHING, NOTHING]


def test_a_pod_without_a_name_is_the_only_one_meant():
    who = nameless(tree(of("a", 2 * GIB)))
    result = join(the_gpu(), held("x", f"{UUID}::0"), replicas(4), who)
    assert [each.memory_used for each in result.containers] == [2 * GIB]


def test_two_gpus_at_one_address_are_not_metered():
    gpus = [the_gpu(), other_gpu("0000:02:00.0")]
    holders = held("a", f"{UUID}::0") + held("b", f"{OTHER}::0")
    offered = replicas(4) + replicas(4, OTHER)
    result = join(gpus, holders, offered, node(tree(of("a", 2 * GIB, hard=4 * GIB), of("b"))))
    assert {(each.memory_used, each.isolation, each.limit_backend) for each in result.containers} == {
        (None, "none", "")
    }


CONTAINERS = (path("a"), path("a", 1), path("b"))
LEVELS = ("/kubepods.slice", pod_path("a"), pod_path("b"), *CONTAINERS)


def nearest(at, limits):
    """Return the cgroup that limits one, "" without any."""
    while at and not any(limits.get(at, ())):
        at = at.rpartition("/")[0]
    return at


@given(
    limits=st.dictionaries(
        st.sampled_from(LEVELS), st.sampled_from([(0, 2 * GIB), (GIB, 2 * GIB), (GIB, None)])
    ),
    used=st.tuples(*[st.integers(0, 2) for _ in CONTAINERS]),
    unanswered=st.sets(st.sampled_from(["", *LEVELS])),
)
def test_what_the_driver_answers_is_claimed_of_the_right_container_or_of_none(limits, used, unanswered):
    uses = dict(zip(CONTAINERS, (GIB * each for each in used), strict=True))
    figures = {at: sum(use for c, use in uses.items() if nearest(c, limits) == at) for at in LEVELS}
    sources = {at: nearest(at, limits) for at in LEVELS}
    answers = {at: (figures[source], *limits[source]) for at, source in sources.items() if source}
    cgroups, reading = misc(answers, of("a"), of("a", number=1), of("b"), unanswered=unanswered)
    holders = TWO_OF_A + held("b", f"{UUID}::2")
    result = join(reading, holders, replicas(4), node(cgroups, containers=("main", "other")))
    rows = (row(result, "a"), row(result, "a", "other"), row(result, "b"))
    for at, each in zip(CONTAINERS, rows, strict=True):
        assert each.memory_used in (None, uses[at])
        source = sources[at]
        sharing = [c for c in CONTAINERS if c != at and uses[c] and sources[c] == source]
        if sharing:
            assert each.isolation == "none"
        if not unanswered and source == at and limits[at][1]:
            others = {limits.get(above) for above in LEVELS if at.startswith(f"{above}/")}
            assert each.isolation == "hard" or limits[at] in others
    shown = sum(each.memory_used or 0 for each in rows)
    assert shown + result.gpus[0].unattributed_memory == reading.memory.used


@pytest.mark.parametrize("backend", ["dmem", "misc"])
def test_a_limit_of_the_pod_may_be_for_a_holder_of_which_no_cgroup_is_known(backend):
    if backend == "dmem":
        above = group(pod_path("a"), 3 * GIB, hard=5 * GIB, places=[(uid("a"), "")])
        cgroups, reading = tree(of("a", 3 * GIB), above), the_gpu()
    else:
        answers = {pod_path("a"): LIMITED, path("a"): LIMITED}
        cgroups, reading = misc(answers, of("a"))
    main, _ = two_containers(cgroups, reading)
    assert (main.memory_entitled, main.isolation) == (4 * GIB, "none")
    assert main.memory_used == (3 * GIB if backend == "dmem" else None)
    # That of another pod is not below.
    assert claims(row(shared(cgroups, reading), "a")) == (3 * GIB, 5 * GIB, "hard")
