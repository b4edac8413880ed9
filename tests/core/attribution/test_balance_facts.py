"""The facts behind the balances, from the kubelet's ids and the readings to the classes of a GPU."""

from dataclasses import replace

import pytest

from exporter.attribution import HoldingsIndex
from exporter.attribution.balance import GpuFacts, allocation, use
from exporter.attribution.balance_facts import facts_of, rows_of_gpus, shares_of
from exporter.model import Allocations, ContainerRef, Meter, NodeObject, OfferedDevice, SliceCount
from exporter.model.lost_gpu import without_values
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts
from tests.core.attribution.build import (
    MIG,
    UUID,
    attribute,
    gpu,
    held,
    mig,
    mig_gpu,
    process,
    replicas,
    whole,
    workloads,
)

OTHER_MIG = "MIG-00000000-0000-0000-0000-00000000000c"
GPU = "nvidia.com/gpu"


def facts(
    reading, allocated=(), offered=(), who=None, *, confirmed=True, fresh=True, node=None, change=None, **more
) -> GpuFacts:
    """Return the facts about one GPU; ``change`` edits its holdings, ``more`` are fields of the kubelet's."""
    who = who or workloads()
    named = {ContainerRef(pod.namespace, pod.name, "") for pod in (who.pods or {}).values()}
    allocations = Allocations(
        allocated=tuple(sorted(allocated)),
        offered=None if offered is None else tuple(sorted(offered)),
        api_version="v1",
        read_at=0.0,
        listed=frozenset(named),
    )
    allocations = replace(allocations, **more)
    holdings = resolve_holdings([reading], allocations, NodeFacts(node=node))
    holdings = change(holdings) if change is not None else holdings
    result = attribute([reading], holdings, who)
    rows = next(iter(rows_of_gpus(result)))
    shares = shares_of(rows, HoldingsIndex(holdings))
    return facts_of(rows, holdings, shares, confirmed=confirmed, fresh={UUID} if fresh else ())


def shown(parts: dict[str, float]) -> dict[str, float]:
    return {name: round(part, 6) for name, part in parts.items() if round(part, 6)}


def allocated(*args, **more) -> dict[str, float]:
    return shown(allocation(facts(*args, **more)))


def used(*args, **more) -> dict[str, float]:
    found = facts(*args, **more)
    return shown(use(found.use, allocation(found)["held"]))


