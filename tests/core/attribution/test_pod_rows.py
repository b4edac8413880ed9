"""Pods that hold a device as a whole."""

from exporter.model import OfferedDevice
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts
from tests.core.attribution.build import GIB, UUID, attribute, gpu, held, join, process, row, workloads
from tests.core.sharing.build import allocations, pod, pods

ANNOTATION = "scheduling.koordinator.sh/device-allocated"
HALF = '{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"50"}'
WHOLE = f'{{"gpu":[{{"minor":0,"resources":{HALF}}}]}}'


def joined(processes, in_pods, containers):
    """Join a GPU of which a pod of two containers has half, by the annotation of the pod."""
    used = {"used": 4 * GIB} if processes else {"used": GIB // 2, "utilization_percent": 0}
    card = gpu(processes, {each.pid: 20 for each in processes}, **used)
    found = pods(pod("a", {ANNOTATION: WHOLE}, containers=("x", "y")))
    holdings = resolve_holdings([card], allocations(), NodeFacts(pods=found))
    return attribute([card], holdings, workloads(in_pods, containers=containers))


def test_a_pod_that_uses_its_gpu_is_not_idle():
    found = joined([process(1, 2 * GIB)], {1: "a"}, {"a": ("x",)})
    assert row(found, "a", "x").memory_used == 2 * GIB
    assert row(found, "a", "x").slices is None
    assert (row(found, "a", "").memory_used, row(found, "a", "").processes) == (None, None)
    assert row(found, "a", "").memory_entitled == 8 * GIB


def test_a_pod_that_uses_nothing_is_idle():
    found = joined([], {}, {})
    assert (row(found, "a", "").memory_used, row(found, "a", "").processes) == (0, 0)


def test_use_of_containers_that_cannot_be_distinguished_is_the_pods():
    found = joined([process(1, 2 * GIB)], {1: "a"}, {"a": ("x", "y")})
    assert row(found, "a", "").memory_used == 2 * GIB


def test_zero_compute_of_nos_is_not_proven_while_its_server_computes():
    card = gpu([process(9), process(1, kind="mps")], {9: 30, 1: 0}, used=2 * GIB)
    names = [f"{UUID}::10::{number}" for number in range(2)]
    ids = held("a", names[0], resource="nvidia.com/gpu-10gb")
    ids += held("b", names[1], resource="nvidia.com/gpu-10gb")
    offered = [OfferedDevice("nvidia.com/gpu-10gb", name) for name in names]
    found = join(card, ids, offered, workloads({1: "a"}, outside=(9,)))
    assert (row(found, "a").compute_used, row(found, "b").compute_used) == (None, None)
