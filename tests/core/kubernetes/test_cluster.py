"""Pods and node together: access, known objects, and the wait before the first poll."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from exporter.kubernetes import Cluster, access, cluster, follower
from exporter.kubernetes.access import Configure
from exporter.model import NodeObject
from tests.core.kubernetes.api import NODE, Api, a_pod, api_server, uid_of
from tests.core.kubernetes.following import QUICK, counted_failures
from tests.waiting import wait_until_async

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Run a server with one pod for one test."""
    async with api_server() as server:
        server.pods.put(a_pod("train"))
        yield server


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """Return the token file of a service account."""
    (tmp_path / "token").write_text("token")
    return tmp_path / "token"


@asynccontextmanager
async def started(configure: Configure | None, *changed) -> AsyncIterator[Cluster]:
    """Follow while the body runs, once the start is over."""
    followed = Cluster(NODE, configure, *changed, pace=QUICK)
    await followed.start()
    try:
        yield followed
    finally:
        await followed.close()


async def test_pods_and_node_are_known_after_the_start(api: Api) -> None:
    api.nodes.objects["node"]["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "[]"}
    labels = []
    async with started(api.configure, labels.append) as found:
        assert found.pods.pods.keys() == {uid_of("train")}
        assert found.node == NodeObject(
            labels={"kubernetes.io/os": "linux"}, annotations={"hami.io/node-nvidia-register": "[]"}
        )
        assert labels == [{"kubernetes.io/os": "linux"}]
        assert found.failures == ()
        await wait_until_async(lambda: found.pods.live)


async def test_extended_resources_of_the_node_are_kept(api: Api) -> None:
    api.nodes.objects["node"]["status"] = {
        "capacity": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"},
        "allocatable": {"cpu": "15500m", "nvidia.com/gpu": "7"},
        "images": [{"names": ["a"], "sizeBytes": 1}],
    }
    async with started(api.configure) as found:
        assert found.node.capacity == {"nvidia.com/gpu": 8}
        assert found.node.allocatable == {"nvidia.com/gpu": 7}


async def test_without_access_nothing_is_known() -> None:
    async with started(None) as found:
        assert (found.pods, found.node, found.failures) == (None, None, ())


async def test_a_start_does_not_wait_for_an_api_server_that_is_away(api: Api, monkeypatch) -> None:
    monkeypatch.setattr(cluster, "FIRST_SECONDS", 0.05)
    api.nodes.refuse = api.pods.refuse = 500
    async with started(api.configure) as found:
        assert (found.pods, found.node) == (None, None)
        api.nodes.refuse = api.pods.refuse = 0
        await wait_until_async(lambda: found.pods is not None and found.node is not None)


async def test_a_start_does_not_wait_for_a_missing_right(api: Api, monkeypatch) -> None:
    """The labels are followed, and the failure names the remedy."""
    monkeypatch.setattr(cluster, "FIRST_SECONDS", 3600.0)
    api.pods.refuse = 403
    async with started(api.configure) as found:
        assert found.node is not None
        assert found.pods is None
        (failure,) = found.failures
        assert "let the service account list and watch pods: deploy/components/kubernetes-api" in failure


async def test_a_kubeconfig_leads_to_the_server(api: Api, tmp_path: Path) -> None:
    """Outside a cluster the well-known file names server and token, and is not written to."""
    path = api.kubeconfig(tmp_path / "config")
    before = path.read_bytes()
    async with started(access("auto", path)) as found:
        assert found.pods.pods.keys() == {uid_of("train")}

    assert set(api.tokens) == {"Bearer of-file"}
    assert path.read_bytes() == before


async def test_the_line_feed_after_a_token_is_no_part_of_it(api: Api, tmp_path: Path) -> None:
    """A kubeconfig may name a file with the token, which mostly ends in a line feed."""
    (tmp_path / "token").write_text("of-another-file\n")
    path = api.kubeconfig(tmp_path / "config")
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
    path.write_text(json.dumps(config))

    async with started(access("auto", path)) as found:
        assert found.failures == ()

    assert set(api.tokens) == {"Bearer of-another-file"}


async def test_a_kubeconfig_that_cannot_be_used_says_so(tmp_path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(cluster, "FIRST_SECONDS", 0.1)
    with counted_failures(monkeypatch) as failures:
        async with started(access("on", tmp_path / "none")) as found:
            await wait_until_async(lambda: len(found.failures) == 2 and len(failures) > 6)

    assert ["No such file" in record.message for record in caplog.records] == [True, True]


async def test_a_kubeconfig_that_is_a_pipe_is_not_opened(tmp_path: Path, monkeypatch) -> None:
    """Opening it would wait for a writer."""
    monkeypatch.setattr(cluster, "FIRST_SECONDS", 0.1)
    os.mkfifo(tmp_path / "config")
    async with started(access("on", tmp_path / "config")) as found:
        await wait_until_async(lambda: len(found.failures) == 2)
        assert "not a regular file" in found.failures[0]


async def test_a_credential_plugin_that_hangs_is_started_once_per_follower(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(cluster, "FIRST_SECONDS", 0.05)
    monkeypatch.setattr(follower, "LIST_SECONDS", 0.05)
    begun = tmp_path / "begun"
    begun.touch()
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\necho $$ >>{begun}\nexec sleep 60\n")
    program.chmod(0o755)
    asks = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(program),
        "interactiveMode": "Never",
    }
    config = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "it", "user": {"exec": asks}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    try:
        with counted_failures(monkeypatch) as failures:
            async with started(access("on", tmp_path / "config")):
                await wait_until_async(lambda: len(begun.read_text().split()) == 2)
                await wait_until_async(lambda: len(failures) > 6)
                assert len(begun.read_text().split()) == 2
                assert set(failures) == {"the API server does not answer in time"}
    finally:
        for pid in begun.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
            # The loop must see their end while it runs.
            await wait_until_async(lambda pid=pid: not Path("/proc", pid).exists())


async def test_the_client_is_imported_once_a_thread_can_be_started(api: Api, monkeypatch) -> None:
    """A pod may have reached its limit of threads for a moment."""
    monkeypatch.setattr(cluster, "THREAD_SECONDS", 0.05)
    refused = []

    def refuse(_thread: threading.Thread) -> None:
        refused.append(1)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        patched.setattr(cluster, "FIRST_SECONDS", 0.2)
        followed = Cluster(NODE, api.configure, pace=QUICK)
        await followed.start()
    assert refused
    await wait_until_async(lambda: followed.pods is not None)
    assert followed.failures == ()
    await followed.close()


async def test_outside_a_pod_each_follower_logs_that_once(caplog, monkeypatch) -> None:
    monkeypatch.setattr(cluster, "FIRST_SECONDS", 0.1)
    for name in IN_POD:
        monkeypatch.delenv(name, raising=False)
    with counted_failures(monkeypatch) as failures:
        async with started(access("on")) as found:
            await wait_until_async(lambda: len(found.failures) == 2 and len(failures) > 6)

    assert ["Service host/port is not set" in record.message for record in caplog.records] == [True, True]


def test_auto_needs_token_address_and_client_or_a_kubeconfig(token: Path, monkeypatch) -> None:
    assert access("auto", environ=IN_POD, token=token) is not None
    assert access("auto", environ=IN_POD, token=token.parent / "none") is None
    for name in IN_POD:
        assert access("auto", environ=IN_POD | {name: ""}, token=token) is None
    assert access("auto", Path("config"), environ={}, token=token.parent / "none") is not None
    assert access("on", environ={}, token=token.parent / "none") is not None
    assert access("off", Path("config"), environ=IN_POD, token=token) is None
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    assert access("auto", environ=IN_POD, token=token) is None


def _outcome(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_without_the_extra_one_line_says_what_to_install() -> None:
    done = _outcome(
        "import asyncio, sys\n"
        "sys.modules['kubernetes_asyncio'] = None\n"
        "from exporter.kubernetes import Cluster, access\n"
        "async def main():\n"
        "    cluster = Cluster('node', access('on'))\n"
        "    await cluster.start()\n"
        "    print(*cluster.failures)\n"
        "    await cluster.close()\n"
        "asyncio.run(main())\n"
    )

    assert done.stdout.count("install gpuslice-exporter[kubernetes]") == 1
    assert done.stderr.count("install gpuslice-exporter[kubernetes]") == 1


def test_the_client_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, exporter.poll.sources; print([name for name in sys.modules if 'kubernetes_' in name])"

    assert _outcome(code).stdout == "[]\n"
