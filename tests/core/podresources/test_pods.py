"""The client of the kubelet's Pods API."""

from pathlib import Path

import grpc
import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.scenario.pods import Claim, Container
from exporter.demo.scenario.pods import Pod as HeldPod
from exporter.model import ContainerSpec, NamedRequest, PodDetails, PodIdentity, ResourceHealth
from podresources.channel import KubeletError
from podresources.messages import LIST_PODS, ListPodsResponse, Pod
from podresources.pods import PodsApi
from tests.core.podresources.support import RawServer

SECRET = b"correct horse"


def payload(uid: str = "uid-1", *, namespace: str = "ml", name: str = "train") -> bytes:
    """Return a pod of three names."""
    return bytes(Pod(metadata={"uid": uid, "namespace": namespace, "name": name}).SerializeToString())


async def test_read(kubelet: FakeKubelet, pod: HeldPod) -> None:
    """Pods come by uid, with their containers by the id that a cgroup's name holds."""
    waiting = HeldPod(
        namespace="web",
        name="shop",
        uid="uid-0",
        containers=(Container(name="nginx"),),
    )
    kubelet.pods, kubelet.unlisted = [pod, waiting], frozenset({waiting.uid})
    assert await PodsApi(kubelet.pods_socket).read() == (
        PodIdentity(
            uid="uid-0",
            namespace="web",
            name="shop",
            containers=("nginx",),
            details=PodDetails(containers=(ContainerSpec(name="nginx"),), phase="Running"),
        ),
        PodIdentity(
            uid="uid-1",
            namespace="ml",
            name="train",
            containers=("main",),
            container_ids={"a" * 64: "main"},
            details=PodDetails(
                containers=(ContainerSpec(name="main", limits={"nvidia.com/gpu": 2}),), phase="Running"
            ),
        ),
    )


async def test_objects(tmp_path: Path, serve_raw: RawServer) -> None:
    """Labels, annotations and extended resources come along; environment and long texts do not."""
    pod = Pod.FromString(payload())
    pod.metadata.labels.add(key="app", value="train")
    pod.metadata.annotations.add(key="hami.io/bind-phase", value="success")
    pod.metadata.annotations.add(key="kubectl.kubernetes.io/last-applied-configuration", value="{}")
    pod.metadata.annotations.add(key="long", value="x" * 70_000)
    pod.spec.initContainers.add(name="load")
    limits = {"nvidia.com/gpumem": "2k", "cpu": "1", "x.io/odd": "1500m"}
    entries = [{"key": key, "value": {"string": text}} for key, text in limits.items()]
    pod.spec.containers.add(name="main", resources={"limits": entries})
    answer = ListPodsResponse(pods=[pod.SerializeToString()]).SerializeToString()
    await serve_raw(tmp_path / "pods.sock", LIST_PODS, answer)
    (identity,) = await PodsApi(tmp_path / "pods.sock").read()
    assert identity.details == PodDetails(
        labels={"app": "train"},
        annotations={"hami.io/bind-phase": "success"},
        containers=(
            ContainerSpec(name="load", init=True),
            ContainerSpec(name="main", limits={"nvidia.com/gpumem": 2000}),
        ),
    )


async def test_requests_of_claims(tmp_path: Path, serve_raw: RawServer) -> None:
    """Those that containers name, with the name of the claim; those of extended resources too."""
    pod = Pod.FromString(payload())
    pod.spec.resourceClaims.add(name="own", resourceClaimName="shared")
    pod.spec.resourceClaims.add(name="made")
    pod.spec.resourceClaims.add(name="not made")
    pod.status.resourceClaimStatuses.add(name="made", resourceClaimName="train-made-x1")
    pod.spec.initContainers.add(name="load", resources={"claims": [{"name": "own"}]})
    named = [{"name": "made", "request": "gpu"}, {"name": "not made"}, {"name": "unknown"}]
    pod.spec.containers.add(name="main", resources={"claims": named})
    pod.status.extendedResourceClaimStatus.resourceClaimName = "train-extended"
    mapping = {"containerName": "main", "requestName": "container-0-request-0"}
    pod.status.extendedResourceClaimStatus.requestMappings.add(**mapping)
    answer = ListPodsResponse(pods=[pod.SerializeToString()]).SerializeToString()
    await serve_raw(tmp_path / "pods.sock", LIST_PODS, answer)
    (identity,) = await PodsApi(tmp_path / "pods.sock").read()
    assert identity.details.requests == (
        NamedRequest("load", "shared", ""),
        NamedRequest("main", "train-made-x1", "gpu"),
        NamedRequest("main", "train-extended", "container-0-request-0"),
    )


