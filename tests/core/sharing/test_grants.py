"""Grants beside ids: which system has the system, what stays unresolved, and what one system cannot spoil."""

import logging

import pytest

from exporter.model import (
    ContainerFile,
    ContainerRef,
    DeviceUse,
    OfferedDevice,
    PodIdentity,
    Problem,
    SliceCount,
    SystemFiles,
)
from exporter.model.kubelet import LAST_APPLIED, bounded_annotations, extended_resources
from exporter.model.quantity import whole_quantity
from exporter.sharing import made, without_use
from exporter.sharing.base import Grant, Granted, Meaning, System, unread_device
from exporter.sharing.base.holdings import holdings_of
from exporter.sharing.base.view import MOST_LINES, NodeFacts, View
from exporter.sharing.nvidia_plugin import Nvidia
from exporter.sharing.plain_plugins import Amd
from tests.core.attribution.build import (
    GIB,
    MIG,
    UUID,
    attribute,
    gpu,
    held,
    mig,
    mig_gpu,
    process,
    replicas,
    row,
    workloads,
)
from tests.core.sharing.build import OTHER_UUID, allocations, container, numbered, pod, pods, resolve, rows

RESOURCE = "nvidia.com/gpu"


def system_with(*granted, settled=(), name="example", isolation="soft", raises=None) -> type[System]:
    """Return a system with these grants."""

    class Example(System):
        def grants(self) -> Granted:
            if raises is not None:
                raise raises
            return Granted(grants=tuple(granted), settled=frozenset(settled))

    Example.name, Example.isolation = name, isolation
    return Example


def grant(holder="a", device=UUID, resource=RESOURCE, **more) -> Grant:
    """Return a grant of a device of the node, by its uuid."""
    found = View((gpu(), numbered(1, 1)), allocations()).inventory.by_uuid(device)
    return Grant(holder=container(holder), resource=resource, device=found, **more)


def resolved(*systems, allocated=(), offered=(), gpus=None, facts=None):
    """Return the holdings of a node with these systems before those of vendors."""
    view = View(tuple(gpus or (gpu(), numbered(1, 1))), allocations(allocated, offered), facts)
    return holdings_of(view, [system(view) for system in (*systems, Nvidia, Amd)]), view


def test_a_grant_replaces_the_ids_of_its_container():
    """The kubelet's id names another GPU than the annotation: only the annotation counts."""
    system = system_with(grant(device=OTHER_UUID, memory_entitled=GIB), settled=[(container("a"), RESOURCE)])
    holdings, _ = resolved(system, allocated=held("a", UUID), offered=replicas(2))
    (holding,) = holdings.holdings
    assert (holding.device.uuid, holding.memory_entitled) == (OTHER_UUID, GIB)
    assert (holding.sharing, holding.isolation) == ("example", "soft")
    assert holdings.unresolved == {}


def test_of_two_systems_that_settle_a_container_the_first_has_it():
    settled = [(container("a"), RESOURCE)]
    first = system_with(grant(memory_entitled=1), settled=settled, name="first")
    second = system_with(grant(memory_entitled=2), settled=settled, name="second")
    holdings, _ = resolved(first, second)
    assert rows(holdings, "memory_entitled") == [1]


def test_grants_and_ids_share_one_device():
    system = system_with(grant(holder="a", resource="x.io/part"))
    holdings, _ = resolved(system, allocated=held("b", f"{UUID}::0"), offered=replicas(2))
    assert rows(holdings, "holder.pod", "sharing") == [("a", "example"), ("b", "time-slicing")]
    device = holdings.devices[holdings.holdings[0].device]
    assert device.sharing == "example"
    assert [(count.resource, count.offered, count.allocated) for count in device.slices] == [
        (RESOURCE, 2, 1),
        ("x.io/part", None, 1),
    ]


def test_one_node_has_two_systems_on_two_gpus():
    system = system_with(grant(device=OTHER_UUID))
    holdings, _ = resolved(system, allocated=held("b", f"{UUID}::0"), offered=replicas(2))
    assert {key.uuid: each.sharing for key, each in holdings.devices.items()} == {
        UUID: "time-slicing",
        OTHER_UUID: "example",
    }


