"""cGPU: containers with an instance in the kernel module hold what it has; the others are gpushare's."""

import json

import pytest

from exporter.model import ContainerFile, DeviceUse, Meter, NodeObject, PodIdentity, SystemFiles
from tests.core.attribution.build import GIB, UUID, held
from tests.core.sharing.build import OTHER_UUID, container, numbered, only, pod, pods, resolve, rows
from tests.core.sharing.test_gpushare import ALLOCATION, CORES, MEMORY, allocated, indexed, offers, units

NODE = [numbered(0, 1, UUID), numbered(1, 0)]
SHORT, ID = "ab" * 6, "ab" * 32
CORE_SHARES = "gpushare.alibabacloud.com/core-percentage"


def instance(*devices: DeviceUse, container_id=SHORT) -> ContainerFile:
    """Return what the module says of a container."""
    return ContainerFile(container_id=container_id, devices=devices)


def loaded(*containers: ContainerFile) -> dict[str, SystemFiles]:
    """Return the procfs of a node with the module."""
    return {
        "cgpu": SystemFiles(
            containers=containers, names={"version": "0.8.8", "0/policy": "0", "1/policy": "3"}
        )
    }


def use(minor="0", limit=2 * GIB, used=GIB, compute=None) -> DeviceUse:
    """Return an instance on a GPU."""
    return DeviceUse(device=minor, memory_limit=limit, memory_used=used, compute_limit=compute)


def node(annotations=None, *devices, count=4, ids=(), objections=None, **more):
    """Return the holdings of a node on which pod a has units, with an instance of these devices."""
    return resolve(
        NODE,
        units("a", count) + list(ids),
        offers(16, UUID, OTHER_UUID),
        files=loaded(instance(*(devices or (use(),)))),
        pods=pods(pod("a", annotations, container_ids={ID: "main"}, **more)),
        objections=objections,
    )


def test_the_kernel_module_has_holder_limit_and_use():
    holding = only(node(allocated({"0": {"0": 4}})))
    assert holding.device.uuid == OTHER_UUID
    assert (holding.resource, holding.slices, holding.memory_entitled) == (MEMORY, 4, 2 * GIB)
    assert (holding.sharing, holding.isolation) == ("cgpu", "hard")
    assert (holding.meter, holding.compute_entitled) == (
        Meter(source="cgpu", memory=GIB, memory_only=True),
        None,
    )


def test_the_kernel_module_outweighs_the_annotation():
    assert only(node(allocated({"0": {"1": 4}}, assigned="false"))).device.uuid == OTHER_UUID
    assert only(node(indexed("1"))).device.uuid == OTHER_UUID


def test_names_and_ids_of_containers_are_enough():
    """The pods' objects are not needed."""
    bare = PodIdentity(uid="u", namespace="ml", name="a", container_ids={ID: "main"})
    holdings = resolve(NODE, units("a", 4), files=loaded(instance(use())), pods={"u": bare})
    assert (only(holdings).device.uuid, only(holdings).slices) == (OTHER_UUID, 4)
    assert only(holdings).meter == Meter(source="cgpu", memory=GIB, memory_only=True)


def test_a_container_has_the_same_of_several_gpus():
    """The label aliyun.com/gpu-count splits the request equally, if no annotation has the parts."""
    devices = (use("0"), use("1"))
    both = node(None, *devices, labels={"aliyun.com/gpu-count": "2"})
    assert rows(both, "device.uuid", "slices") == [(OTHER_UUID, 2), (UUID, 2)][::-1]
    holdings = node(allocated({"0": {"0": 1, "1": 3}}), *devices)
    assert rows(holdings, "device.uuid", "slices") == [(UUID, 3), (OTHER_UUID, 1)]


def test_percents_of_compute_go_before_the_share_of_the_policy():
    assert only(node(None, use(compute=0.25))).compute_entitled == 0.25
    annotations = allocated({"0": {"0": 4}}, **{CORE_SHARES: '{"0":{"0":30}}'})
    ids = held("a", "core-0", resource=CORES)
    holdings = node(annotations, use(compute=0.25), ids=ids)
    assert (only(holdings).compute_entitled, holdings.unresolved) == (0.3, {})


