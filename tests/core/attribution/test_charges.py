"""Rule 14 of docs/join.md: what cgroups meter of containers, and the limits that are in force."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution import CgroupIndex, HoldingsIndex
from exporter.attribution.cgroup_places import paths_above
from exporter.attribution.charges import without_own_limit
from exporter.model import ContainerRef, DeviceKey, GpuIdentity, Holding, Holdings, PodIdentity, Workloads
from exporter.model.memory_limits import Cgroup, CgroupTree, unexplained_difference, zone_of
from exporter.model.readings import CgroupMemory
from tests.core.attribution.build import (
    GIB,
    UUID,
    gpu,
    held,
    join,
    memory,
    process,
    replicas,
    row,
    whole,
    workloads,
)

PCI = "0000:02:00.0"
ROOT = "/sys/fs/cgroup"
CAPACITY = 16 * GIB
PODS = "abcdefgh"


def uid(pod):
    return f"{ord(pod):08x}-0000-4000-8000-000000000000"


def cid(pod, number=0):
    return f"{ord(pod) * 16 + number:064x}"


def pod_path(pod):
    return f"/kubepods.slice/pod{uid(pod)}"


def path(pod, number=0):
    return f"{pod_path(pod)}/{cid(pod, number)}"


def group(at, used=0, soft=0, hard=None, places=()):
    """Return a cgroup with memory of the GPU."""
    return Cgroup(
        path=at, places=tuple(places), memory={PCI: CgroupMemory(used=used, guaranteed=soft, limit=hard)}
    )


def of(pod, used=0, soft=0, hard=None, number=0):
    """Return the cgroup of a container."""
    return group(path(pod, number), used, soft, hard, [(uid(pod), cid(pod, number))])


def tree(*cgroups, capacity=CAPACITY, own=()):
    """Return a tree with the cgroups of pods above these."""
    by_path = {each.path: each for each in cgroups}
    for each in cgroups:
        above = each.path.rpartition("/")[0]
        if above:
            places = [(each.places[0][0], "")] if each.places else ()
            by_path.setdefault(
                above, group(above, sum(c.memory[PCI].used or 0 for c in cgroups), places=places)
            )
    return CgroupTree(
        root=ROOT, capacity={PCI: capacity} if capacity else {}, cgroups=by_path, own=frozenset(own)
    )


def node(cgroups, *, view=None, ids=True, containers=("main",)):
    """Return the workloads of a node; without ``view`` no process is seen."""
    pods = {
        uid(pod): PodIdentity(
            uid=uid(pod),
            namespace="ml",
            name=pod,
            containers=containers,
            container_ids={cid(pod, n): name for n, name in enumerate(containers)} if ids else {},
        )
        for pod in PODS
    }
    seen = view or workloads(view=False)
    places = {
        pid: replace(place, pod_uid=uid(place.pod_uid[-1]), container_id=cid(place.pod_uid[-1]))
        for pid, place in seen.places.items()
        if place.pod_uid
    }
    return Workloads(
        places={**seen.places, **places}, pods=pods, process_view=seen.process_view, cgroups=cgroups
    )


def the_gpu(processes=None, utilization=None, used=8 * GIB, **more):
    identity = GpuIdentity(uuid=UUID, index=0, minor=0, model="T4", pci_bus_id="00000000:02:00.0")
    return gpu(processes, utilization, used, identity=identity, compute_mode="default", **more)


def shared(cgroups, reading=None, **more):
    """Join a GPU in four replicas, held by the pods a and b."""
    return join(
        reading or the_gpu(),
        held("a", f"{UUID}::0") + held("b", f"{UUID}::1"),
        replicas(4),
        node(cgroups, **more),
    )


def test_without_the_hosts_processes_use_is_shown_where_there_was_none():
    blind = shared(None)
    assert (row(blind, "a").memory_used, row(blind, "a").memory_source) == (None, "none")

    result = shared(tree(of("a", 3 * GIB), of("b", 2 * GIB)))

    assert (row(result, "a").memory_used, row(result, "a").memory_source) == (3 * GIB, "cgroup")
    assert row(result, "b").memory_used == 2 * GIB
    assert result.gpus[0].unattributed_memory == 3 * GIB
    assert result.inconsistent == ()


def test_nothing_charged_is_an_observed_zero():
    result = shared(tree(of("a", 3 * GIB), of("b", 0)))
    assert (row(result, "b").memory_used, row(result, "b").memory_source) == (0, "cgroup")


def test_a_container_without_a_cgroup_is_unknown():
    result = shared(tree(of("a", 3 * GIB)))
    assert row(result, "b").memory_used is None


@pytest.mark.parametrize(
    ("used", "zone"), [(GIB, "safe"), (2 * GIB, "safe"), (3 * GIB, "borrowing"), (4 * GIB, "full")]
)
def test_the_zones(used, zone):
    a = row(shared(tree(of("a", used, soft=2 * GIB, hard=4 * GIB), of("b"))), "a")
    assert (a.memory_guaranteed, a.memory_limit, a.memory_charged) == (2 * GIB, 4 * GIB, used)
    assert zone_of(a.memory_charged, a.memory_guaranteed, a.memory_limit) == zone
    assert (a.memory_entitled, a.isolation, a.limit_backend) == (4 * GIB, "hard", "dmem")


def test_without_a_limit_there_is_no_zone_and_nothing_is_claimed():
    a = row(shared(tree(of("a", 3 * GIB), of("b"))), "a")
    assert (a.memory_guaranteed, a.memory_limit, a.memory_charged) == (None, None, 3 * GIB)
    assert (a.memory_entitled, a.isolation) == (4 * GIB, "none")
    assert zone_of(a.memory_charged, a.memory_guaranteed, a.memory_limit) is None


def test_a_soft_limit_alone_is_no_isolation():
    a = row(shared(tree(of("a", 3 * GIB, soft=2 * GIB), of("b"))), "a")
    assert (a.memory_guaranteed, a.memory_limit, a.isolation) == (2 * GIB, None, "none")
    assert a.memory_entitled == 4 * GIB


def test_a_hard_limit_of_one_holder_says_nothing_of_the_other():
    result = shared(tree(of("a", GIB, hard=4 * GIB), of("b", GIB)))
    assert [row(result, pod).isolation for pod in "ab"] == ["hard", "none"]


def test_a_limit_above_the_container_is_in_force_on_all_below():
    """The kernel enforces it, though the container itself sees the whole GPU."""
    above = group(pod_path("a"), 3 * GIB, hard=6 * GIB, places=[(uid("a"), "")])
    a = row(shared(tree(of("a", 3 * GIB), of("b"), above)), "a")
    assert (a.memory_limit, a.memory_entitled, a.isolation) == (6 * GIB, 6 * GIB, "hard")


def test_the_sandbox_below_the_limit_of_a_pod_is_no_other_container():
    above = group(pod_path("a"), 3 * GIB, hard=6 * GIB, places=[(uid("a"), "")])
    a = row(shared(tree(of("a", 3 * GIB), of("a", 0, number=7), of("b"), above)), "a")
    assert (a.memory_used, a.memory_limit, a.isolation) == (3 * GIB, 6 * GIB, "hard")


def test_the_lowest_limit_of_a_line_counts():
    above = group(pod_path("a"), 3 * GIB, hard=2 * GIB, places=[(uid("a"), "")])
    a = row(shared(tree(of("a", GIB, soft=3 * GIB, hard=6 * GIB), of("b"), above)), "a")
    assert (a.memory_limit, a.memory_guaranteed) == (2 * GIB, 2 * GIB)


def test_a_limit_for_two_containers_is_the_entitlement_of_neither():
    above = group("/kubepods.slice", 3 * GIB, hard=6 * GIB)
    result = shared(tree(of("a", 3 * GIB), of("b"), above))
    a = row(result, "a")
    assert (a.memory_limit, a.memory_entitled, a.isolation) == (6 * GIB, 4 * GIB, "none")
    assert result.gpus[0].memory_entitled == 8 * GIB


def test_the_entitlements_of_the_gpu_are_those_of_the_rows():
    result = shared(tree(of("a", GIB, hard=5 * GIB), of("b", GIB)))
    assert result.gpus[0].memory_entitled == 5 * GIB + 4 * GIB


def test_an_enforced_entitlement_below_the_limit_stays():
    who = node(tree(of("a", GIB, hard=15 * GIB)))
    a = row(join(the_gpu(), held("a", UUID), whole(), who), "a")
    assert a.memory_entitled == 15 * GIB
    who = node(tree(of("a", GIB, hard=15 * GIB), capacity=16 * GIB))
    small = the_gpu(memory=memory(8 * GIB, 12 * GIB))
    assert row(join(small, held("a", UUID), whole(), who), "a").memory_entitled == 12 * GIB


SEEN = workloads({1: "a", 2: "b"})


def seen(cgroups, *sizes):
    processes = [process(pid, size) for pid, size in enumerate(sizes, 1) if size is not None]
    return shared(cgroups, the_gpu(processes, {}), view=SEEN)


def test_where_processes_are_seen_they_are_the_meter():
    a = row(seen(tree(of("a", 3 * GIB, hard=4 * GIB), of("b", GIB)), 2 * GIB, GIB), "a")
    assert (a.memory_used, a.memory_source, a.memory_charged) == (2 * GIB, "process", 3 * GIB)
    assert unexplained_difference(a.memory_used, a.memory_charged, a.processes) == -GIB


def test_a_proven_zero_gives_way_to_a_charge():
    result = seen(tree(of("a", 3 * GIB), of("b", GIB)), None, GIB)
    assert (row(result, "a").memory_used, row(result, "a").memory_source) == (3 * GIB, "cgroup")


@pytest.mark.parametrize(
    ("by_processes", "charged", "processes", "expected"),
    [
        (GIB, GIB + (512 << 20), 1, None),
        (GIB, GIB + (512 << 20) + 1, 1, -(512 << 20) - 1),
        (3 * GIB, GIB, 4, None),
        (3 * GIB + 1, GIB, 4, 2 * GIB + 1),
        (0, 0, 0, None),
    ],
)
def test_meters_disagree_by_more_than_a_context_for_each_process(by_processes, charged, processes, expected):
    assert unexplained_difference(by_processes, charged, processes) == expected


def test_meters_of_another_moment_are_not_added_up_to_more_than_there_is():
    result = shared(tree(of("a", 6 * GIB, hard=7 * GIB), of("b", 5 * GIB)))
    assert [row(result, pod).memory_used for pod in "ab"] == [None, None]
    assert (result.gpus[0].unattributed_memory, result.inconsistent) == (8 * GIB, ())
    assert row(result, "a").memory_limit == 7 * GIB


def test_without_the_memory_of_the_device_the_kernels_size_is_the_bound():
    result = shared(tree(of("a", 10 * GIB), of("b", 7 * GIB)), the_gpu(memory=None))
    assert [row(result, pod).memory_used for pod in "ab"] == [None, None]


@given(
    st.lists(
        st.tuples(st.integers(0, 20 * GIB), st.integers(0, 16 * GIB), st.none() | st.integers(0, 15 * GIB)),
        min_size=len(PODS),
        max_size=len(PODS),
    ),
    st.integers(0, 16 * GIB),
    st.booleans(),
)
def test_sums_hold_whatever_is_charged(charges, used, view):
    cgroups = tree(*(of(pod, *amounts) for pod, amounts in zip(PODS, charges, strict=True)))
    reading = the_gpu([process(1, min(used, GIB))] if view else None, {}, used)
    who = node(cgroups, view=workloads({1: "a"}) if view else None)
    result = join(
        reading, [id_ for n, pod in enumerate(PODS) for id_ in held(pod, f"{UUID}::{n}")], replicas(8), who
    )
    known = [each.memory_used for each in result.containers if each.memory_used is not None]
    assert sum(known) <= used
    assert sum(known) + result.gpus[0].unattributed_memory == used
    assert result.inconsistent == ()
    for each in result.containers:
        if each.isolation == "hard":
            assert each.memory_limit is not None
            assert each.memory_entitled <= each.memory_limit


def test_use_without_holding_is_a_row():
    result = shared(tree(of("a", GIB), of("b", GIB), of("c", 2 * GIB)))
    assert (row(result, "c").memory_used, row(result, "c").slices) == (2 * GIB, 0)
    assert result.gpus[0].unattributed_memory == 4 * GIB


def test_a_pod_of_one_container_is_known_without_ids():
    result = shared(tree(of("a", GIB), of("a", 0, number=7), of("b", 0)), ids=False)
    assert [row(result, pod).memory_used for pod in "ab"] == [GIB, 0]


def test_containers_that_cannot_be_told_apart_are_unknown():
    cgroups = tree(of("a", GIB), of("a", GIB, number=1), of("b", GIB))
    assert row(shared(cgroups, ids=False, containers=("main", "other")), "a").memory_used is None


def test_the_other_containers_of_a_pod_have_their_own():
    cgroups = tree(of("a", GIB), of("a", 2 * GIB, number=1), of("b", 0))
    assert row(shared(cgroups, containers=("main", "other")), "a").memory_used == GIB


def test_cgroups_inside_a_container_count_once():
    """Such as docker in a pod, or the one of crun below the container's."""
    inside = group(f"{path('a')}/docker/{'9' * 64}", 2 * GIB, places=[(uid("a"), cid("a"))])
    other = group(f"{path('a')}/docker/{'8' * 64}", GIB, places=[(uid("a"), cid("a"))])
    result = shared(tree(of("a", 3 * GIB), inside, other, of("b", GIB)))
    assert row(result, "a").memory_used == 3 * GIB


