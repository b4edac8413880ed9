"""Where names and objects of pods come from: the kubelet's Pods API, the Kubernetes API, the pod logs."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import grpc
import pytest

from exporter.demo.scenario import Scenario, catalog
from exporter.doctor.workloads import object_checks
from exporter.kubernetes import WatchedPods
from exporter.model import PodDetails, PodIdentity, ResourceHealth, SliceCount
from exporter.poll.pod_names import KUBERNETES_API, PODS_API, NoNamesError, PodNames, merged
from tests.core.kubernetes.api import a_pod, api_server
from tests.core.poller.bench import polled, rows
from tests.fake.demo.making import gpu, made, pod
from tests.page.web.views_reading import node_page
from tests.waiting import wait_until_async

GPU = "GPU-03f69c50-207a-2038-9b45-23cac89cb67a"
ALLOCATED = {"hami.io/vgpu-devices-allocated": f"{GPU},NVIDIA,4000,30:;"}
UID = "0e7c12f0-5a1d-4c62-9d3e-0a6f3c1b2d11"
OTHER = "11111111-5a1d-4c62-9d3e-0a6f3c1b2d11"


def shared(identity: str = "pod_logs") -> Scenario:
    """Return a node of HAMi with one pod, whose share is in an annotation."""
    process = {"device": GPU, "memory": "1 GiB"}
    train = pod("train", process, devices={"nvidia.com/gpu": [f"{GPU}-0"]}) | {"uid": UID}
    return made(gpus=[gpu(uuid=GPU)], pods=[train], identity=identity)


def known(name: str, uid: str, *, details: bool = False) -> PodIdentity:
    """Return a pod, with an object or without."""
    return PodIdentity(uid=uid, namespace="ml", name=name, details=PodDetails() if details else None)


@contextmanager
def refused(socket: Path) -> Iterator[None]:
    """Put a file in the place of a socket of the kubelet for a while."""
    aside = socket.with_suffix(".aside")
    socket.rename(aside)
    socket.touch()
    try:
        yield
    finally:
        aside.replace(socket)


def checks_of(poller) -> dict:
    """Return the doctor's checks of the last poll, by name."""
    return {check.name: check for check in object_checks(poller.snapshot, poller.evidence)}


async def test_a_share_that_only_the_kubernetes_api_has(tmp_path: Path):
    async with api_server() as api:
        api.pods.put(a_pod("train", UID, annotations=ALLOCATED))
        config = api.kubeconfig(tmp_path / "config")
        async with polled(shared(), kubeconfig=config) as (node, poller):
            await poller.first()
            (row,) = rows(poller.snapshot, "train")
            assert (row.memory_entitled, row.compute_entitled) == (4000 << 20, 0.3)
            assert row.memory_used == 1 << 30
            assert poller.snapshot.node.blind == {}
            assert poller.evidence.node.labels == {"kubernetes.io/os": "linux"}
            assert [(check.name, check.status) for check in checks_of(poller).values()] == [
                ("pod objects", "OK")
            ]
            assert KUBERNETES_API in checks_of(poller)["pod objects"].found
        assert api.pods.asked[0]["fieldSelector"] == f"spec.nodeName={node.name}"


async def test_a_share_that_is_annotated_later(tmp_path: Path):
    async with api_server() as api:
        api.pods.put(a_pod("train", UID))
        config = api.kubeconfig(tmp_path / "config")
        async with polled(shared(), kubeconfig=config) as (_, poller):
            await poller.first()
            assert [row.memory_entitled for row in rows(poller.snapshot, "train")] != [4000 << 20]
            await api.pods.watching.wait()
            api.pods.put(a_pod("train", UID, annotations=ALLOCATED))
            cluster = poller._sources.cluster
            await wait_until_async(lambda: bool(cluster.pods.pods[UID].details.annotations))
            await poller.poll()
            assert [row.memory_entitled for row in rows(poller.snapshot, "train")] == [4000 << 20]