def test_a_missing_figure_of_the_kernel_module_is_unknown():
    holding = only(node(None, use(limit=None, used=None)))
    assert (holding.memory_entitled, holding.meter) == (None, None)


def test_a_container_without_an_instance_is_of_gpushare():
    """Isolation can be turned off, for a pod or a node."""
    known = pods(
        pod("a", indexed("0"), container_ids={ID: "main"}),
        pod("b", indexed("0"), container_ids={"cd" * 32: "main"}),
    )
    holdings = resolve(
        NODE,
        units("a", 4) + units("b", 2, OTHER_UUID),
        offers(16, UUID, OTHER_UUID),
        files=loaded(instance(use())),
        pods=known,
    )
    assert rows(holdings, "holder.pod", "sharing", "isolation") == [
        ("a", "cgpu", "hard"),
        ("b", "gpushare", "none"),
    ]
    assert {device.sharing for device in holdings.devices.values()} == {"cgpu"}
    assert {key.uuid: each.slices[0].allocated for key, each in holdings.devices.items()} == {
        UUID: 0,
        OTHER_UUID: 6,
    }


@pytest.mark.parametrize("files", [{}, {"cgpu": SystemFiles()}], ids=["not read", "not loaded"])
def test_without_the_module_all_is_gpushare(files):
    known = pods(pod("a", indexed("0"), container_ids={ID: "main"}))
    holdings = resolve(NODE, units("a", 4), offers(16, UUID, OTHER_UUID), files=files, pods=known)
    assert {device.sharing for device in holdings.devices.values()} == {"gpushare"}
    assert only(holdings).sharing == "gpushare"


def test_an_instance_without_a_container_with_units_holds_nothing():
    """Containers are started outside Kubernetes too."""
    known = pods(pod("a", container_ids={ID: "main"}))
    holdings = resolve(
        NODE, (), files=loaded(instance(use()), instance(use(), container_id="12" * 6)), pods=known
    )
    assert (holdings.holdings, holdings.unresolved) == ((), {})


def test_two_containers_of_one_pod_have_their_own():
    other = "12" * 32
    known = pods(pod("a", containers=("x", "y"), container_ids={ID: "x", other: "y"}))
    files = loaded(instance(use(used=1)), instance(use(used=2), container_id=other[:12]))
    ids = units("a", 1, main="x") + units("a", 1, OTHER_UUID, main="y")
    holdings = resolve(NODE, ids, files=files, pods=known)
    assert rows(holdings, "holder.container", "meter.memory") == [("x", 1), ("y", 2)]


def test_a_gpu_that_is_not_here_is_unresolved():
    holdings = node(None, use("5"))
    assert (holdings.unresolved, holdings.unresolved_holders) == ({MEMORY: 4}, {container("a")})


def test_over_commit_shows():
    assert only(node(None, use(limit=64 * GIB))).memory_entitled == 64 * GIB


def test_a_bad_annotation_costs_only_its_own_figures(objections):
    """It is counted once, though gpushare reads it too."""
    holdings = node({ALLOCATION: "{", CORE_SHARES: json.dumps([])}, objections=objections)
    assert (only(holdings).slices, only(holdings).memory_entitled) == (4, 2 * GIB)
    assert objections.counts == {"gpushare_annotation": 2}


@pytest.mark.parametrize(
    ("policy", "isolation"),
    [("0", "hard"), ("1", "hard"), ("2", "hard"), ("3", "hard"), ("4", "soft"), ("5", "soft"), (None, "")],
)
def test_the_policy_of_a_gpu_decides_on_the_isolation(policy, isolation):
    """Soft and native scheduling leave the compute to whoever takes it."""
    names = {"version": "1.5", "1/policy": "0"} | ({"0/policy": policy} if policy else {})
    files = {"cgpu": SystemFiles(containers=(instance(use()),), names=names)}
    known = pods(pod("a", container_ids={ID: "main"}))
    assert only(resolve(NODE, units("a", 4), files=files, pods=known)).isolation == isolation


def test_with_mps_the_module_does_not_divide_compute():
    labelled = NodeObject(labels={"ack.node.gpu.schedule": "mps"})
    known = pods(pod("a", container_ids={ID: "main"}))
    found = resolve(NODE, units("a", 4), files=loaded(instance(use())), pods=known, node=labelled)
    assert only(found).isolation == "soft"
