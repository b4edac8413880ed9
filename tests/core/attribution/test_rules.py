"""Each numbered rule of docs/join.md, one claim at a time."""

from dataclasses import replace

import pytest

from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    ContainerRow,
    GpuIdentity,
    Holdings,
    PodDetails,
    PodIdentity,
)
from exporter.sharing import resolve_holdings
from tests.core.attribution.build import (
    GIB,
    MIG,
    UUID,
    attribute,
    gpu,
    held,
    join,
    mig,
    mig_gpu,
    process,
    replicas,
    row,
    whole,
    workloads,
)

TWO_HOLDERS = held("a", f"{UUID}::0") + held("b", f"{UUID}::1")


def test_several_replicas_of_one_container_are_one_holder():
    """Rule 1."""
    result = join(
        gpu([process(1, 2 * GIB)], {1: 30}),
        held("a", *(f"{UUID}::{n}" for n in range(5))),
        replicas(10),
        workloads({1: "a"}),
    )
    assert [(r.slices, r.memory_used, r.compute_used) for r in result.containers] == [(5, 2 * GIB, 0.3)]
    assert row(result, "a").compute_entitled == 0.5
    assert result.gpus[0].holders == 1


def test_hidden_partitions_leave_the_sums_of_their_gpu_unknown():
    """Rule 1."""
    identity = GpuIdentity(uuid=UUID, index=0, vendor="amd", pci_bus_id="00000000:19:00.0")
    part = mig([process(1)], uuid="amdgpu_xcp_1", slices=1)
    name, resource = "amdgpu_xcp_1", "amd.com/cpx_nps1"
    for complete in (True, False):
        result = join(
            mig_gpu([part], identity=identity, mig_complete=complete),
            held("a", name, resource=resource),
            whole(name, resource),
            workloads({1: "a"}),
        )
        (row_of_gpu,) = result.gpus
        assert (row_of_gpu.holders, bool(row_of_gpu.slices)) == ((1, True) if complete else (None, False))
        assert (row_of_gpu.memory_entitled is None) == (not complete)
        assert (row(result, "a").slices, result.migs[0].holders) == (1, 1)


AMD = GpuIdentity(uuid=UUID, index=0, vendor="amd", pci_bus_id="00000000:19:00.0")


def amd_node(processes, *more, offered=None):
    """Join a whole GPU of AMD's that pod a holds; nothing hides a process or a name."""
    reading = gpu(processes, {each.pid: 5 for each in processes}, used=3 * GIB, identity=AMD)
    allocated = held("a", UUID, resource="amd.com/gpu") + list(more)
    return join(reading, allocated, offered or whole(UUID, "amd.com/gpu"), workloads({1: "a", 2: "b"}))


def test_a_container_that_is_not_on_an_amd_list_is_not_idle():
    """KFD lists only processes that compute with ROCm."""
    alone = row(amd_node([]), "a")
    assert (alone.memory_used, alone.compute_used, alone.processes) == (None, 0.6, None)
    assert (alone.memory_source, alone.compute_source) == ("none", "device")
    beside = row(amd_node([process(2)]), "a")
    assert (beside.memory_used, beside.compute_used, beside.processes) == (None, None, None)
    listed = row(amd_node([process(1)]), "a")
    assert (listed.memory_used, listed.compute_used, listed.processes) == (GIB, 0.05, 1)


def test_a_process_in_several_lists_counts_once():
    """Rule 2."""
    result = join(
        gpu([process(1), process(2)], {1: 10, 2: 5}), held("a", UUID), whole(), workloads({1: "a", 2: "a"})
    )
    assert (row(result, "a").memory_used, row(result, "a").processes) == (2 * GIB, 2)


