"""What the client of the pod-resources API remembers over restarts of kubelets and device plugins."""

import asyncio
import contextlib
import socket
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario.pods import Pod
from podresources.channel import KubeletError
from podresources.client import KEEP_SECONDS, PodResourcesApi
from tests.core.podresources.support import Clock, answers_wait
from tests.waiting import wait_until_async

UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, "try again")


@pytest.fixture
def client(kubelet: FakeKubelet, clock: Clock) -> PodResourcesApi:
    """Return a client whose time stands still."""
    return PodResourcesApi(kubelet.socket, timeout=100.0, clock=clock, wall=clock)


async def restart(kubelet: FakeKubelet) -> None:
    """Restart the kubelet between two reads."""
    await kubelet.stop()
    await kubelet.start()


async def outage(client: PodResourcesApi, kubelet: FakeKubelet) -> None:
    """Restart the kubelet so slowly that a read fails."""
    await kubelet.stop()
    with pytest.raises(KubeletError):
        await client.read()
    await kubelet.start()


@pytest.mark.parametrize("seen", [True, False])
async def test_a_restart_is_another_start(kubelet: FakeKubelet, client: PodResourcesApi, seen: bool) -> None:
    """A restart, noticed by a failed read or not, is another start; other reads are of the same one."""
    first, again = await client.read(), await client.read()
    assert first.kubelet_start == again.kubelet_start
    await (outage(client, kubelet) if seen else restart(kubelet))
    after = await client.read()
    assert after.kubelet_start != again.kubelet_start
    assert (await client.read()).kubelet_start == after.kubelet_start


async def test_a_restart_during_a_read(kubelet: FakeKubelet, client: PodResourcesApi) -> None:
    """An answer that may be of the kubelet before or after a restart is of neither."""
    await client.read()
    fresh = kubelet.socket.with_name("fresh.sock")
    with socket.socket(socket.AF_UNIX) as other:
        with answers_wait(kubelet):
            reading = asyncio.create_task(client.read())
            await wait_until_async(lambda: kubelet.calls["List"] == 2)
            other.bind(str(fresh))
            fresh.replace(kubelet.socket)
        with pytest.raises(KubeletError, match="restarted during this read"):
            await reading


async def test_answers_are_taken_as_they_are(kubelet: FakeKubelet, client: PodResourcesApi) -> None:
    """An incomplete list after a restart is reported as it is: others judge it."""
    pods = kubelet.pods
    await client.read()
    await restart(kubelet)
    kubelet.filled = 0
    assert (await client.read()).listed == frozenset()
    kubelet.filled = None
    assert (await client.read()).pods == {(pod.namespace, pod.name) for pod in pods}


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL])
async def test_after_a_refusal(kubelet: FakeKubelet, clock: Clock, pod: Pod, code: grpc.StatusCode) -> None:
    """A read that fails is no restart: an answer after it is taken as it is, however often that happens."""
    client = PodResourcesApi(kubelet.socket, timeout=100.0, clock=clock, wall=clock)
    kubelet.pods = [pod]
    offered = (await client.read()).offered
    clock.now += 100
    for _ in range(3):
        kubelet.errors = {"List": (code, "not now")}
        with pytest.raises(KubeletError):
            await client.read()
        kubelet.errors, kubelet.pods, kubelet.offered = {}, [], []
        read = await client.read()
        assert (read.allocated, read.offered, read.read_at) == ((), (), clock.now)
        clock.now += 30
    assert offered


async def test_after_cancelled(kubelet: FakeKubelet, client: PodResourcesApi, clock: Clock) -> None:
    await client.read()
    clock.now += 100
    kubelet.delay = 60
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.read(), 0.02)
    kubelet.delay, kubelet.pods = 0, []
    assert (await client.read()).allocated == ()


async def test_without_a_restart_the_last_holder_leaves_at_the_next_read(
    kubelet: FakeKubelet, client: PodResourcesApi, clock: Clock
) -> None:
    await client.read()
    clock.now += 100
    kubelet.pods = []
    assert (await client.read()).allocated == ()


async def test_empty_at_first(kubelet: FakeKubelet, client: PodResourcesApi) -> None:
    kubelet.pods = []
    assert (await client.read()).allocated == ()