def test_the_limit_of_the_cgroup_below_the_containers_counts():
    leaf = group(f"{path('a')}/container", 3 * GIB, 2 * GIB, 4 * GIB, [(uid("a"), cid("a"))])
    a = row(shared(tree(of("a", 3 * GIB, soft=2 * GIB), leaf, of("b"))), "a")
    assert (a.memory_used, a.memory_guaranteed, a.memory_limit, a.isolation) == (
        3 * GIB,
        2 * GIB,
        4 * GIB,
        "hard",
    )


def test_a_pod_in_a_pod_has_its_own_and_the_outer_ones_is_unknown():
    places = [(uid("b"), cid("b")), (uid("a"), cid("a"))]
    inner = group(f"{path('a')}/kubepods/pod{uid('b')}/{cid('b')}", GIB, places=places)
    result = shared(tree(of("a", 3 * GIB), inner))
    assert [row(result, pod).memory_used for pod in "ab"] == [None, GIB]


def test_a_tenant_cannot_name_a_cgroup_as_anothers():
    forged = [(uid("b"), cid("b")), (uid("a"), cid("a"))]
    fake = group(f"{path('a')}/pod{uid('b')}/{cid('b')}", 7 * GIB, hard=GIB, places=forged)
    b = row(shared(tree(of("a", 3 * GIB), of("b", 2 * GIB), fake)), "b")
    assert (b.memory_used, b.memory_limit, b.isolation) == (2 * GIB, None, "none")