def test_use_is_the_sum_over_the_container_s_processes():
    """Rule 3."""
    result = join(
        gpu([process(1), process(2, 3 * GIB)], {1: 40, 2: 7}),
        TWO_HOLDERS,
        replicas(2),
        workloads({1: "a", 2: "b"}),
    )
    a, b = row(result, "a"), row(result, "b")
    assert (a.memory_used, a.compute_used, b.memory_used, b.compute_used) == (GIB, 0.4, 3 * GIB, 0.07)
    assert {a.memory_source, a.compute_source} == {"process"}


def test_the_only_holder_of_a_pod_has_the_use_of_the_pod():
    """Rule 3."""
    result = join(
        gpu([process(1)], {1: 20}),
        held("a", UUID, container="train"),
        whole(),
        workloads({1: "a"}, containers={"a": ("train", "sidecar")}),
    )
    assert row(result, "a", "train").memory_used == GIB


ID, OTHER_ID, OLD_ID = (f"{number:064x}" for number in (1, 2, 3))
STATUS = PodDetails(phase="Running")


@pytest.mark.parametrize(
    ("known", "running", "details", "owner"),
    [
        pytest.param({}, {ID}, None, "train", id="logs: no other container runs"),
        pytest.param({}, {ID, OTHER_ID}, None, "", id="logs: another container runs"),
        pytest.param({}, None, None, "", id="logs: which containers run is unknown"),
        pytest.param({OTHER_ID: "sidecar"}, {ID, OTHER_ID}, STATUS, "train", id="the other has another id"),
        pytest.param({OLD_ID: "train"}, {ID, OLD_ID}, STATUS, "", id="the holder has another id, and runs"),
        pytest.param({OLD_ID: "train"}, {ID}, STATUS, "", id="the id of the other is not known yet"),
        pytest.param({}, {ID}, STATUS, "", id="no id is known yet"),
        pytest.param(
            {OLD_ID: "train", OTHER_ID: "sidecar"},
            {ID, OTHER_ID},
            STATUS,
            "train",
            id="holder restarted",
        ),
        pytest.param(
            {OLD_ID: "train", OTHER_ID: "sidecar"}, {ID, OLD_ID}, STATUS, "", id="the other restarted"
        ),
    ],
)
def test_use_is_the_holders_only_if_no_other_container_can_be_meant(known, running, details, owner):
    """Rule 3."""
    pod = PodIdentity(
        uid="uid-a",
        namespace="ml",
        name="a",
        containers=("train", "sidecar"),
        container_ids=known,
        details=details,
    )
    who = replace(
        workloads({1: "a"}),
        pods={"uid-a": pod},
        running=None if running is None else {"uid-a": frozenset(running)},
    )
    result = join(gpu([process(1)], {1: 20}), held("a", UUID, container="train"), whole(), who)
    assert {r.holder.container: r.memory_used for r in result.containers if r.processes} == {owner: GIB}
    assert row(result, "a", "train").memory_used == (GIB if owner else None)


def test_a_container_that_is_listed_without_devices_has_zero_slices():
    """Rule 7: init containers are not listed."""
    main, sidecar = ContainerRef("ml", "a", "main"), ContainerRef("ml", "a", "sidecar")
    allocations = Allocations(
        allocated=tuple(held("a", UUID)),
        offered=tuple(whole()),
        api_version="v1",
        read_at=0.0,
        listed=frozenset({main, sidecar, main._replace(container="")}),
    )
    names = {f"{pid:064x}": name for pid, name in ((1, "main"), (2, "sidecar"), (3, "setup"))}
    pod = PodIdentity(uid="uid-a", namespace="ml", name="a", container_ids=names)
    who = replace(workloads({1: "a", 2: "a", 3: "a"}), pods={"uid-a": pod})
    reading = gpu([process(1), process(2), process(3)], {1: 20})
    result = attribute([reading], resolve_holdings([reading], allocations), who)
    assert {r.holder.container: r.slices for r in result.containers} == {
        "main": 1,
        "sidecar": 0,
        "setup": None,
    }


