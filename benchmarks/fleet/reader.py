"""A hub's part that reads the cluster, in a process of its own: ``python -m benchmarks.fleet.reader URL``.

Each line of input, as JSON, is answered by a line with the numbers of objects: ``{"do": "start"}`` lists all,
``{"do": "wait", "pods": N}`` waits until so many pods run, and ``{"do": "judge"}`` judges those that wait.
"""

import asyncio
import json
import sys
from typing import Any

from kubernetes_asyncio.client import Configuration

import exporter.fleet.commands  # noqa: F401 - the libraries of a hub are part of its memory
from exporter.kubernetes.whole_cluster import WholeCluster
from exporter.server_process import tune_malloc
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
            case {"do": "judge"}:
                objects = cluster.state().objects
                assert objects is not None  # noqa: S101 - they were waited for
                judge = Judge(objects)
                for pod in objects.waiting:
                    judge.judge(pod)
        _say(_known(cluster))
    await cluster.close()


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
