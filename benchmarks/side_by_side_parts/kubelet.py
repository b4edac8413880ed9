"""The kubelet of the node, run as a process of its own: ``kubelet.py FOLDER FILE`` with its pods as JSON."""

import asyncio
import json
import sys
from pathlib import Path

from exporter.demo.kubelet.server import FakeKubelet, KubeletContainer, KubeletDevices, KubeletPod


async def serve(root: Path, told: list[dict[str, str]]) -> None:
    """Serve these pods below ``root`` until killed; a line is printed once the sockets are there."""
    kubelet = FakeKubelet(root, pods_api=True)
    kubelet.pods = tuple(map(_pod, told))
    kubelet.offered = tuple((pod["resource"], pod["device"]) for pod in told)
    await kubelet.start()
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def _pod(told: dict[str, str]) -> KubeletPod:
    devices = (KubeletDevices(told["resource"], (told["device"],), numa_nodes=(0,)),)
    container = KubeletContainer(name="main", devices=devices, container_id=told["container_id"])
    return KubeletPod(
        namespace=told["namespace"], name=told["name"], uid=told["uid"], containers=(container,)
    )


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())))