def test_containers_that_cannot_be_distinguished_have_no_sums_of_their_own():
    """Rule 3: the use is on one row without a container."""
    result = join(
        gpu([process(1), process(2)], {1: 20}),
        held("a", f"{UUID}::0", container="x") + held("a", f"{UUID}::1", container="y"),
        replicas(4),
        workloads({1: "a", 2: "a"}, containers={"a": ("x", "y")}),
    )
    shared = row(result, "a", "")
    assert (shared.memory_used, shared.compute_used, shared.slices) == (2 * GIB, 0.2, None)
    for name in ("x", "y"):
        own = row(result, "a", name)
        assert (own.memory_used, own.compute_used, own.processes, own.slices) == (None, None, None, 1)


def test_a_holder_without_a_process_has_zero_if_absence_is_proven():
    """Rule 4."""
    result = join(
        gpu([process(1)], {1: 9}),
        TWO_HOLDERS,
        replicas(2),
        workloads({1: "a"}),
    )
    idle = row(result, "b")
    assert (idle.memory_used, idle.compute_used, idle.processes) == (0, 0.0, 0)


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (workloads({1: "a"}, view=False), "no host pid namespace"),
        (workloads({1: "a"}, named=False), "no source of names"),
        (workloads({1: "a"}, lost=(2,)), "a process whose place is not known"),
        (workloads({1: "a", 2: "stranger"}, named=("a", "b", "c")), "a process in a pod without a name"),
    ],
)
def test_no_zero_where_absence_is_not_proven(who, why):
    """Rule 4."""
    allocated = TWO_HOLDERS + held("c", f"{UUID}::2")
    result = join(gpu([process(1), process(2)], {1: 9}), allocated, replicas(4), who)
    for pod in ("b", "c"):
        idle = row(result, pod)
        assert (idle.memory_used, idle.compute_used, idle.processes) == (None, None, None), why


def test_no_zero_when_the_list_of_processes_failed():
    result = join(gpu(None), TWO_HOLDERS, replicas(2), workloads())
    assert {r.memory_used for r in result.containers} == {None}


def test_a_pod_without_a_name_has_the_same_name_on_all_devices_or_none():
    """Rule 4."""
    second = UUID[:-1] + "c"
    gpus = [gpu([process(1, 4 * GIB)], {1: 50}), gpu([process(2, 6 * GIB)], {2: 80}, uuid=second)]
    holdings, offered = held("p", UUID) + held("q", second), whole() + whole(second)
    two_names = join(gpus, holdings, offered, workloads({1: "p", 2: "p"}, named=False))
    assert [(r.holder.pod, r.memory_used, r.pod_uid) for r in two_names.containers] == [
        ("p", None, ""),
        ("q", None, ""),
    ]
    gpus[1] = gpu([process(2, 6 * GIB)], {2: 80}, uuid=second)
    two_uids = join(
        gpus, held("p", UUID) + held("p", second), offered, workloads({1: "p", 2: "q"}, named=False)
    )
    assert {r.memory_used for r in two_uids.containers} == {None}
    each_its_own = join(gpus, holdings, offered, workloads({1: "p", 2: "q"}, named=False))
    assert [(r.holder.pod, r.memory_used) for r in each_its_own.containers] == [
        ("p", 4 * GIB),
        ("q", 6 * GIB),
    ]


@pytest.mark.parametrize("processes", [None, ()])
def test_a_container_that_came_after_a_reading_has_none_of_its_numbers(processes):
    """Rules 5 and 6: they are those of the former holder."""
    nodes = [gpu(processes, utilization_percent=60)]
    who = workloads(view=processes is not None)

    def found(pod: str) -> ContainerRow:
        held_now, held_then = (
            resolve_holdings(
                nodes,
                Allocations(
                    allocated=tuple(held(each, UUID)), offered=tuple(whole()), api_version="v1", read_at=0.0
                ),
            )
            for each in (pod, "old")
        )
        return row(attribute(nodes, held_now, who, {UUID: held_then}), pod)

    assert (found("new").memory_used, found("new").compute_used) == (None, None)
    assert found("old").compute_used == 0.6