def test_a_granted_device_that_is_not_here_is_unresolved():
    holdings, _ = resolved(
        system_with(Grant(holder=container("a"), resource="x.io/part", device=None, slices=3))
    )
    assert holdings.unresolved == {"x.io/part": 3}
    assert holdings.unresolved_holders == {container("a")}


def test_a_settled_container_without_a_grant_holds_nothing():
    holdings, _ = resolved(system_with(settled=[(container("a"), RESOURCE)]), allocated=held("a", UUID))
    assert (holdings.holdings, holdings.unresolved) == ((), {})


@pytest.mark.parametrize(
    ("grants", "allocated", "exclusive"),
    [
        ([grant(exclusive=True)], (), True),
        ([grant()], (), False),
        ([grant(exclusive=True), grant(holder="b", exclusive=True)], (), False),
        ([grant(exclusive=True, resource="x.io/part")], held("b", UUID), False),
    ],
    ids=["alone", "a part", "two", "beside ids"],
)
def test_a_device_is_exclusive_when_its_only_holder_has_it_so(grants, allocated, exclusive: bool):
    holdings, _ = resolved(system_with(*grants), allocated=allocated)
    assert holdings.devices[holdings.holdings[0].device].exclusive is exclusive


def test_a_system_that_fails_takes_no_other_down():
    holdings, view = resolved(system_with(raises=ValueError("x")), allocated=held("b", UUID))
    assert rows(holdings, "holder.pod") == ["b"]
    assert [problem.reason for problem in view.problems] == ["example_failure"]


@pytest.mark.parametrize(
    "method", ["__init__", "knows", "owns", "meaning", "sharing", "entitlement", "blind"]
)
def test_a_failing_method_costs_only_its_system(method: str, objections):
    def fails(*_: object) -> None:
        raise ValueError("x")

    broken = type("Broken", (System,), {"name": "broken", method: fails})
    if method in ("sharing", "entitlement"):
        broken.meaning = lambda self, _resource, device_id: Meaning(self.view.inventory.by_uuid(device_id))
    view = View((gpu(), numbered(1, 1)), allocations(held("b", UUID)))
    holdings = holdings_of(view, list(made(view, (broken, Nvidia, Amd))))
    objections.turn(view.problems)
    assert rows(holdings, "holder.pod") == ["b"]
    assert objections.counts == {"broken_failure": 1}


def test_without_the_system_of_a_vendor_the_mode_of_its_devices_is_unknown():
    class Broken(Nvidia):
        def __init__(self, _view: View) -> None:
            raise ValueError("x")

    view = View((gpu(), numbered(1, 1)), allocations(held("b", UUID)))
    holdings = holdings_of(view, list(made(view, (system_with(grant(device=OTHER_UUID)), Broken, Amd))))
    assert {key.uuid: each.sharing for key, each in holdings.devices.items()} == {
        UUID: "unknown",
        OTHER_UUID: "example",
    }


def test_an_id_of_an_unread_device_is_held_without_a_grant():
    class Cards(System):
        name = "cards"

        def meaning(self, resource: str, device_id: str) -> Meaning | None:
            return Meaning(unread_device("maker", device_id, "Card")) if resource == "x.io/card" else None

    holdings, _ = resolved(Cards, allocated=held("a", "card0", resource="x.io/card"))
    assert [identity.uuid for identity in holdings.unread] == ["card0"]
    assert rows(holdings, "device.uuid") == ["card0"]


def test_a_device_reserved_for_unknown_holders_is_neither_free_nor_held():
    system = system_with(
        grant(holder="reserve", for_unknown=True), settled=[(container("reserve"), RESOURCE)]
    )
    holdings, _ = resolved(system, allocated=held("reserve", UUID), gpus=[gpu([process(1)])])
    assert (holdings.holdings, holdings.unresolved) == ((), {RESOURCE: 1})
    assert [key.uuid for key in holdings.unplaced] == [UUID]
    result = attribute([gpu([process(1)])], holdings, workloads({1: "user"}))
    assert (result.gpus[0].holders, result.gpus[0].memory_entitled) == (None, None)
    assert row(result, "user").slices is None


