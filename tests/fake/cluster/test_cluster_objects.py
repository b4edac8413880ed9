"""The objects of the small cluster agree with what its nodes report, at any time."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.demo.cluster.cluster_file import Cluster, NodeOfCluster, load_cluster, node_files
from exporter.demo.cluster.cluster_objects import ByUid, cluster_objects
from exporter.demo.present import Present, present
from exporter.demo.scenario.pods import Pod
from exporter.kubernetes.device_claims import read_class, read_slice
from exporter.kubernetes.scheduling import read_cluster_node, read_placed_pod, read_waiting_pod
from exporter.waiting.lack import is_device
from exporter.waiting.objects import PlacedPod, PodKey

CLUSTER = load_cluster()
STARTED = 1_700_000_000.0
# Before, at and after each change.
SECONDS = st.one_of(st.floats(0, 600), st.sampled_from([0, 20, 59.9, 60, 119.9, 120, 124.9, 125, 1e6]))


def _objects(seconds: float) -> dict[str, ByUid]:
    return dict(cluster_objects(CLUSTER, seconds, STARTED))


def _placed(seconds: float) -> dict[PodKey, PlacedPod]:
    pods = map(read_placed_pod, _objects(seconds)["pods"].values())
    return {pod.key: pod for pod in pods if pod is not None}


def _there(seconds: float) -> list[tuple[NodeOfCluster, Present]]:
    return [(node, present(node.scenario, seconds)) for node in CLUSTER.nodes]


def _held(pod: Pod) -> Counter[str]:
    held: Counter[str] = Counter()
    for container in pod.containers:
        held.update({resource: len(ids) for resource, ids in container.devices.items()})
    return held


@given(SECONDS)
def test_every_pod_of_a_kubelet_is_on_that_node_and_requests_what_it_holds(seconds: float) -> None:
    placed = _placed(seconds)

    kubelets = {
        (PodKey(pod.namespace, pod.name), node.scenario.node.name): _held(pod)
        for node, there in _there(seconds)
        for pod in there.pods
    }
    api = {
        (key, pod.node): Counter({name: n for name, n in pod.requests.items() if is_device(name)})
        for key, pod in placed.items()
    }
    assert api == kubelets


@given(SECONDS)
def test_nodes_have_what_their_kubelets_offer_and_no_more_is_requested(seconds: float) -> None:
    nodes = {node.name: node for node in map(read_cluster_node, _objects(seconds)["nodes"].values()) if node}

    assert nodes.keys() == {node.scenario.node.name for node in CLUSTER.nodes}
    for node, there in _there(seconds):
        offered = [(offer.resource, key) for offer in node.scenario.offers for key in offer.ids]
        healthy = Counter(name for name, key in offered if (name, key) not in there.unhealthy)
        known = nodes[node.scenario.node.name].allocatable
        assert {name: n for name, n in known.items() if is_device(name) and n} == healthy
        taken: Counter[str] = Counter()
        for pod in _placed(seconds).values():
            taken.update(pod.requests if pod.node == node.scenario.node.name else {})
        assert all(taken[name] <= known.get(name, 0) for name in taken)


@given(SECONDS)
def test_a_pod_waits_or_runs_and_never_both(seconds: float) -> None:
    pods = _objects(seconds)["pods"].values()
    waiting = [pod.key for pod in map(read_waiting_pod, pods) if pod is not None]
    expected = {PodKey(pod.namespace, pod.name) for pod in CLUSTER.pods if pod.at <= seconds}

    assert len(waiting) + len(_placed(seconds)) == len(pods)
    assert set(waiting) == expected - _placed(seconds).keys()


@given(SECONDS, SECONDS)
def test_an_object_keeps_its_uid(one: float, other: float) -> None:
    for kind, objects in _objects(one).items():
        names = {_name(each): uid for uid, each in objects.items()}
        others = {_name(each): uid for uid, each in _objects(other)[kind].items()}
        assert {name: names[name] for name in names.keys() & others} == {
            name: others[name] for name in names.keys() & others
        }


def _name(about: dict) -> tuple[str, str]:
    return about["metadata"].get("namespace", ""), about["metadata"]["name"]


def test_a_waiting_pod_appears_and_another_gets_the_place_of_one_that_ends() -> None:
    def waits(seconds: float) -> set[str]:
        pods = map(read_waiting_pod, _objects(seconds)["pods"].values())
        return {str(pod.key) for pod in pods if pod is not None}

    assert waits(61) - waits(0) == {"ml/nb-dora"}
    assert waits(0) - waits(200) == {"llm/serve-3"}
    assert _placed(0)[PodKey("llm", "serve-0")].ending
    assert PodKey("llm", "serve-0") not in _placed(200)
    assert _placed(200)[PodKey("llm", "serve-3")].node == "l40s-1"


def test_devices_of_claims_are_those_of_the_slices() -> None:
    objects = _objects(0)
    slices = [found for found in map(read_slice, objects["resourceslices"].values()) if found]
    results = [
        (result["driver"], result["pool"], result["device"])
        for claim in objects["resourceclaims"].values()
        for result in claim["status"].get("allocation", {"devices": {"results": []}})["devices"]["results"]
    ]

    assert results
    assert set(results) <= {tuple(device.name) for piece in slices for device in piece.devices}
    assert [found.name for found in map(read_class, objects["deviceclasses"].values()) if found] == [
        "gpu.nvidia.com"
    ]


@pytest.mark.parametrize(("path", "node"), list(zip(node_files(), CLUSTER.nodes, strict=True)))
def test_the_file_of_a_node_has_its_name(path, node: NodeOfCluster) -> None:
    assert path.stem == node.scenario.name == node.scenario.node.name


def test_without_claims_the_cluster_offers_no_devices_by_claim() -> None:
    plain = tuple(node for node in CLUSTER.nodes if node.scenario.name != "dra-1")
    objects = cluster_objects(Cluster(nodes=plain, pods=(), claims=()), 0, STARTED)

    assert not objects["resourceslices"]
    assert not objects["deviceclasses"]