def test_no_zero_from_a_list_that_is_older_than_the_holding():
    """Rule 4."""
    allocations = Allocations(
        allocated=tuple(TWO_HOLDERS),
        offered=tuple(replicas(2)),
        api_version="v1",
        read_at=0.0,
    )
    nodes = [gpu([process(1)], {1: 9})]
    before = {UUID: Holdings(known=False)}
    result = attribute(nodes, resolve_holdings(nodes, allocations), workloads({1: "a"}), before)
    assert (row(result, "a").memory_used, row(result, "b").memory_used) == (GIB, None)


def test_the_nameless_pod_is_named_when_only_one_holder_can_be_meant():
    """Rule 4."""
    result = join(
        gpu([process(1), process(2)], {1: 9, 2: 8}),
        TWO_HOLDERS,
        replicas(2),
        workloads({1: "a", 2: "x"}, named=("a",)),
    )
    assert (row(result, "b").memory_used, row(result, "b").pod_uid) == (GIB, "uid-x")


def test_a_superseded_pod_is_not_named_by_elimination():
    allocated = held("a", f"{UUID}::0") + held("fresh", f"{UUID}::1")
    for superseded, used in ((frozenset(), GIB), (frozenset({"uid-old"}), None)):
        who = replace(workloads({1: "old"}, named=("a",)), superseded=superseded)
        result = join(gpu([process(1)]), allocated, replicas(2), who)
        assert (row(result, "fresh").memory_used, row(result, "a").memory_used) == (used, used and 0)


def test_an_exclusive_holder_takes_the_device_s_numbers_without_a_process_view():
    result = join(gpu(None), held("a", UUID), whole(), workloads(view=False))
    alone = row(result, "a")
    assert (alone.memory_used, alone.compute_used, alone.processes) == (8 * GIB, 0.6, None)
    assert (alone.memory_source, alone.compute_source) == ("device", "device")
    assert result.gpus[0].unattributed_memory == 0


def test_a_mig_holder_takes_the_instance_s_memory_without_a_process_view():
    resource = "nvidia.com/mig-3g.5gb"
    result = join(
        mig_gpu([mig(None)]), held("a", MIG, resource=resource), whole(MIG, resource), workloads(view=False)
    )
    assert (row(result, "a").memory_used, row(result, "a").memory_source) == (2 * GIB, "instance")


def test_a_lone_holder_of_a_shared_gpu_takes_nothing_without_a_process_view():
    """Rule 5: other containers may run on a time-sliced GPU."""
    result = join(gpu(None), held("a", f"{UUID}::0"), replicas(4), workloads(view=False))
    assert (row(result, "a").memory_used, row(result, "a").compute_used) == (None, None)
    assert result.gpus[0].unattributed_memory == 8 * GIB


def test_mig_compute_without_a_meter_is_absent():
    """Rule 6."""
    resource = "nvidia.com/mig-3g.5gb"
    result = join(
        mig_gpu([mig([process(1)])]),
        held("a", MIG, resource=resource),
        whole(MIG, resource),
        workloads({1: "a"}),
    )
    assert (row(result, "a").compute_used, row(result, "a").compute_source) == (None, "none")
    assert row(result, "a").compute_entitled == pytest.approx(3 / 7)


def test_an_exclusive_holder_takes_the_device_s_compute_if_processes_have_none():
    """Rule 6."""
    result = join(gpu([process(1)], None), held("a", UUID), whole(), workloads({1: "a"}))
    assert (row(result, "a").compute_used, row(result, "a").compute_source) == (0.6, "device")


