"""The client of the pod-resources API while the kubelet works."""

import asyncio
import math
import os
import threading
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario.pods import Claim, Container, Pod
from exporter.model import Allocation, Allocations, ClaimedDevice, ContainerRef, OfferedDevice
from podresources.client import PodResourcesApi
from tests.waiting import wait_until_async

HOLDER = ContainerRef("ml", "train", "main")


async def test_a_read_returns_sorted_devices_without_numa_duplicates(kubelet: FakeKubelet) -> None:
    assert await PodResourcesApi(kubelet.socket, wall=lambda: 5.0).read() == Allocations(
        allocated=tuple(Allocation(HOLDER, "nvidia.com/gpu", f"GPU-1::{n}") for n in (0, 1)),
        offered=tuple(OfferedDevice("nvidia.com/gpu", f"GPU-1::{n}") for n in range(4)),
        api_version="v1",
        read_at=5.0,
        listed=frozenset({HOLDER, HOLDER._replace(container="")}),
        kubelet_start=1,
    )


async def test_a_kubelet_with_v1alpha1_alone_reports_allocations_only(tmp_path: Path, pod: Pod) -> None:
    kubelet = FakeKubelet(tmp_path, api_versions=("v1alpha1",))
    kubelet.pods = [pod]
    await kubelet.start()
    read = await PodResourcesApi(kubelet.socket).read()
    assert (read.api_version, len(read.allocated), read.offered) == ("v1alpha1", 2, None)
    await kubelet.stop()


CLAIM = Claim(device="gpu-1", name="pair", namespace="ml", uid="uid-1", pool="node-1")


def claimed(claim: Claim, *cdi: str) -> ClaimedDevice:
    """Return what is to be read of a claim, with further CDI names that come with it."""
    names = tuple(sorted((claim.cdi, *cdi)))
    return ClaimedDevice(
        HOLDER, claim.driver, claim.pool, claim.device, claim.namespace, claim.name, claim.share_id, names
    )


async def test_claims(kubelet: FakeKubelet, pod: Pod) -> None:
    """Devices of claims are read too, each once, with the CDI names that the kubelet adds to it."""
    first = replace(CLAIM, device="gpu-0")
    share = replace(CLAIM, name="share", share_id="s")
    (main,) = pod.containers
    kubelet.pods = [replace(pod, containers=(replace(main, claims=(first, CLAIM, share, CLAIM)),))]
    read = await PodResourcesApi(kubelet.socket).read()
    assert read.claims == (claimed(first), claimed(CLAIM, first.cdi), claimed(share))
    assert len(read.allocated) == 2


async def test_v1alpha1_has_no_claims(tmp_path: Path, pod: Pod) -> None:
    kubelet = FakeKubelet(tmp_path, api_versions=("v1alpha1",))
    (main,) = pod.containers
    kubelet.pods = [replace(pod, containers=(replace(main, claims=(CLAIM,)),))]
    await kubelet.start()
    read = await PodResourcesApi(kubelet.socket).read()
    assert (len(read.allocated), read.claims) == (2, ())
    await kubelet.stop()


async def test_upgrade(tmp_path: Path, pod: Pod) -> None:
    """After an upgrade of the kubelet the first read speaks v1, after a downgrade v1alpha1."""
    client = PodResourcesApi(tmp_path / "pod-resources" / "kubelet.sock")
    seen = []
    for versions in (("v1alpha1",), ("v1", "v1alpha1"), ("v1alpha1",)):
        kubelet = FakeKubelet(tmp_path, api_versions=versions)
        kubelet.pods, kubelet.offered = [pod], [("nvidia.com/gpu", "GPU-1::0")]
        await kubelet.start()
        read = await client.read()
        seen.append((read.api_version, read.offered is not None))
        await kubelet.stop()
    assert seen == [("v1alpha1", False), ("v1", True), ("v1alpha1", False)]


async def test_pods_without_devices(kubelet: FakeKubelet, pod: Pod) -> None:
    idle = Container(name="idle")
    kubelet.pods = [replace(pod, name="web", containers=(idle,)), replace(pod, containers=(idle,))]
    assert (await PodResourcesApi(kubelet.socket).read()).allocated == ()


