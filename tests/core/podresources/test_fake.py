"""The software kubelet behaves like the real one where we depend on it."""

from dataclasses import replace

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario.pods import Pod
from podresources.channel import Dialer
from podresources.client import PodResourcesApi
from podresources.messages import (
    ALLOCATABLE_V1,
    LIST_V1,
    AllocatableResourcesResponse,
    ListPodResourcesResponse,
)
from podresources.pods import PodsApi


async def test_each_start_replaces_the_socket(kubelet: FakeKubelet) -> None:
    old = kubelet.socket.with_name("old.sock")
    old.hardlink_to(kubelet.socket)
    await kubelet.stop()
    await kubelet.start()
    assert not old.samefile(kubelet.socket)
    assert {path.name for path in kubelet.socket.parent.iterdir()} == {"kubelet.sock", "old.sock"}


async def test_one_entry_per_numa_node(kubelet: FakeKubelet) -> None:
    async with Dialer(kubelet.socket).connect(within=5.0) as connection:
        answer = await connection.call(LIST_V1, ListPodResourcesResponse.FromString)
    (container,) = answer.pod_resources[0].containers
    assert sorted((device.device_ids[0], device.topology.nodes[0].ID) for device in container.devices) == [
        ("GPU-1::0", 0),
        ("GPU-1::0", 1),
        ("GPU-1::1", 0),
        ("GPU-1::1", 1),
    ]


async def test_offered_devices_are_repeated_for_each_numa_node(kubelet: FakeKubelet) -> None:
    kubelet.offered, kubelet.offered_nodes = [("nvidia.com/gpu", "GPU-1")], (0, 1)
    async with Dialer(kubelet.socket).connect(within=5.0) as connection:
        answer = await connection.call(ALLOCATABLE_V1, AllocatableResourcesResponse.FromString)
    assert sorted((each.device_ids[0], each.topology.nodes[0].ID) for each in answer.devices) == [
        ("GPU-1", 0),
        ("GPU-1", 1),
    ]


async def test_init_containers_are_listed_if_they_run_as_long_as_the_pod(
    kubelet: FakeKubelet, pod: Pod
) -> None:
    held = pod.containers[0]
    first, guard = (replace(held, name=name, init=True) for name in ("first", "guard"))
    kubelet.pods, kubelet.sidecars = [replace(pod, containers=(first, guard))], frozenset({"guard"})
    found = await PodResourcesApi(kubelet.socket).read()
    assert {each.holder.container for each in found.allocated} == {"guard"}


async def test_resources_not_listed(kubelet: FakeKubelet, pod: Pod) -> None:
    """A pod may be known to the Pods API alone."""
    kubelet.unlisted = frozenset({pod.uid})
    assert (await PodResourcesApi(kubelet.socket).read()).allocated == ()
    assert [found.uid for found in await PodsApi(kubelet.pods_socket).read()] == [pod.uid]