def test_a_stranger_on_an_exclusive_gpu_keeps_the_device_s_compute_from_its_holder():
    result = join(gpu([process(1), process(2)], None), held("a", UUID), whole(), workloads({1: "a", 2: "b"}))
    assert {r.compute_used for r in result.containers} == {None}


def test_a_user_that_holds_nothing_has_a_row_with_no_slices():
    """Rule 7."""
    result = join(gpu([process(1)], {1: 50}), (), whole(), workloads({1: "rogue"}))
    rogue = row(result, "rogue")
    assert (rogue.slices, rogue.memory_used, rogue.memory_entitled) == (0, GIB, None)


def isolations(found) -> dict[str, str]:
    return {each.holder.pod: each.isolation for each in found.containers}


def test_a_container_without_a_slice_ends_the_hard_isolation_of_the_holders():
    """Nothing keeps it from the memory that the holder should have alone."""
    node = gpu([process(1), process(2)])
    found = join(node, held("a", UUID), whole(), workloads({1: "a", 2: "b"}))
    assert [(each.slices, each.isolation) for each in found.containers] == [(1, "none"), (0, "none")]
    assert isolations(join(gpu([process(1)]), held("a", UUID), whole(), workloads({1: "a"}))) == {"a": "hard"}


def test_so_does_one_on_a_mig_device():
    node = mig_gpu([mig([process(1), process(2)]), mig([process(3)], uuid="MIG-2", gi=2)])
    allocated = held("a", MIG) + held("c", "MIG-2")
    found = join(node, allocated, whole(MIG) + whole("MIG-2"), workloads({1: "a", 2: "b", 3: "c"}))
    assert isolations(found) == {"a": "none", "b": "none", "c": "hard"}


def test_a_user_whose_slices_are_unknown_leaves_the_hard_isolation_unknown():
    node = gpu([process(1), process(2)])
    unresolved = held("a", UUID) + held("b", "GPU-elsewhere")
    found = join(node, unresolved, whole(), workloads({1: "a", 2: "b"}))
    assert isolations(found) == {"a": "", "b": ""}


def test_a_process_of_the_host_leaves_it_hard():
    node = gpu([process(1), process(2)])
    assert isolations(join(node, held("a", UUID), whole(), workloads({1: "a"}, outside=(2,)))) == {
        "a": "hard"
    }


def test_limits_by_software_are_not_ended_by_others():
    node = gpu([process(1, kind="mps"), process(2)])
    found = join(node, held("a", f"{UUID}::0"), replicas(2), workloads({1: "a", 2: "b"}))
    assert isolations(found) == {"a": "soft", "b": "soft"}


def test_zero_slices_are_not_claimed_while_the_kubelet_is_silent():
    """Rule 7."""
    reading = gpu([process(1)], {1: 50})
    result = attribute([reading], Holdings(known=False), workloads({1: "a"}))
    assert row(result, "a").slices is None
    assert (result.gpus[0].holders, result.gpus[0].memory_entitled) == (None, None)