def test_what_is_held_in_two_units_counts_in_the_first():
    system = system_with(
        grant(resource="x.io/memory", slices=24, counted_elsewhere=True, memory_entitled=0),
        grant(resource="x.io/percent", slices=30, memory_entitled=GIB),
    )
    holdings, _ = resolved(system)
    shown = row(attribute([gpu()], holdings, workloads()), "a")
    assert (shown.resource, shown.slices) == ("x.io/percent,x.io/memory", 30)
    assert shown.memory_entitled == GIB


def test_an_unread_device_cannot_have_the_name_of_a_gpu():
    npu = unread_device("ascend", UUID, "Ascend910B")
    system = system_with(Grant(holder=container("a"), resource="x.io/npu", device=npu))
    holdings, view = resolved(system, gpus=[mig_gpu([mig()])])
    assert (holdings.unread, holdings.unresolved) == ((), {"x.io/npu": 1})
    assert [problem.reason for problem in view.problems] == ["example_device"]


def test_of_an_earlier_reading_only_the_limits_are_kept():
    use = DeviceUse(device=UUID, memory_limit=1, compute_limit=0.5, memory_used=2, compute_used=0.25)
    file = ContainerFile(pod_uid="u", container="main", devices=(use,), pids=(1,))
    kept = without_use({"x": SystemFiles(containers=(file,), names={"a": "b"})})["x"]
    assert kept.names == {"a": "b"}
    assert kept.containers[0].pids is None
    assert kept.containers[0].devices == (DeviceUse(device=UUID, memory_limit=1, compute_limit=0.5),)


def test_an_id_that_is_offered_with_a_gpu_need_not_be_held_there():
    class Nominal(System):
        name = "nominal"

        def meaning(self, _resource: str, device_id: str) -> Meaning | None:
            return Meaning(self.view.inventory.by_uuid(device_id.partition("#")[0]), True, True)

    offered = [OfferedDevice("x.io/mem", f"{UUID}#{n}") for n in range(3)]
    holdings, _ = resolved(Nominal, allocated=held("a", f"{UUID}#1", resource="x.io/mem"), offered=offered)
    assert (holdings.holdings, holdings.unresolved) == ((), {"x.io/mem": 1})
    assert {key.uuid: each.sharing for key, each in holdings.devices.items()}[UUID] == "nominal"


@pytest.mark.parametrize(
    ("offered", "unknown"), [([f"{UUID}#{n}" for n in range(3)], {UUID}), ([], {UUID, OTHER_UUID})]
)
def test_an_unplaced_holding_leaves_the_counts_unknown(offered: list[str], unknown: set[str]):
    class Nominal(System):
        name = "nominal"

        def meaning(self, _resource: str, device_id: str) -> Meaning | None:
            found = self.view.inventory.by_uuid(device_id.partition("#")[0])
            return Meaning(found, replica=True, nominal=True)

    offers = [OfferedDevice("x.io/mem", device_id) for device_id in offered]
    holdings, _ = resolved(Nominal, allocated=held("a", "part-1", resource="x.io/mem"), offered=offers)
    result = attribute([gpu(), numbered(1, 1)], holdings, workloads())
    assert {each.identity.uuid for each in result.gpus if each.holders is None} == unknown
    assert {each.identity.uuid for each in result.gpus if each.memory_entitled is None} == unknown
    counts = {key.uuid: each.slices for key, each in holdings.devices.items() if each.slices}
    assert counts == ({UUID: (SliceCount("x.io/mem", 3, None),)} if offered else {})


@pytest.mark.parametrize(
    ("known", "blind"), [(None, True), (pods(pod("a")), False), ({}, False)], ids=["none", "known", "no pods"]
)
def test_a_system_is_blind_if_its_ids_are_held_and_pods_are_unknown(known, blind: bool):
    class Blind(System):
        name = "blind"
        blind_without_pods = "who holds which GPU"

        def owns(self, resource: str, _device_id: str) -> bool:
            return resource == "x.io/part"

    facts = NodeFacts(pods=known)
    holdings, _ = resolved(Blind, allocated=held("a", "1", resource="x.io/part"), facts=facts)
    assert holdings.blind == ({"blind": "who holds which GPU"} if blind else {})


