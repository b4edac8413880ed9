"""A hub's part that reads the cluster, in a process of its own: ``python -m benchmarks.fleet.reader URL``.

Each line of input, as JSON, is answered by a line with the numbers of objects: ``{"do": "start"}`` lists all,
``{"do": "wait", "pods": N}`` waits until so many pods run, and ``{"do": "judge", "alike": …}`` judges those
that wait: as they are, or each with other requests, tolerations and labels.
"""

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

from kubernetes_asyncio.client import Configuration

import exporter.fleet.commands  # noqa: F401 - the libraries of a hub are part of its memory
from exporter.kubernetes.whole_cluster import WholeCluster
from exporter.server_process import tune_malloc
from exporter.waiting.objects import Toleration, WaitingPod
from exporter.waiting.verdict import Judge

_LOOK_SECONDS = 0.05


async def main(url: str) -> None:
    """Answer until the input ends."""
    tune_malloc()

    async def configure() -> Configuration:
        configuration = Configuration()
        configuration.host = url
        return configuration

    cluster = WholeCluster(configure)
    _say({})
    while line := await asyncio.to_thread(sys.stdin.readline):
        match json.loads(line):
            case {"do": "start"}:
                await cluster.start()
                await cluster.tried(600)
            case {"do": "wait", "pods": int(pods)}:
                while _known(cluster).get("placed") != pods:  # noqa: ASYNC110 - this is the program of a test
                    await asyncio.sleep(_LOOK_SECONDS)
            case {"do": "judge", "alike": bool(alike)}:
                _judge(cluster, alike=alike)
        _say(_known(cluster))
    await cluster.close()


def _judge(cluster: WholeCluster, *, alike: bool) -> None:
    objects = cluster.state().objects
    assert objects is not None  # noqa: S101 - they were waited for
    judge = Judge(objects)
    for number, pod in enumerate(objects.waiting):
        judge.judge(pod if alike else _different(pod, number))


def _different(pod: WaitingPod, number: int) -> WaitingPod:
    """Return a pod that no other one is alike."""
    requests = {name: amount + number * (name in {"cpu", "memory"}) for name, amount in pod.requests.items()}
    toleration = Toleration(f"key-{number}", "Exists", "", "")
    return replace(pod, requests=requests, tolerations=(toleration,), labels={"app": f"train-{number}"})


def _known(cluster: WholeCluster) -> dict[str, Any]:
    state = cluster.state()
    if state.objects is None:
        return {"failures": state.failures}
    kinds = {"nodes": state.objects.nodes, "placed": state.objects.placed, "waiting": state.objects.waiting}
    return {name: len(each) for name, each in kinds.items()} | {"failures": state.failures}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