@pytest.mark.parametrize(
    "fault",
    [
        {"errors": {"GetAllocatableResources": UNAVAILABLE}},
        {"errors": {"GetAllocatableResources": (grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max")}},
        {"garbage": frozenset({"GetAllocatableResources"})},
        {"errors": {"GetAllocatableResources": (grpc.StatusCode.DEADLINE_EXCEEDED, "")}},
    ],
)
async def test_failed_offers_are_replaced_by_the_last_good_ones(
    kubelet: FakeKubelet, client: PodResourcesApi, fault: dict[str, object]
) -> None:
    good = await client.read()
    for attribute, value in fault.items():
        setattr(kubelet, attribute, value)
    read = await client.read()
    assert (good.allocated, good.offered) == (read.allocated, read.offered)


async def test_the_last_good_offers_expire_and_their_failure_is_logged_once(
    kubelet: FakeKubelet, client: PodResourcesApi, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    good = await client.read()
    kubelet.errors = {"GetAllocatableResources": UNAVAILABLE}
    clock.now += KEEP_SECONDS
    assert (await client.read()).offered == good.offered
    clock.now += 1
    assert (await client.read()).offered is None
    kubelet.errors = {}
    assert (await client.read()).offered == good.offered
    assert len(caplog.records) == 1


async def test_offers_never_known(kubelet: FakeKubelet, client: PodResourcesApi) -> None:
    kubelet.errors = {"GetAllocatableResources": UNAVAILABLE}
    read = await client.read()
    assert (len(read.allocated), read.offered) == (2, None)


async def test_offers_of_a_silent_plugin_stay_while_they_are_held(
    kubelet: FakeKubelet, client: PodResourcesApi, clock: Clock
) -> None:
    kubelet.offered = [*kubelet.offered, ("nvidia.com/mig-1g.5gb", "MIG-1")]
    await client.read()
    clock.now += 100
    kubelet.offered = []
    read = await client.read()
    assert [f"GPU-1::{n}" for n in range(4)] == [device.device_id for device in read.offered or ()]
    kubelet.pods = []
    assert (await client.read()).offered == ()


async def test_offers_after_restart(
    kubelet: FakeKubelet, client: PodResourcesApi, clock: Clock, pod: Pod
) -> None:
    kubelet.offered = [*kubelet.offered, ("nvidia.com/mig-1g.5gb", "MIG-1")]
    good = await client.read()
    kubelet.offered = []
    await restart(kubelet)
    assert (await client.read()).offered == good.offered
    kubelet.pods = [replace(pod, containers=())]
    clock.now += 60
    assert (await client.read()).offered == ()


async def test_offers_replaced(kubelet: FakeKubelet, client: PodResourcesApi) -> None:
    await client.read()
    kubelet.offered = [("nvidia.com/gpu", "GPU-2")]
    read = await client.read()
    assert [device.device_id for device in read.offered or ()] == ["GPU-2"]


def offer(kubelet: FakeKubelet, *numbers: int, resource: str = "nvidia.com/gpu") -> None:
    """Offer these replicas of a GPU, and nothing else."""
    kubelet.offered = [(resource, f"GPU-1::{number}") for number in numbers]


async def withdrawn(client: PodResourcesApi) -> list[str]:
    """Read, and return the ids that were offered before and are not now."""
    return [device.device_id for device in (await client.read()).withdrawn]


async def test_devices_that_are_offered_no_more(kubelet: FakeKubelet, client: PodResourcesApi) -> None:
    """An unhealthy device is remembered as long as its plugin runs, and returns."""
    offer(kubelet, 0, 1, 2, 3)
    assert await withdrawn(client) == []
    offer(kubelet, 0, 1, 2)
    assert await withdrawn(client) == ["GPU-1::3"]
    offer(kubelet, 0)
    assert await withdrawn(client) == ["GPU-1::1", "GPU-1::2", "GPU-1::3"]
    kubelet.errors = {"GetAllocatableResources": UNAVAILABLE}
    assert await withdrawn(client) == ["GPU-1::1", "GPU-1::2", "GPU-1::3"]
    kubelet.errors = {}
    offer(kubelet, 0, 1, 2, 3)
    assert await withdrawn(client) == []


async def test_a_reconfigured_plugin_withdraws_nothing(kubelet: FakeKubelet, client: PodResourcesApi) -> None:
    """Its resource was away for a moment, or it has devices that were never offered."""
    offer(kubelet, 0, 1, 2, 3)
    await client.read()
    offer(kubelet)
    read = await client.read()
    assert (read.kept, read.withdrawn) == ({"nvidia.com/gpu"}, ())
    offer(kubelet, 0, 1)
    read = await client.read()
    assert (read.kept, read.withdrawn) == (frozenset(), ())
    offer(kubelet, 0, 2)
    assert await withdrawn(client) == []


async def test_what_was_offered_before_its_plugin_was_away(
    kubelet: FakeKubelet, client: PodResourcesApi
) -> None:
    """It is reported apart until it is offered again, however often the plugin is restarted."""
    offered = kubelet.offered
    await client.read()
    for _ in range(2):
        kubelet.offered = ()
        await client.read()
        kubelet.offered = offered[:-1]
        assert [(each.resource, each.device_id) for each in (await client.read()).earlier] == [offered[-1]]
    kubelet.offered = offered
    assert (await client.read()).earlier == ()


async def test_allocations_of_a_renamed_resource_do_not_keep_its_old_offers(
    kubelet: FakeKubelet, client: PodResourcesApi
) -> None:
    offer(kubelet, 0, 1, 2, 3)
    await client.read()
    offer(kubelet, 0, 1, 2, 3, resource="nvidia.com/gpu.shared")
    read = await client.read()
    assert {device.resource for device in read.offered or ()} == {"nvidia.com/gpu.shared"}
    assert {each.resource for each in read.allocated} == {"nvidia.com/gpu"}
    assert (read.kept, read.withdrawn) == (frozenset(), ())


async def test_socket_unlinked_while_read(
    kubelet: FakeKubelet, client: PodResourcesApi, tmp_path: Path
) -> None:
    with answers_wait(kubelet):
        reading = asyncio.create_task(client.read())
        await wait_until_async(lambda: kubelet.calls["List"])
        kubelet.socket.rename(tmp_path / "gone")
    assert len((await reading).allocated) == 2
