"""The pods of one node are followed, and only what is wrong with one of them is lost."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes import collection
from exporter.kubernetes.cluster import by_uid, read_node, read_pod
from exporter.kubernetes.collection import LONGEST_EVENT, lines
from exporter.kubernetes.follower import MOST_OBJECTIONS
from exporter.model import ContainerSpec, NamedRequest, NodeObject, ResourceHealth
from exporter.model.kubelet import LAST_APPLIED, MOST_ANNOTATIONS
from tests.core.kubernetes.api import NODE, Api, a_pod, api_server, uid_of
from tests.core.kubernetes.following import QUICK, following_pods, messages, names
from tests.waiting import wait_until_async

HASH = "0123456789abcdef0123456789abcdef"
MIRRORS = {"kubernetes.io/config.mirror": HASH, "kubernetes.io/config.hash": HASH}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("metadata", "spec", "status", "uid", "name", "namespace", "labels", "annotations", "containers")
KEYS += ("resources", "limits", "containerStatuses", "initContainers", "containerID", "phase", "items")
PODLIKE = st.recursive(
    JSON,
    lambda inner: st.dictionaries(st.sampled_from(KEYS), inner, max_size=5) | st.lists(inner, max_size=2),
)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Run a server with one pod for one test."""
    async with api_server() as server:
        server.pods.put(a_pod("train"))
        yield server


async def test_pods_of_the_node_are_listed_once_and_then_watched(api: Api, caplog) -> None:
    async with following_pods(api.configure) as pods:
        assert names(pods) == {"train"}
        await api.pods.watching.wait()
        await wait_until_async(lambda: pods.live)
        api.pods.put(a_pod("infer", annotations={"hami.io/vgpu-node": NODE}))
        await wait_until_async(lambda: names(pods) == {"train", "infer"})
        api.pods.delete(uid_of("train"))
        await wait_until_async(lambda: names(pods) == {"infer"})
        assert pods.objects[uid_of("infer")].details.annotations == {"hami.io/vgpu-node": NODE}

    first, second = api.pods.asked
    assert first == {"fieldSelector": f"spec.nodeName={NODE}", "resourceVersion": "0"}
    assert (second["fieldSelector"], second["watch"], second["resourceVersion"]) == (
        f"spec.nodeName={NODE}",
        "True",
        "5001",
    )
    assert caplog.records == []


async def test_the_health_of_devices_comes_with_a_pod(api: Api) -> None:
    """Malformed entries are left out."""
    pod = a_pod("infer")
    entries = [{"resourceID": "GPU-a", "health": "Unhealthy"}, "GPU-b"]
    pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"] = [
        {"name": "nvidia.com/gpu", "resources": entries},
        {"name": "claim:gpu/all", "resources": None},
    ]
    api.pods.put(pod)
    async with following_pods(api.configure) as pods:
        assert pods.objects[uid_of("infer")].details.health == (
            ResourceHealth("main", "nvidia.com/gpu", "GPU-a", "Unhealthy"),
        )
        assert pods.objects[uid_of("train")].details.health == ()


async def test_a_new_pod_with_the_name_of_another_replaces_it(api: Api) -> None:
    async with following_pods(api.configure) as pods:
        await api.pods.watching.wait()
        api.pods.put(a_pod("train", uid_of("another")))
        api.pods.delete(uid_of("train"))
        await wait_until_async(lambda: list(pods.objects) == [uid_of("another")])


async def test_after_an_expired_version_what_is_stored_is_listed(api: Api) -> None:
    """What a server has at hand may be too old for its own watches; what was deleted meanwhile is gone."""
    api.pods.put(a_pod("infer"))
    api.pods.expired = True
    watch = api.pods._watch

    async def watch_after_deletion(request: web.Request, answer: web.StreamResponse) -> None:
        api.pods.objects.pop(uid_of("train"), None)
        await watch(request, answer)

    api.pods._watch = watch_after_deletion
    async with following_pods(api.configure) as pods:
        await wait_until_async(lambda: names(pods) == {"infer"})

    versions = [query.get("resourceVersion") for query in api.pods.asked[:3]]
    assert versions == ["0", "5002", None]