async def test_a_gpu_is_cordoned_while_the_exporter_runs(tmp_path: Path):
    async with api_server() as api:
        config = api.kubeconfig(tmp_path / "config")
        ids = [f"{GPU}-{place}" for place in range(4)]
        offered = replace(shared(), offers=made(offers=[{"resource": "nvidia.com/gpu", "ids": ids}]).offers)
        async with polled(offered, kubeconfig=config) as (_, poller):
            await poller.first()
            assert poller.snapshot.gpus[0].slices == (SliceCount("nvidia.com/gpu", 4, 1, cordoned=0),)
            await api.nodes.watching.wait()
            node = api.nodes.objects["node"]
            cordon = {"annotations": {"hami.io/device-cordon": GPU}}
            api.nodes.put(node | {"metadata": node["metadata"] | cordon})
            await wait_until_async(lambda: bool(poller._sources.cluster.node.annotations))
            snapshot = await poller.poll()
            assert snapshot.gpus[0].slices == (SliceCount("nvidia.com/gpu", 4, 1, cordoned=4),)
            assert "GPU 0 is cordoned" in node_page(snapshot)


async def test_without_a_source_of_annotations_the_doctor_names_both_remedies():
    async with polled(shared(), kubernetes_api="off") as (_, poller):
        await poller.first()
        assert poller.snapshot.node.blind.keys() == {"hami"}
        checks = checks_of(poller)
        assert checks["pod objects"].status == "absent"
        assert checks["sharing by hami"].status == "degraded"
        assert checks["sharing by hami"].lost == poller.snapshot.node.blind["hami"]
        for component in ("pods-api", "kubernetes-api"):
            assert f"deploy/components/{component}" in checks["sharing by hami"].remedy


async def test_the_doctor_names_a_missing_right(tmp_path: Path):
    """The logs still name the pods."""
    async with api_server() as api:
        api.pods.refuse = 403
        config = api.kubeconfig(tmp_path / "config")
        async with polled(shared(), kubeconfig=config) as (_, poller):
            await poller.first()
            check = checks_of(poller)["Kubernetes API"]
            assert check.status == "degraded"
            assert "let the service account list and watch pods" in check.found
            assert [pod.name for pod in poller.evidence.workloads.pods.values()] == ["train"]


async def test_objects_of_the_pods_api_are_preferred_to_those_of_the_api_server(tmp_path: Path):
    async with api_server() as api:
        api.pods.put(a_pod("train", UID, annotations=ALLOCATED))
        config = api.kubeconfig(tmp_path / "config")
        async with polled(shared("pods_api"), kubeconfig=config) as (_, poller):
            await poller.first()
            assert poller.evidence.objects_from == PODS_API
            assert PODS_API in checks_of(poller)["pod objects"].found
            assert poller.evidence.workloads.pods[UID].details.annotations == {}


async def test_one_failure_of_the_kubelet_removes_no_holder_known_by_annotations():
    async with polled(catalog.load("kai")) as (node, poller):
        counted = []
        for turn in range(6):
            await node.step(turn * 5.0)
            with refused(poller.settings.pods_api_socket) if turn == 3 else nullcontext():
                snapshot = await poller.poll()
            assert snapshot.node.blind == {}
            counted.append({row.holder: row.totals.entitled_gpu_seconds for row in snapshot.containers})
        for before, after in pairwise(counted):
            assert before.keys() == after.keys()
            assert [holder for holder, held in before.items() if held and after[holder] <= held] == []


async def test_one_failure_of_the_kubelet_gives_no_name_back_to_the_former_pod():
    """The directory of the former pod may be the last one changed."""
    async with polled(shared("pods_api")) as (_, poller):
        paths = poller.settings
        names = PodNames(paths.pods_api_socket, paths.pod_log_dir, 1.0, keep=30.0)
        pods = await names.read()
        before = paths.pod_log_dir / f"{pods[UID].namespace}_{pods[UID].name}_{OTHER}"
        before.mkdir()
        os.utime(before, (time.time() + 60,) * 2)
        with refused(paths.pods_api_socket):
            assert await names.read() == pods
        await names.close()


async def test_an_answer_of_the_pods_api_expires():
    now = [0.0]
    async with polled(shared("pods_api")) as (_, poller):
        paths = poller.settings
        names = PodNames(paths.pods_api_socket, paths.pod_log_dir, 1.0, keep=30.0, clock=lambda: now[0])
        pods = await names.read()
        with refused(paths.pods_api_socket):
            now[0] = 30.0
            assert await names.read("new") == pods
            assert names.objects_from == PODS_API
            now[0] = 31.0
            assert [pod.details for pod in (await names.read("new")).values()] == [None]
            assert names.objects_from == ""
        await names.close()