def test_use_is_shown_where_it_runs_and_the_holding_where_it_is_held():
    """Rule 7: they may be on different GPUs."""
    other = "GPU-00000000-0000-0000-0000-00000000000c"
    result = join(
        [gpu([], {}, used=GIB // 2), gpu([process(1)], {1: 5}, uuid=other)],
        held("a", UUID),
        whole() + whole(other),
        workloads({1: "a"}),
    )
    assert [(r.device.uuid, r.slices, r.memory_used) for r in result.containers] == [
        (UUID, 1, 0),
        (other, 0, GIB),
    ]


def test_use_outside_of_pods_is_unattributed():
    """Rules 7 and 8."""
    result = join(
        gpu([process(1), process(2)], {1: 10, 2: 20}),
        held("a", UUID),
        whole(),
        workloads({1: "a"}, outside=(2,)),
    )
    assert result.gpus[0].unattributed_memory == 7 * GIB
    assert result.gpus[0].unattributed_utilization == 0.5
    assert len(result.containers) == 1


def test_parts_beyond_the_whole_are_counted_and_the_rest_is_zero():
    allocated = TWO_HOLDERS
    reading = gpu([process(1, 9 * GIB), process(2)], {1: 90, 2: 11})
    result = join(reading, allocated, replicas(2), workloads({1: "a", 2: "b"}))
    assert (result.gpus[0].unattributed_memory, result.gpus[0].unattributed_utilization) == (0, 0.0)
    assert result.inconsistent == ((UUID, "", "memory"), (UUID, "", "compute"))


def test_processes_above_the_device_s_own_utilization_are_no_contradiction():
    """Rule 8: the driver averages them over different times."""
    result = join(gpu([process(1)], {1: 90}), held("a", UUID), whole(), workloads({1: "a"}))
    assert (result.gpus[0].unattributed_utilization, result.inconsistent) == (0.0, ())


def test_a_process_of_the_host_keeps_the_device_s_compute_from_the_holder():
    """Rule 6."""
    result = join(gpu([process(2)], None), held("a", UUID), whole(), workloads(outside=(2,)))
    assert (row(result, "a").compute_used, row(result, "a").processes) == (None, 0)


def test_a_mig_gpu_that_is_lost_keeps_its_holders():
    lost = mig_gpu([mig(None, memory=None)], up=False, memory=None)
    resource = "nvidia.com/mig-3g.5gb"
    result = join(lost, held("a", MIG, resource=resource), whole(MIG, resource), workloads())
    assert (row(result, "a").slices, result.gpus[0].holders, result.gpus[0].mig_slices_free) == (1, 1, None)
    assert (row(result, "a").memory_used, result.gpus[0].memory_entitled) == (None, None)


def test_a_process_of_unknown_size_makes_its_container_s_sum_unknown():
    result = join(
        gpu([process(1), process(2, None)], {}), held("a", UUID), whole(), workloads({1: "a", 2: "a"})
    )
    assert (row(result, "a").memory_used, row(result, "a").processes) == (None, 2)
    assert result.gpus[0].unattributed_memory == 8 * GIB


def test_compute_instances_that_share_memory_are_not_charged_with_it():
    first, second = mig(None, memory_shared=True), mig(None, memory_shared=True, uuid=MIG + "2")
    result = join(
        mig_gpu([first, second]), held("a", MIG), whole(MIG) + whole(MIG + "2"), workloads(view=False)
    )
    assert (row(result, "a").memory_used, row(result, "a").memory_entitled) == (None, None)
    assert [r.unattributed_memory for r in result.migs] == [None, None]


def test_a_lost_gpu_keeps_its_holders():
    lost = gpu(None, memory=None, utilization_percent=None, mig_enabled=None, up=False)
    result = join(lost, held("a", UUID), whole(), workloads())
    assert (row(result, "a").slices, row(result, "a").compute_entitled) == (1, 1.0)
    assert (row(result, "a").memory_used, result.gpus[0].unattributed_memory) == (None, None)


def test_a_holder_of_an_unresolved_device_has_unknown_slices():
    result = join(gpu([process(1)], {}), held("a", "GPU-gone"), whole(), workloads({1: "a"}))
    assert row(result, "a").slices is None


def test_an_unlisted_container_of_a_pod_that_holds_has_unknown_slices():
    """Rule 7."""
    who = workloads({1: "a"}, containers={"a": ("debugger",)})
    result = join(gpu([process(1)], {}), held("a", UUID), whole(), who)
    assert (row(result, "a", "debugger").slices, row(result, "a").slices) == (None, 1)


def test_containers_are_identified_by_namespace_pod_and_container():
    other = Allocation(ContainerRef("other", "a", "main"), "nvidia.com/gpu", f"{UUID}::1")
    result = join(gpu([], {}), [*held("a", f"{UUID}::0"), other], replicas(2), workloads())
    assert result.gpus[0].holders == 2
