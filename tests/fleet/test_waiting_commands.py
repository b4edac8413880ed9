"""The commands ``why`` and ``waiting``, as a user runs them: with an API server, and what is said without."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from exporter.wording import TIMES
from tests.core.commands.program import run
from tests.core.kubernetes.api import NODE, Api, api_server
from tests.fleet.answering import Samples, answering, nodes, nothing

SLICE = "nvidia.com/mig-3g.40gb"


def a_pod(name: str, **status: Any) -> dict[str, Any]:
    """Return a pod that asks for a slice."""
    container = {"name": "main", "resources": {"requests": {SLICE: "1"}, "limits": {SLICE: "1"}}}
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [container], **({"nodeName": NODE} if not status else {})},
        "status": {"phase": "Pending", **status},
    }


UNSCHEDULABLE = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Run an API server with a node whose only slice a pod has, and a pod that waits."""
    async with api_server() as server:
        metadata = {"name": NODE, "uid": "node", "labels": {}}
        server.nodes.put({"metadata": metadata, "status": {"allocatable": {SLICE: "1", "pods": "9"}}})
        server.pods.put(a_pod("notebook"))
        server.pods.put(a_pod("train", **UNSCHEDULABLE))
        yield server


def idle(expression: str) -> Samples | str:
    """Return the answers of a Prometheus in which the pod on the node is idle."""
    if (known := nodes(expression, NODE)) is not None:
        return known
    if expression.startswith("min by (cluster, node, namespace, pod)"):
        return [({"node": NODE, "namespace": "ml", "pod": "notebook"}, 7200.0)]
    return []


async def called(api: Api, folder: Path, *words: str, answer: Any = idle) -> Any:
    """Return what a command printed, with a kubeconfig for the server and a Prometheus."""
    config = str(api.kubeconfig(folder / "config"))
    with answering(answer) as url:
        return await asyncio.to_thread(run, *words, "--kubeconfig", config, "--prometheus-url", url)


pytestmark = pytest.mark.slow


async def test_why_prints_the_answer_from_the_api_server_and_prometheus(api: Api, tmp_path: Path) -> None:
    done = await called(api, tmp_path, "why", "ml/train")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ml/train waits ")
    assert f"for 1 {TIMES} {SLICE}" in done.stdout
    assert f"scale down ml/notebook on {NODE}, idle for 2 h 0 min" in done.stdout


async def test_why_of_a_pod_that_does_not_wait_says_so_and_fails(api: Api, tmp_path: Path) -> None:
    done = await called(api, tmp_path, "why", "ml/notebook")

    assert done.returncode == 1
    assert done.stdout.startswith(f"ml/notebook does not wait: it is on node {NODE}.")


async def test_waiting_prints_all_pods_in_each_format(api: Api, tmp_path: Path) -> None:
    text = await called(api, tmp_path, "waiting")
    document = json.loads((await called(api, tmp_path, "waiting", "-o", "json")).stdout)
    (row,) = csv.DictReader(io.StringIO((await called(api, tmp_path, "waiting", "-o", "csv")).stdout))

    assert "ml/train" in text.stdout
    assert [each["pod"] for each in document["pods"]] == ["train"]
    assert (row["pod"], row["nearest_kind"]) == ("train", "idle")


async def test_an_api_server_that_refuses_is_said_and_is_not_no_pods(api: Api, tmp_path: Path) -> None:
    api.pods.refuse = 403

    done = await called(api, tmp_path, "waiting", answer=nothing)

    assert done.returncode == 1
    assert "The pods of the cluster are not known." in done.stdout
    assert "HTTP" in done.stdout or "403" in done.stdout


async def test_without_any_source_the_options_are_named(tmp_path: Path) -> None:
    done = await asyncio.to_thread(run, "why", "ml/train", HOME=str(tmp_path))

    assert done.returncode == 2
    assert "--kubeconfig" in done.stderr
