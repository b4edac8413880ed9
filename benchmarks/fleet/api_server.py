"""An API server with the objects of a large cluster, which exist as text only while they are sent.

``python -m benchmarks.fleet.api_server NODES PODS_PER_NODE WAITING``; the first line of output is the port.
Then each line of input, as JSON, is answered by a line with the number of lists of pods so far:
``{"do": "expire"}`` lets the server forget the changes since the lists, and ends all watches, and
``{"do": "change", "pods": N}`` sends so many changes of pods. Both wait until there is a watch.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web

Maker = Callable[[int], bytes]
_NAME, _NODE, _PHASE = b"NAME-OF-IT", b"NODE-OF-IT", b"PHASE-OF-IT"
_ENVIRONMENT = [{"name": f"SETTING_{number}", "value": "some text of usual length"} for number in range(20)]
_FIELDS: dict[str, Any] = {f"f:part{number}": {".": {}, "f:name": {}, "f:value": {}} for number in range(40)}


def _metadata(**more: Any) -> dict[str, Any]:
    return {
        "name": _NAME.decode(),
        "uid": f"uid-of-{_NAME.decode()}",
        "resourceVersion": "1000",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": _FIELDS}],
        **more,
    }


def _pod(*, waits: bool) -> dict[str, Any]:
    waiting = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/5000 nodes",
    }
    requests = {"cpu": "500m", "memory": "2Gi"} | ({"nvidia.com/mig-3g.40gb": "1"} if waits else {})
    return {
        "metadata": _metadata(namespace="team-7", labels={"app": "train", "pod-template-hash": "5d9c7b"}),
        "spec": {
            **({} if waits else {"nodeName": _NODE.decode()}),
            "containers": [
                {
                    "name": name,
                    "image": "registry.example.com/team/train:1.2.3",
                    "env": _ENVIRONMENT,
                    "resources": {"requests": requests, "limits": requests},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
                for name in ("main", "sidecar")
            ],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
        "status": {
            "phase": "Pending" if waits else _PHASE.decode(),
            "conditions": [waiting] if waits else [{"type": "Ready", "status": "True"}] * 4,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{'a' * 64}"}] * 2,
        },
    }


def _node() -> dict[str, Any]:
    labels = {f"feature.node.kubernetes.io/cpu-flag-{number}": "true" for number in range(60)}
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/mig-3g.40gb": "2"}
    images = [{"names": [f"registry.example.com/image-{number}@sha256:{'b' * 64}"]} for number in range(50)]
    return {
        "metadata": _metadata(labels=labels | {"kubernetes.io/hostname": _NAME.decode()}),
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": amounts, "capacity": amounts, "images": images},
    }


class Cluster:
    """The lists and the watches of its kinds."""

    def __init__(self, nodes: int, pods_per_node: int, waiting: int) -> None:
        placed, waits, node = (
            json.dumps(each, separators=(",", ":")).encode()
            for each in (_pod(waits=False), _pod(waits=True), _node())
        )
        running = nodes * pods_per_node

        def make_pod(number: int, phase: bytes = b"Running") -> bytes:
            text = waits if number >= running else placed
            text = text.replace(_NODE, b"gpu-node-%05d" % (number % nodes)).replace(_PHASE, phase)
            return text.replace(_NAME, b"train-%07d" % number)

        self.make_pod = make_pod
        self.kinds: dict[str, tuple[int, Maker]] = {
            "pods": (running + waiting, make_pod),
            "nodes": (nodes, lambda number: node.replace(_NAME, b"gpu-node-%05d" % number)),
        }
        self._watches: dict[str, asyncio.Queue[bytes | None]] = {}
        self._watched = asyncio.Event()
        self.lists = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch of pods or nodes; other kinds do not exist."""
        kind = request.path.rpartition("/")[2]
        if kind not in self.kinds:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        if "watch" in request.query:
            return await self._watch(request, kind)
        count, make = self.kinds[kind]
        begin = int(request.query.get("continue") or 0)
        end = min(begin + int(request.query["limit"]), count)
        self.lists += kind == "pods" and end == count
        rest = f',"continue":"{end}"' if end < count else ""
        items = b",".join(map(make, range(begin, end)))
        text = f'{{"kind":"List","metadata":{{"resourceVersion":"1000"{rest}}},"items":['
        return web.Response(body=text.encode() + items + b"]}", content_type="application/json")

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        events = self._watches[kind] = asyncio.Queue()
        if len(self._watches) == len(self.kinds):
            self._watched.set()
        while (event := await events.get()) is not None:
            await answer.write(event)
        return answer

    async def expire(self) -> None:
        """Forget what has changed since the lists, which ends the watches."""
        await self._watched.wait()
        self._watched.clear()
        error = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
        for events in self._watches.values():
            events.put_nowait(json.dumps(error).encode() + b"\n")
            events.put_nowait(None)
        self._watches.clear()

    async def change(self, pods: int) -> None:
        """Send changes of the first pods: the last one has ended, and leaves the list."""
        await self._watched.wait()
        for event in self._changes(pods):
            self._watches["pods"].put_nowait(event)

    def _changes(self, pods: int) -> Iterator[bytes]:
        for number in range(pods):
            kind = b"DELETED" if number == pods - 1 else b"MODIFIED"
            yield b'{"type":"%s","object":%s}\n' % (kind, self.make_pod(number, b"Pending"))


async def main(nodes: int, pods_per_node: int, waiting: int) -> None:
    """Serve until the input ends."""
    cluster = Cluster(nodes, pods_per_node, waiting)
    app = web.Application()
    app.router.add_get("/{path:.*}", cluster.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _say(runner.addresses[0][1])
    while line := await asyncio.to_thread(sys.stdin.readline):
        match json.loads(line):
            case {"do": "expire"}:
                await cluster.expire()
            case {"do": "change", "pods": int(pods)}:
                await cluster.change(pods)
        _say(cluster.lists)
    await runner.cleanup()


def _say(answer: int) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