async def test_the_pods_api_is_not_called_without_a_cause():
    """The kubelet logs each call."""
    now = [0.0]
    async with polled(shared("pods_api")) as (node, poller):
        paths, kubelet = poller.settings, node.kubelet
        names = PodNames(paths.pods_api_socket, paths.pod_log_dir, 1.0, keep=60.0, clock=lambda: now[0])

        async def calls(cause: str, seconds: int) -> int:
            before = kubelet.calls["ListPods"]
            for _ in range(0, seconds, 5):
                now[0] += 5
                assert UID in await names.read(cause)
            return kubelet.calls["ListPods"] - before

        assert await calls("start", 60) == 6
        assert await calls("start", 600) == 10
        assert await calls("another pod", 5) == 1
        kubelet.errors = {"ListPods": (grpc.StatusCode.INTERNAL, "not now")}
        await calls("another pod", 60)
        kubelet.errors = {}
        assert await calls("another pod", 5) == 1
        await names.close()


async def test_the_doctor_counts_pods_that_only_the_logs_know(tmp_path: Path):
    async with api_server() as api:
        config = api.kubeconfig(tmp_path / "config")
        async with polled(shared(), kubeconfig=config) as (_, poller):
            await poller.first()
            assert checks_of(poller)["pod objects"].found.endswith("missing for 1 of 1 pods")


def test_a_pod_known_by_both_is_the_one_with_details():
    watched = WatchedPods({UID: known("train", UID, details=True)}, live=True)
    found = merged(watched, [known("train", UID), known("infer", OTHER)])
    assert found == {UID: known("train", UID, details=True), OTHER: known("infer", OTHER)}


@pytest.mark.parametrize(("live", "uid"), [(True, UID), (False, OTHER)])
def test_of_two_pods_with_one_name_the_newer_source_is_right(live: bool, uid: str):
    """Logs outlive their pod, and an interrupted watch does not hear of the next one."""
    watched = WatchedPods({UID: known("train-0", UID, details=True)}, live)
    assert merged(watched, [known("train-0", OTHER)]).keys() == {uid}


@pytest.mark.parametrize(
    ("watch", "superseded"),
    [
        pytest.param(None, {OTHER}, id="logs alone"),
        pytest.param(WatchedPods({UID: known("train-0", UID)}, live=True), {OTHER}, id="a watch"),
        pytest.param(WatchedPods({OTHER: known("train-0", OTHER)}, live=False), {OTHER}, id="a cut watch"),
    ],
)
async def test_pods_whose_name_another_pod_has_are_superseded(tmp_path: Path, watch, superseded):
    for changed, uid in ((1000, OTHER), (2000, UID)):
        folder = tmp_path / f"ml_train-0_{uid}"
        folder.mkdir()
        os.utime(folder, (changed, changed))
    names = PodNames(tmp_path / "none.sock", tmp_path, 0.5, lambda: watch)
    assert (await names.read()).keys() == {UID}
    assert names.superseded == superseded
    await names.close()


async def test_without_logs_the_watch_is_enough(tmp_path: Path):
    watched = WatchedPods({UID: known("train", UID, details=True)}, live=True)
    names = PodNames(tmp_path / "none.sock", tmp_path / "none", 0.5, lambda: watched)
    assert await names.read() == watched.pods
    assert names.objects_from == KUBERNETES_API
    await names.close()


async def test_health_from_an_interrupted_watch_expires_before_the_objects(tmp_path: Path):
    now, live = [0.0], [True]
    healthy = (ResourceHealth("main", "nvidia.com/gpu", GPU, "Healthy"),)
    sick = replace(known("train", UID), details=PodDetails(annotations=ALLOCATED, health=healthy))

    def watched() -> WatchedPods:
        return WatchedPods({UID: sick}, live[0])

    socket, logs = tmp_path / "none.sock", tmp_path / "none"
    names = PodNames(socket, logs, 0.5, watched, keep=60.0, clock=lambda: now[0])
    healths = []
    for now[0], live[0] in ((0.0, True), (100.0, True), (160.0, False), (161.0, False), (170.0, True)):
        details = (await names.read())[UID].details
        assert details.annotations == ALLOCATED
        healths.append(details.health)
    assert healths == [healthy, healthy, healthy, (), healthy]
    await names.close()


async def test_without_any_source_of_names_the_error_names_the_option(tmp_path: Path):
    names = PodNames(tmp_path / "none.sock", tmp_path / "none", 0.5)
    with pytest.raises(NoNamesError, match="--pod-log-dir"):
        await names.read()
    await names.close()