def test_pods_known_by_name_only_have_no_annotations():
    bare = PodIdentity(uid="u", namespace="ml", name="a")
    assert not View((), allocations(), NodeFacts(pods={"u": bare})).details_known


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_does_not_count(phase: str):
    over, live = pod("a", phase=phase, uid="old"), pod("a", uid="new")
    view = View((), allocations(), NodeFacts(pods=pods(over, live)))
    assert view.pods == (live,)
    assert view.pod(container("a")) is live


def test_of_two_live_pods_with_one_name_neither_counts():
    view = View((), allocations(), NodeFacts(pods=pods(pod("a", uid="x"), pod("a", uid="y"))))
    assert view.pod(container("a")) is None
    assert view.details(container("a")) is None


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([ContainerFile(pod_uid="uid-a", container="main")], 0),
        ([ContainerFile(pod_uid="uid-b", container="main")], None),
        ([ContainerFile(pod_uid="uid-a", container="other")], None),
        ([ContainerFile(container="main")], None),
        ([ContainerFile(pod_uid="uid-a")], None),
        ([ContainerFile(container_id="ab" * 6)], 0),
        ([ContainerFile(container_id="cd" * 6)], None),
        ([ContainerFile(pod_uid="uid-a", container="main"), ContainerFile(container_id="ab" * 6)], None),
    ],
)
def test_a_file_is_found_by_pod_and_container_or_by_container_id(files, found):
    one = pod("a", containers=("main", "other"), container_ids={"ab" * 32: "main", "cd" * 32: "other"})
    facts = NodeFacts(pods=pods(one), files={"x": SystemFiles(containers=tuple(files))})
    view = View((), allocations(), facts)
    assert view.file("x", container("a")) is (None if found is None else files[found])
    assert view.file("y", container("a")) is None


def test_devices_are_found_by_what_systems_call_them():
    view = View((numbered(0, 3), mig_gpu([mig()])), allocations())
    inventory = view.inventory
    assert inventory.by_minor(3) is inventory.by_index(0) is inventory.by_uuid(OTHER_UUID)
    assert inventory.by_minor(0) is None
    assert inventory.by_uuid(MIG).mig.uuid == MIG


def test_problems_count_once_while_they_last(caplog: pytest.LogCaptureFixture, objections):
    problem = Problem("hami_annotation", "ml/a: hami.io/x", "is no list")
    for standing in ([problem], [problem], [], [problem, problem]):
        objections.turn(standing)
    assert objections.counts == {"hami_annotation": 2}
    assert caplog.messages == ["skipped ml/a: hami.io/x: is no list"] * 2


def test_a_flood_of_problems_is_counted_but_not_logged(caplog: pytest.LogCaptureFixture, objections):
    caplog.set_level(logging.WARNING)
    objections.turn(Problem("x", f"pod {n}", "broken") for n in range(MOST_LINES + 50))
    assert objections.counts == {"x": MOST_LINES + 50}
    assert len(caplog.messages) == MOST_LINES + 1


def test_problems_of_files_are_counted_with_those_of_annotations(objections):
    problem = Problem(reason="file", about="/x", text="too short")
    resolve(gpu(), files={"hami": SystemFiles(problems=(problem,))}, objections=objections)
    assert objections.counts == {"hami_file": 1}


QUANTITIES = {"2": 2, "16Gi": 16 << 30, "2k": 2000, "4e9": 4_000_000_000, "2000m": 2, "1.5Ki": 1536}
QUANTITIES |= dict.fromkeys(("1500m", "1.5", "-1", "1_0", "9" * 5000, ""))


@pytest.mark.parametrize(("text", "number"), QUANTITIES.items())
def test_quantities_are_whole_numbers(text: str, number: int | None):
    """Kubernetes writes large ones with a suffix; others are not known."""
    assert whole_quantity(text) == number


def test_only_extended_resources_are_kept():
    limits = {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1", "x.io/y": "half"}
    assert extended_resources(limits) == {"nvidia.com/gpu": 1}


def test_annotations_that_are_far_too_long_are_left_out():
    assert bounded_annotations({LAST_APPLIED: "{}", "long": "x" * 70_000, "a": "b"}) == {"a": "b"}


def test_a_container_of_another_namespace_is_another():
    view = View((), allocations(), NodeFacts(pods=pods(pod("a"))))
    assert view.pod(ContainerRef("other", "a", "main")) is None