async def test_an_answer_of_many_megabytes_of_unknown_fields(kubelet: FakeKubelet) -> None:
    kubelet.padding_bytes = 17_800_000
    assert len((await PodResourcesApi(kubelet.socket).read()).allocated) == 2


async def test_a_large_answer_is_read_while_lookups_of_names_hang(kubelet: FakeKubelet) -> None:
    """The loop's own pool, in which clients look names up, may be full of calls that do not return."""
    release, loop = threading.Event(), asyncio.get_running_loop()
    hanging = [loop.run_in_executor(None, release.wait) for _ in range(64)]
    kubelet.padding_bytes = 100_000
    try:
        assert len((await PodResourcesApi(kubelet.socket).read()).allocated) == 2
    finally:
        release.set()
        await asyncio.gather(*hanging)


@pytest.mark.parametrize("name", ["with space", "per%41cent", "hash#", "query?", "gerät", "x" * 200])
async def test_odd_paths(tmp_path: Path, pod: Pod, name: str) -> None:
    kubelet = FakeKubelet(tmp_path / name)
    kubelet.pods = [pod]
    await kubelet.start()
    assert len((await PodResourcesApi(kubelet.socket).read()).allocated) == 2
    await kubelet.stop()


async def test_relative_path(kubelet: FakeKubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = kubelet.socket.relative_to(tmp_path)
    assert len((await PodResourcesApi(relative).read()).allocated) == 2


async def test_many_devices(kubelet: FakeKubelet) -> None:
    kubelet.pods = [
        Pod(
            namespace="ml",
            name=f"pod-{pod}",
            uid=str(pod),
            containers=(
                Container(
                    name="main",
                    devices={"nvidia.com/gpu": tuple(f"GPU-{pod}::{n}" for n in range(48))},
                ),
            ),
        )
        for pod in range(250)
    ]
    client = PodResourcesApi(kubelet.socket)
    await client.read()
    read = await client.read()
    assert len(read.allocated) == 250 * 48
    assert list(read.allocated) == sorted(read.allocated)


async def test_no_leaks(kubelet: FakeKubelet) -> None:
    """Reads that succeed, fail or are cancelled leave no file, thread or task, even if their errors stay."""
    client, impatient = PodResourcesApi(kubelet.socket), PodResourcesApi(kubelet.socket, timeout=0.02)
    kept: list[object] = []

    def held() -> tuple[int, int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count(), len(asyncio.all_tasks())  # noqa: PTH208 - counted once

    async def mixed() -> None:
        kubelet.delay = 0.0
        await client.read()
        kubelet.delay = math.inf
        kept.extend(await asyncio.gather(impatient.read(), return_exceptions=True))
        task = asyncio.create_task(client.read())
        await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for _ in range(5):
        await mixed()
    before = held()
    for _ in range(20):
        await mixed()
    await wait_until_async(lambda: all(now <= then + 3 for now, then in zip(held(), before, strict=True)))


async def test_a_cancelled_read_does_not_harm_the_next_one(kubelet: FakeKubelet) -> None:
    client = PodResourcesApi(kubelet.socket)
    kubelet.delay = math.inf
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.read(), 0.05)
    kubelet.delay = 0.0
    assert len((await client.read()).allocated) == 2


async def test_the_first_read_after_many_failures_works(kubelet: FakeKubelet) -> None:
    client = PodResourcesApi(kubelet.socket)
    await kubelet.stop()
    for _ in range(120):
        (failure,) = await asyncio.gather(client.read(), return_exceptions=True)
        assert isinstance(failure, Exception)
    await kubelet.start()
    assert len((await client.read()).allocated) == 2


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN])
async def test_without_allocatable_devices_earlier_ones_are_dropped(
    kubelet: FakeKubelet, code: grpc.StatusCode
) -> None:
    client = PodResourcesApi(kubelet.socket)
    await client.read()
    kubelet.errors = {"GetAllocatableResources": (code, "API GetAllocatableResources disabled")}
    read = await client.read()
    assert (len(read.allocated), read.offered) == (2, None)