def of_memory(parts: int):
    """Return an edit after which each holder is entitled to memory alone: one of ``parts`` of the GPU."""

    def edited(holdings):
        total = gpu().memory.total
        entries = (
            replace(held, compute_entitled=None, memory_entitled=total // parts) for held in holdings.holdings
        )
        return replace(holdings, holdings=tuple(entries))

    return edited


def test_replicas_are_held_and_free():
    assert allocated(gpu(), held("a", f"{UUID}::0"), replicas(4)) == {"held": 0.25, "free": 0.75}


def test_two_replicas_of_one_container_are_two_shares():
    ids = held("a", f"{UUID}::0", f"{UUID}::1")
    assert allocated(gpu(), ids, replicas(4)) == {"held": 0.5, "free": 0.5}


def test_a_share_of_memory_counts_where_no_compute_is_stated():
    ids = [*held("a", f"{UUID}::0"), *held("b", f"{UUID}::1")]
    assert allocated(gpu(), ids, replicas(4), change=of_memory(8)) == {"held": 0.25, "free": 0.75}


def test_a_share_of_memory_is_unknown_while_the_memory_is():
    reading = gpu(memory=None)
    found = allocated(reading, held("a", f"{UUID}::0"), replicas(4), change=of_memory(8))
    assert found == {"unknown": 1}


def test_a_gpu_that_two_containers_hold_whole_is_of_unknown_shares():
    ids = [*held("a", UUID), *held("b", UUID)]
    assert allocated(gpu(), ids, whole()) == {"unknown": 1}


def test_an_id_that_may_mean_the_gpu_makes_the_rest_unknown():
    ids = [*held("a", f"{UUID}::0"), *held("b", "GPU-unreadable")]
    assert allocated(gpu(), held("a", f"{UUID}::0"), replicas(4)) == {"held": 0.25, "free": 0.75}
    ids = [*held("a", f"{UUID}::0"), *held("b", "tegra::x")]
    assert allocated(gpu(), ids, replicas(4)) == {"held": 0.25, "unknown": 0.75}


def test_without_the_kubelets_answer_the_rest_is_unknown():
    ids = held("a", f"{UUID}::0")
    assert allocated(gpu(), ids, replicas(4), confirmed=False) == {"held": 0.25, "unknown": 0.75}
    unlisted = allocated(gpu(), ids, replicas(4), change=lambda found: replace(found, all_listed=False))
    assert unlisted == {"held": 0.25, "unknown": 0.75}


def test_a_device_that_no_resource_offers_is_not_offered():
    assert allocated(gpu()) == {"not_offered": 1}
    assert allocated(gpu(), offered=None) == {"unknown": 1}
    odd = OfferedDevice(GPU, "gpu-of-a-new-form")
    assert allocated(gpu(), offered=[odd]) == {"unknown": 1}
    assert allocated(gpu(), offered=[odd, *whole()]) == {"free": 1}


def test_a_resource_whose_plugin_is_away_offers_nothing():
    ids = held("a", f"{UUID}::0")
    found = allocated(gpu(), ids, replicas(4), kept=frozenset({GPU}))
    assert found == {"held": 0.25, "not_offered": 0.75}


def test_an_unhealthy_replica_is_withdrawn_unless_it_is_held():
    offered = replicas(4)[:3]
    gone = tuple(replicas(4)[3:])
    ids = held("a", f"{UUID}::0")
    found = allocated(gpu(), ids, offered, withdrawn=gone, node=of_capacity(4, 3))
    assert found == {"held": 0.25, "withdrawn": 0.25, "free": 0.5}
    found = allocated(gpu(), held("a", f"{UUID}::3"), offered, withdrawn=gone, node=of_capacity(4, 3))
    assert found == {"held": 0.25, "free": 0.75}


def of_capacity(capacity: int, allocatable: int) -> NodeObject:
    return NodeObject(capacity={GPU: capacity}, allocatable={GPU: allocatable})


def test_an_unhealthy_gpu_is_withdrawn_and_its_holder_keeps_it():
    others = whole("GPU-00000000-0000-0000-0000-00000000000f")
    assert allocated(gpu(), (), others, withdrawn=tuple(whole())) == {"withdrawn": 1}
    assert allocated(gpu(), held("a", UUID), others, withdrawn=tuple(whole())) == {"held": 1}


def test_a_cordoned_gpu_is_withdrawn():
    offered = [OfferedDevice(GPU, f"{UUID}-{place}") for place in range(4)]
    node = NodeObject(annotations={"hami.io/device-cordon": UUID})
    assert allocated(gpu(), (), offered, node=node) == {"withdrawn": 1}


@pytest.mark.parametrize(
    ("counts", "part"),
    [
        ((SliceCount("a", 4, 1, lost=1),), 1 / 3),
        ((SliceCount("a", 4, 4, lost=1),), 0),
        ((SliceCount("a", None, 1, lost=1),), 0),
        ((SliceCount("a", 4, None, lost=1),), 0),
        ((SliceCount("a", 4, 0, lost=4), SliceCount("b", 4, 0, lost=0)), 0),
        ((SliceCount("a", 4, 0, lost=4), SliceCount("b", 4, 0, lost=2)), 1 / 2),
        ((SliceCount("a", 4, 2, lost=9),), 1),
    ],
)
def test_what_one_resource_withholds_another_may_offer(counts, part):
    def withheld(holdings):
        devices = {key: replace(sharing, slices=counts) for key, sharing in holdings.devices.items()}
        return replace(holdings, devices=devices)

    (device,) = facts(gpu(), (), replicas(4), change=withheld).devices
    assert device.withheld == pytest.approx(part)


def test_a_lost_gpu_is_still_held():
    lost = without_values(gpu())
    assert allocated(lost, held("a", f"{UUID}::0"), replicas(4)) == {"held": 0.25, "down": 0.75}
    assert used(lost, held("a", f"{UUID}::0"), replicas(4)) == {"unmeasured": 1}


def test_mig_devices_weigh_their_compute_slices():
    reading = mig_gpu([mig(slices=3), mig(slices=2, uuid=OTHER_MIG, gi=2)])
    offered = [OfferedDevice("nvidia.com/mig-3g.5gb", MIG), OfferedDevice("nvidia.com/mig-2g.5gb", OTHER_MIG)]
    ids = held("a", MIG, resource="nvidia.com/mig-3g.5gb")
    expected = {"held": 3 / 7, "free": 2 / 7, "unpartitioned": 2 / 7}
    assert allocated(reading, ids, offered) == shown(expected)
    lost = allocated(without_values(reading), ids, offered)
    assert lost == shown({"held": 3 / 7, "down": 4 / 7})


def test_a_share_of_the_memory_of_a_mig_device_is_one_of_its_weight():
    def half(holdings):
        (holding,) = holdings.holdings
        memory = mig().memory.total // 2
        return replace(holdings, holdings=(replace(holding, compute_entitled=None, memory_entitled=memory),))

    ids, offered = held("a", MIG), [OfferedDevice(GPU, MIG)]
    expected = {"held": 1.5 / 7, "free": 1.5 / 7, "unpartitioned": 4 / 7}
    assert allocated(mig_gpu([mig()]), ids, offered, change=half) == shown(expected)
    shared = mig_gpu([mig(memory_shared=True)])
    expected = {"unknown": 3 / 7, "unpartitioned": 4 / 7}
    assert allocated(shared, ids, offered, change=half) == shown(expected)


@pytest.mark.parametrize("unknown", [{"mig_complete": False}, {"mig_slices": None}])
def test_with_an_unknown_layout_nothing_is_unpartitioned(unknown):
    reading = replace(mig_gpu([mig(slices=3)]), **unknown)
    assert "unpartitioned" not in allocated(reading, (), [OfferedDevice("nvidia.com/mig-3g.5gb", MIG)])
    assert allocated(replace(reading, mig=None)) == {"unknown": 1}


def test_use_is_the_holders_or_that_of_others():
    reading = gpu([process(1), process(2), process(3)], {1: 30, 2: 10, 3: 5}, utilization_percent=50)
    who = workloads({1: "a", 2: "b"}, outside=[3])
    expected = {"holders": 0.3, "others": 0.2, "idle_free": 0.5}
    assert used(reading, held("a", f"{UUID}::0"), replicas(4), who) == expected


def test_a_process_of_an_unknown_place_may_be_a_holders():
    reading = gpu([process(1), process(2)], {1: 30, 2: 20}, utilization_percent=55)
    who = workloads({1: "a"}, lost=[2])
    expected = {"holders": 0.3, "others": 0.05, "unmeasured": 0.2, "idle_free": 0.45}
    assert used(reading, held("a", f"{UUID}::0"), replicas(4), who) == expected


def test_a_process_of_an_unknown_place_and_use_may_have_all_of_the_rest():
    reading = gpu([process(1), process(2)], {1: 30, 2: None}, utilization_percent=55)
    who = workloads({1: "a"}, lost=[2])
    expected = {"holders": 0.3, "unmeasured": 0.25, "idle_free": 0.45}
    assert used(reading, held("a", f"{UUID}::0"), replicas(4), who) == expected


def test_use_of_a_container_that_may_hold_the_gpu_is_unmeasured():
    """The kubelet does not list pod b, or an id that may mean the GPU is not resolved."""
    reading = gpu([process(1), process(2)], {1: 30, 2: 20}, utilization_percent=60)
    who = workloads({1: "a", 2: "b"})
    ids = held("a", f"{UUID}::0")
    pods = frozenset({ContainerRef("ml", "a", "")})
    expected = {"holders": 0.3, "others": 0.1, "unmeasured": 0.2, "idle_free": 0.4}
    assert used(reading, ids, replicas(4), who, listed=pods) == expected
    unmetered = replace(reading, process_utilization={1: 30, 2: None})
    expected = {"holders": 0.3, "unmeasured": 0.3, "idle_free": 0.4}
    assert used(unmetered, ids, replicas(4), who, listed=pods) == expected
    assert used(reading, [*ids, *held("c", "tegra::x")], replicas(4), who) == expected


def test_use_is_unmeasured_while_that_of_one_holder_is_unknown():
    reading = gpu(None, None, utilization_percent=40)
    ids = [*held("a", f"{UUID}::0"), *held("b", f"{UUID}::1")]
    expected = {"unmeasured": 0.4, "idle_held": 0.1, "idle_free": 0.5}
    assert used(reading, ids, replicas(4), workloads(view=False)) == expected


def test_the_use_of_others_is_theirs_though_it_is_not_measured():
    """A process of a pod that holds nothing has no figure: it is a part of what no holder uses."""
    reading = gpu([process(1), process(2)], {1: 30, 2: None}, utilization_percent=50)
    who = workloads({1: "a", 2: "b"})
    expected = {"holders": 0.3, "others": 0.2, "idle_free": 0.5}
    assert used(reading, held("a", f"{UUID}::0"), replicas(4), who) == expected


def test_use_is_nobodys_while_the_kubelet_does_not_answer():
    reading = gpu([process(1)], {1: 0}, utilization_percent=50)
    who = workloads(outside=[1])
    assert used(reading, (), replicas(4), who) == {"others": 0.5, "idle_free": 0.5}
    assert used(reading, (), replicas(4), who, confirmed=False) == {"unmeasured": 0.5, "idle_free": 0.5}


def test_without_a_new_reading_or_a_meter_all_is_unmeasured():
    reading = gpu([process(1)], {1: 30}, utilization_percent=50)
    ids, who = held("a", f"{UUID}::0"), workloads({1: "a"})
    assert used(reading, ids, replicas(4), who, fresh=False) == {"unmeasured": 1}
    unmetered = mig_gpu([mig()])
    assert used(unmetered, held("a", MIG, resource="nvidia.com/mig-3g.5gb")) == {"unmeasured": 1}


def test_a_systems_own_meter_counts_where_the_gpu_has_none():
    def metered(holdings):
        meter = Meter(source="x", compute=0.2)
        return replace(
            holdings, holdings=tuple(replace(holding, meter=meter) for holding in holdings.holdings)
        )

    reading = gpu([], None, utilization_percent=None)
    ids, who = held("a", f"{UUID}::0"), workloads()
    expected = {"holders": 0.2, "unmeasured": 0.8}
    assert used(reading, ids, replicas(4), who, change=metered) == expected
