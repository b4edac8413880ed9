"""The simulated parts of a node, in a process of their own: ``python -m benchmarks.fake_node HOW WHERE``.

``node NAME`` serves the kubelet and the files of a node, without its driver; its first line of output is
JSON: the environment that points the exporter at it. It ends with its input. ``kubelet FOLDER`` serves a
kubelet alone until killed; its input is a line of JSON with the pods, and it prints a line once it serves.
"""

import asyncio
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.bench import say
from benchmarks.nodes import load
from exporter.demo.fake_kubelet import FakeKubelet
from exporter.demo.node import FakeNode
from exporter.demo.scenario.pods import Container, Pod


async def _node(name: str) -> None:
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, end.set)
    loop.add_reader(sys.stdin, end.set)
    async with FakeNode(load(name), clock=lambda: 0.0) as node:
        variables = {f"GPUSLICE_{field.upper()}": str(path) for field, path in asdict(node.paths).items()}
        variables |= {
            "NODE_NAME": node.name,
            "GPUSLICE_LOG_LEVEL": "warning",
            "GPUSLICE_KUBERNETES_API": "off",
        }
        say(variables)
        await end.wait()


async def _kubelet(folder: str) -> None:
    pods = json.loads(sys.stdin.readline())
    kubelet = FakeKubelet(Path(folder), pods_api=True)
    kubelet.pods = tuple(map(_listed, pods))
    kubelet.offered = tuple((pod["resource"], pod["device"]) for pod in pods)
    await kubelet.start()
    say({})
    await asyncio.Event().wait()


def _listed(pod: dict[str, str]) -> Pod:
    devices = {pod["resource"]: (pod["device"],)}
    container = Container(name="main", devices=devices, container_id=pod["container_id"])
    return Pod(namespace=pod["namespace"], name=pod["name"], uid=pod["uid"], containers=(container,))


if __name__ == "__main__":
    asyncio.run({"node": _node, "kubelet": _kubelet}[sys.argv[1]](sys.argv[2]))