async def test_all_kinds_of_containers(tmp_path: Path, serve_raw: RawServer) -> None:
    """Init and ephemeral containers are known too, whatever the runtime."""
    pod = Pod.FromString(payload())
    pod.status.containerStatuses.add(name="main", containerID="cri-o://" + "a" * 64)
    pod.status.initContainerStatuses.add(name="load", containerID="docker://" + "b" * 64)
    pod.status.ephemeralContainerStatuses.add(name="debug", containerID="containerd://" + "c" * 64)
    answer = ListPodsResponse(pods=[pod.SerializeToString()]).SerializeToString()
    await serve_raw(tmp_path / "pods.sock", LIST_PODS, answer)
    (identity,) = await PodsApi(tmp_path / "pods.sock").read()
    assert identity.containers == ("main", "load", "debug")
    assert identity.container_ids == {"a" * 64: "main", "b" * 64: "load", "c" * 64: "debug"}


async def test_health_of_devices(kubelet: FakeKubelet) -> None:
    """Each device of an ordinary container comes with the health in the status of the pod."""
    claim = Claim(device="gpu-1", name="ml-gpu", uid="11111111-2222-3333-4444-555555555555", health="Unknown")
    devices = {"nvidia.com/gpu": ("GPU-a", "GPU-b")}
    healths = {"GPU-a": "Healthy", "GPU-b": "Unhealthy"}
    main = Container(name="main", devices=devices, claims=(claim,), health=healths)
    load = Container(name="load", init=True, devices=devices, health=healths)
    kubelet.pods = [HeldPod(namespace="ml", name="train", uid="uid-1", containers=(load, main))]
    (identity,) = await PodsApi(kubelet.pods_socket).read()
    assert identity.details is not None
    assert sorted(identity.details.health) == [
        ResourceHealth("main", "claim:ml-gpu", claim.cdi, "Unknown"),
        ResourceHealth("main", "nvidia.com/gpu", "GPU-a", "Healthy"),
        ResourceHealth("main", "nvidia.com/gpu", "GPU-b", "Unhealthy"),
    ]


@pytest.mark.parametrize(
    "broken",
    [
        b"\xff" + SECRET,
        b"\x0a\x0a\x0a\x08\xff" + SECRET,
        payload(uid=""),
        payload(name=""),
        payload(namespace=""),
        b"",
    ],
)
async def test_a_broken_pod_costs_only_itself_and_is_logged_once(
    tmp_path: Path, serve_raw: RawServer, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its bytes, which may have secrets, are not logged."""
    answer = ListPodsResponse(pods=[payload("uid-2"), broken, payload("uid-1")])
    await serve_raw(tmp_path / "pods.sock", LIST_PODS, answer.SerializeToString())
    client = PodsApi(tmp_path / "pods.sock")
    for _ in range(2):
        assert [pod.uid for pod in await client.read()] == ["uid-1", "uid-2"]
    assert len(caplog.records) == 1
    assert SECRET.decode() not in caplog.text


async def test_not_ready(kubelet: FakeKubelet) -> None:
    kubelet.errors = {"ListPods": (grpc.StatusCode.FAILED_PRECONDITION, "pods not synced")}
    with pytest.raises(KubeletError) as caught:
        await PodsApi(kubelet.pods_socket).read()
    assert caught.value.reason == "not_ready"


async def test_old_kubelet(tmp_path: Path) -> None:
    kubelet = FakeKubelet(tmp_path)
    await kubelet.start()
    with pytest.raises(KubeletError) as caught:
        await PodsApi(kubelet.pods_socket).read()
    await kubelet.stop()
    assert caught.value.reason == "absent"


async def test_garbage(kubelet: FakeKubelet) -> None:
    kubelet.garbage = frozenset({"ListPods"})
    with pytest.raises(KubeletError) as caught:
        await PodsApi(kubelet.pods_socket).read()
    assert caught.value.reason == "malformed"


async def test_hang(kubelet: FakeKubelet) -> None:
    kubelet.delay = 60.0
    with pytest.raises(KubeletError) as caught:
        await PodsApi(kubelet.pods_socket, timeout=0.1).read()
    assert caught.value.reason == "deadline"