def test_the_figures_of_two_cgroups_of_one_container_are_unknown():
    twin = group(f"/other/pod{uid('a')}/{cid('a')}", GIB, places=[(uid("a"), cid("a"))])
    assert row(shared(tree(of("a", 3 * GIB), twin, of("b"))), "a").memory_used is None


def test_mig_devices_have_no_limits():
    index = CgroupIndex(node(tree(of("a", GIB, hard=4 * GIB))))
    reading = the_gpu(mig_enabled=True, mig=())
    assert index.charges(reading, [ContainerRef("ml", "a", "main")], ()) == {}
    assert index.to_ask(replace(reading), HoldingsIndex(Holdings(known=True))) == ()


def test_use_on_a_gpu_that_is_lost_is_absent():
    a = row(shared(tree(of("a", 3 * GIB, hard=4 * GIB), of("b")), the_gpu(up=False, memory=None)), "a")
    assert (a.memory_used, a.memory_limit, a.memory_charged) == (None, None, None)


def test_the_kernel_meters_gpus_of_every_maker():
    amd = GpuIdentity(uuid=UUID, index=0, model="MI210", vendor="amd", pci_bus_id="0000:02:00.0")
    index = CgroupIndex(
        node(tree(of("a", 3 * GIB, soft=GIB, hard=4 * GIB), of("h", 0, hard=GIB), own=[path("h")]))
    )
    charge = index.charges(gpu(identity=amd), [ContainerRef("ml", "a", "main")], ())[
        ContainerRef("ml", "a", "main")
    ]
    assert (charge.used, charge.guaranteed, charge.limit, charge.zone) == (3 * GIB, GIB, 4 * GIB, "borrowing")
    # Its driver reports the device whatever the limits of the reader, and has no call for limits.
    assert not index.limits_exporter(gpu(identity=amd))
    assert index.to_ask(gpu(identity=amd), HoldingsIndex(Holdings(known=True))) == ()


