"""The kubelet of the node: ``python -m benchmarks.side_by_side.kubelet FOLDER``, with its pods as input."""

import asyncio
import json
import sys
from pathlib import Path

from exporter.demo.fake_kubelet import FakeKubelet, KubeletContainer, KubeletDevices, KubeletPod


async def serve(root: Path, pods: list[dict[str, str]]) -> None:
    """Serve these pods below ``root`` until killed; a line is printed once the sockets exist."""
    kubelet = FakeKubelet(root, pods_api=True)
    kubelet.pods = tuple(map(_pod, pods))
    kubelet.offered = tuple((pod["resource"], pod["device"]) for pod in pods)
    await kubelet.start()
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def _pod(pod: dict[str, str]) -> KubeletPod:
    devices = (KubeletDevices(pod["resource"], (pod["device"],), numa_nodes=(0,)),)
    container = KubeletContainer(name="main", devices=devices, container_id=pod["container_id"])
    return KubeletPod(namespace=pod["namespace"], name=pod["name"], uid=pod["uid"], containers=(container,))


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), json.loads(sys.stdin.readline())))