async def test_pods_are_kept_for_a_while_when_their_server_is_away(api: Api) -> None:
    async with following_pods(api.configure) as pods:
        await wait_until_async(lambda: pods.live)
        await api.stop()
        await wait_until_async(lambda: not pods.live)
        assert names(pods) == {"train"}
        pods._pace = QUICK._replace(forget_after=0.0)
        pods._heard()
        await wait_until_async(lambda: pods.objects is None)


@pytest.mark.parametrize(
    "hostile",
    [
        b"\n",
        b"null\n",
        b"[]\n",
        b"{\n",
        b"\xff\xfe\n",
        b'{"type": "ADDED"}\n',
        b'{"type": 1, "object": {"metadata": {"resourceVersion": "7"}}}\n',
        b'{"type": "ADDED", "object": []}\n',
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": 7}}}\n',
        b'{"type": "ADDED", "object": ' + b"[" * 100_000 + b"}\n",
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": ' + b"9" * 10_000 + b"}}}\n",
        b"x" * (LONGEST_EVENT + 1) + b"\n",
        b'{"type": "NEWER", "object": {"metadata": {"resourceVersion": "7", "uid": "u"}}}\n',
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "7", "uid": ["u"]}}}\n',
        b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "7", "uid": "u", "name": {}}}}\n',
    ],
    ids=lambda sent: f"{sent[:40]!r}",
)
async def test_an_event_that_cannot_be_read_costs_only_itself(api: Api, caplog, hostile: bytes) -> None:
    """The watch goes on, what was known stays, and the log has one line at most."""
    async with following_pods(api.configure) as pods:
        await api.pods.watching.wait()
        for _ in range(3):
            api.pods.send_bytes(hostile)
        api.pods.put(a_pod("infer"))
        await wait_until_async(lambda: names(pods) == {"train", "infer"})

    assert len(api.pods.asked) == 2
    assert len(caplog.records) <= 1


async def test_an_event_that_comes_in_pieces_is_whole(api: Api) -> None:
    about = a_pod("infer", annotations={"x": "y" * 300_000})
    about["metadata"]["resourceVersion"] = "6000"
    sent = json.dumps({"type": "ADDED", "object": about}).encode() + b"\n"
    async with following_pods(api.configure) as pods:
        await api.pods.watching.wait()
        for start in range(0, len(sent), 100_000):
            assert names(pods) == {"train"}
            api.pods.send_bytes(sent[start : start + 100_000])
            await asyncio.sleep(0.02)
        await wait_until_async(lambda: names(pods) == {"train", "infer"})


async def test_a_pod_that_cannot_be_read_is_left_out_of_the_list(api: Api, caplog) -> None:
    api.pods.objects["bad"] = {"metadata": {"uid": "bad", "namespace": "ml", "name": ["x"]}}
    api.pods.objects["none"] = "no object"
    async with following_pods(api.configure) as pods:
        assert names(pods) == {"train"}

    assert messages(caplog.records) == [
        f"WARNING the pods of node {NODE}: skipped an object (ml): cannot be read"
    ]


async def test_many_unreadable_objects_do_not_fill_the_log(api: Api, caplog) -> None:
    for number in range(MOST_OBJECTIONS + 50):
        name = f"pod-{number}"
        api.pods.objects[name] = {"metadata": {"namespace": "ml", "name": name}}
    async with following_pods(api.configure) as pods:
        assert names(pods) == {"train"}

    assert len(caplog.records) == MOST_OBJECTIONS


async def test_a_list_without_end_is_refused(api: Api, caplog, monkeypatch) -> None:
    monkeypatch.setattr(collection, "LONGEST_LIST", 100)
    async with following_pods(api.configure) as pods:
        assert pods.objects is None
        assert "longer than 100 bytes" in pods.failure

    assert pods.failure in caplog.text


async def test_lines_in_pieces_of_any_length_are_whole() -> None:
    text = b"first\n" + b"x" * 50 + b"\n\nlast\nwithout an end"
    for size in range(1, len(text) + 1):

        async def chunks(size: int = size) -> AsyncIterator[bytes]:
            for start in range(0, len(text), size):
                yield text[start : start + size]

        assert [line async for line in lines(chunks(), 10)] == [b"first", None, b"", b"last"]