# The driver's own backend, ``misc``.


NO_LIMIT = (0, 0, None)


def misc(readings, *cgroups, own=(), unanswered=()):
    """Return the workloads and the GPU of a node whose driver answers so for these paths.

    For the other cgroups, and those above, it answers that there is no limit, except for ``unanswered``.
    """
    containers = {each.path: replace(each, memory={}) for each in cgroups}
    empty = CgroupTree(root=ROOT, cgroups=containers, own=frozenset(own))
    every = {above for each in containers for above in (each, *paths_above(each), "")}
    given = dict.fromkeys(every, NO_LIMIT) | readings
    answers = {
        f"{ROOT}{at}": CgroupMemory(used=u, guaranteed=s, limit=h)
        for at, (u, s, h) in given.items()
        if at not in unanswered
    }
    return empty, the_gpu(cgroup_memory=answers)


def test_the_drivers_own_limits_are_shown_alike():
    cgroups, reading = misc({path("a"): (3 * GIB, 2 * GIB, 4 * GIB)}, of("a"), of("b"))
    result = shared(cgroups, reading)
    a = row(result, "a")
    assert (a.memory_used, a.memory_source, a.memory_guaranteed, a.memory_limit) == (
        3 * GIB,
        "cgroup",
        2 * GIB,
        4 * GIB,
    )
    assert (a.isolation, a.limit_backend) == ("hard", "misc")
    assert row(result, "b").memory_used is None


def test_without_a_limit_the_driver_meters_nothing_that_is_documented():
    cgroups, reading = misc({path("a"): (0, 0, None)}, of("a"), of("b"))
    assert row(shared(cgroups, reading), "a").memory_used is None


def test_a_limit_above_is_answered_for_each_below_and_is_none_of_theirs():
    limits = (3 * GIB, 2 * GIB, 4 * GIB)
    two = {pod_path("a"): limits, path("a"): limits, path("a", 1): limits}
    cgroups, reading = misc(two, of("a"), of("a", number=1), of("b"))
    allocated = held("a", f"{UUID}::0") + held("a", f"{UUID}::1", container="other")
    who = node(cgroups, containers=("main", "other"))
    a = row(join(reading, allocated, replicas(4), who), "a")
    assert (a.memory_used, a.memory_limit, a.memory_entitled, a.isolation) == (None, 4 * GIB, 4 * GIB, "none")


def test_a_limit_above_the_only_container_is_its_own():
    limits = (3 * GIB, 2 * GIB, 5 * GIB)
    cgroups, reading = misc({pod_path("a"): limits, path("a"): limits}, of("a"), of("b"))
    a = row(shared(cgroups, reading), "a")
    assert (a.memory_used, a.memory_entitled, a.isolation) == (3 * GIB, 5 * GIB, "hard")


def test_the_driver_is_asked_about_holders_and_the_exporter_itself():
    cgroups, reading = misc({}, of("a"), of("b"), of("c"), own=[path("c")])
    held_by_a = HoldingsIndex(Holdings(known=True, holdings=(_holding("a"),)))
    assert CgroupIndex(node(cgroups)).to_ask(reading, held_by_a) == (
        f"{ROOT}{path('a')}",
        f"{ROOT}{path('c')}",
    )
    metered = CgroupIndex(node(tree(of("a"))))
    assert metered.to_ask(reading, held_by_a) == ()


def _holding(pod):
    return Holding(
        holder=ContainerRef("ml", pod, "main"),
        device=DeviceKey(UUID),
        resource="nvidia.com/gpu",
        slices=1,
        memory_entitled=None,
        compute_entitled=None,
    )


@pytest.mark.parametrize("soft_and_hard", [(GIB, None), (0, 4 * GIB)])
def test_a_limited_exporter_does_not_know_the_memory_of_the_device(soft_and_hard):
    own = of("h", 0, *soft_and_hard)
    index = CgroupIndex(node(tree(of("a", GIB), own, own=[own.path])))
    reading = without_own_limit(the_gpu(), index)
    assert reading.memory is None
    assert "own cgroup" in reading.withheld["memory"]


def test_an_exporter_without_a_limit_does():
    own = of("h")
    index = CgroupIndex(node(tree(of("a", GIB, hard=GIB), own, own=[own.path])))
    assert without_own_limit(the_gpu(), index) == the_gpu()


def test_the_drivers_answer_for_the_exporter_counts_as_well():
    cgroups, reading = misc({path("h"): (0, 0, 4 * GIB)}, of("h"), own=[path("h")])
    assert without_own_limit(reading, CgroupIndex(node(cgroups))).memory is None