def test_what_is_kept_of_a_pod() -> None:
    pod = a_pod("train", labels={"app": "x"}, annotations={LAST_APPLIED: "{}", "gpu": "0", "n": 1})
    pod["metadata"]["annotations"]["huge"] = "x" * (MOST_ANNOTATIONS + 1)
    pod["spec"] = {
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}}}, None],
        "initContainers": [{"name": "init", "resources": {"limits": {"nvidia.com/gpumem": "3k"}}}],
    }
    pod["status"] |= {
        "initContainerStatuses": [{"name": "init", "containerID": "cri-o://" + "b" * 64}],
        "ephemeralContainerStatuses": [{"name": "debug", "containerID": "docker://" + "c" * 64}],
        "containerStatuses": [{"name": "main", "containerID": "containerd://" + "a" * 64}, {"name": "late"}],
    }

    kept = read_pod(pod)

    assert (kept.uid, kept.namespace, kept.name) == (uid_of("train"), "ml", "train")
    assert kept.container_ids == {"a" * 64: "main", "b" * 64: "init", "c" * 64: "debug"}
    assert kept.containers == ("main", "late", "init", "debug")
    assert kept.details.labels == {"app": "x"}
    assert kept.details.annotations == {"gpu": "0"}
    assert kept.details.containers == (
        ContainerSpec(name="init", init=True, limits={"nvidia.com/gpumem": 3000}),
        ContainerSpec(name="main", limits={"nvidia.com/gpu": 1}),
    )
    assert kept.details.phase == "Running"


def test_requests_of_claims() -> None:
    """As the Pods API has them: see tests/core/podresources/test_pods.py."""
    pod = a_pod("train")
    named = [{"name": "made", "request": "gpu"}, {"name": "not made"}, {"name": "unknown"}, None]
    pod["spec"] = {
        "resourceClaims": [
            {"name": "own", "resourceClaimName": "shared"},
            {"name": "made", "resourceClaimTemplateName": "x"},
            {"name": "not made", "resourceClaimTemplateName": "x"},
        ],
        "initContainers": [{"name": "load", "resources": {"claims": [{"name": "own"}]}}],
        "containers": [{"name": "main", "resources": {"claims": named}}],
    }
    mapping = {"containerName": "main", "resourceName": "x", "requestName": "container-0-request-0"}
    pod["status"] |= {
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "train-made-x1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "train-extended", "requestMappings": [mapping]},
    }

    assert read_pod(pod).details.requests == (
        NamedRequest("load", "shared", ""),
        NamedRequest("main", "train-made-x1", "gpu"),
        NamedRequest("main", "train-extended", "container-0-request-0"),
    )


def test_a_mirror_stands_for_the_static_pod() -> None:
    """Its uid is the one that the kubelet made, under which it runs; a hash alone makes no mirror."""
    assert read_pod(a_pod("static", annotations=MIRRORS)).uid == HASH
    alone = {"kubernetes.io/config.hash": HASH}
    assert read_pod(a_pod("static", annotations=alone)).uid == uid_of("static")


def test_a_mirror_takes_no_other_pods_place() -> None:
    """Whoever may make pods can write any uid into an annotation; the pod whose uid it is keeps it."""
    victim = a_pod("train")
    stolen = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": uid_of("train")}
    thief = a_pod("thief", annotations=stolen)
    for order in ((victim, thief), (thief, victim)):
        found = by_uid({pod["metadata"]["uid"]: read_pod(pod) for pod in order})
        assert {uid: pod.name for uid, pod in found.items()} == {uid_of("train"): "train"}


@given(PODLIKE)
def test_any_object_is_read_or_left_out(about) -> None:
    if not isinstance(about, dict):
        about = {"metadata": about, "spec": about, "status": about}
    pod = read_pod(json.loads(json.dumps(about)))
    assert pod is None or all((pod.uid, pod.namespace, pod.name))
    assert isinstance(read_node(about), NodeObject)
