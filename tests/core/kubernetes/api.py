"""The simulated API server, of which a test chooses what it refuses, forgets or never answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from aiohttp import web
from kubernetes_asyncio.client import Configuration

from exporter.demo.cluster.api import DRA, Collection, FakeApi, refusal, status

NODE = "gpu-node-07"


class Kept(Collection):
    """One collection. A test puts objects in, and sets what is refused, forgotten or never answered.

    ``silent`` lets everything wait, ``refuse`` answers everything, ``refuse_watch`` only watches, by a
    status; ``expired`` answers the next watch with an error event, as a server does that has forgotten what
    changed since, and ``expired_pages`` so many further pages of lists. ``asked`` are the queries so far;
    ``garbage`` is what comes instead of a list.
    """

    def __init__(self, versions: Iterator[int]) -> None:
        super().__init__(versions)
        self.silent = False
        self.refuse = 0
        self.refuse_watch = 0
        self.expired = False
        self.expired_pages = 0
        self.garbage: bytes | None = None
        self.asked: list[dict[str, str]] = []
        self.watching = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch."""
        self.asked.append(dict(request.query))
        watch = "watch" in request.query
        if self.silent:
            await asyncio.Event().wait()
        if refused := self.refuse or (self.refuse_watch if watch else 0):
            return refusal(refused)
        if request.headers["Accept"] != "application/json":
            return web.Response(status=406)
        if self.garbage is not None and not watch:
            return web.Response(body=self.garbage, content_type="application/json")
        if self.expired_pages and request.query.get("continue"):
            self.expired_pages -= 1
            return refusal(410, "Expired")
        return await super().answer(request)

    async def _watch(self, request: web.Request, answer: web.StreamResponse) -> None:
        if self.expired:
            self.expired = False
            error = {"type": "ERROR", "object": status(410, "Expired")}
            await answer.write(json.dumps(error).encode() + b"\n")
        else:
            await super()._watch(request, answer)

    async def _stream(self, *arguments: Any) -> None:
        self.watching.set()
        try:
            await super()._stream(*arguments)
        finally:
            self.watching.clear()


class Api(FakeApi):
    """The server, with one node in it; ``tokens`` are what came as Authorization.

    ``refuse_group`` answers the question for the versions of DRA by a status.
    """

    nodes: Kept
    pods: Kept
    dra: dict[str, Kept]

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.pods = Kept(count(100)), Kept(count(5000))
        self.dra = {name: Kept(count(9000)) for name in DRA}
        self.refuse_group = 0
        self.tokens: list[str] = []
        self.nodes.objects["node"] = _node({"kubernetes.io/os": "linux"}, "100")

    async def configure(self) -> Configuration:
        """Return the configuration of a client of this server."""
        configuration = Configuration()
        configuration.host = self.url
        return configuration

    def label(self, **labels: str) -> None:
        """Replace the node's labels, and notify the watches; in names, two underlines stand for a slash."""
        self.nodes.put(
            _node({name.replace("__", "/").replace("_", "."): text for name, text in labels.items()})
        )

    async def stop(self) -> None:
        """Close the listener and every connection."""
        for kept in (self.nodes, self.pods, *self.dra.values()):
            kept.watching.clear()
        await super().stop()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        return await super()._answer(request)

    async def _answer_dra(self, request: web.Request) -> web.StreamResponse:
        kept = self.dra.get(request.match_info["kind"])
        if kept is not None and kept.refuse:
            # Rights are by group and kind, whether there are any such or not.
            return await kept.answer(request)
        return await super()._answer_dra(request)

    async def _answer_group(self, request: web.Request) -> web.StreamResponse:
        return refusal(self.refuse_group) if self.refuse_group else await super()._answer_group(request)


def _node(labels: dict[str, str], version: str = "") -> dict[str, Any]:
    metadata = {"name": NODE, "uid": "node", "resourceVersion": version, "labels": labels}
    return {"kind": "Node", "metadata": metadata}


def a_pod(name: str, uid: str = "", **metadata: Any) -> dict[str, Any]:
    """Return a pod of one running container; its uid is derived from its name."""
    uid = uid or uid_of(name)
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": uid, **metadata},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{uid[-1] * 64}"}],
        },
    }


def uid_of(name: str) -> str:
    """Return a uid derived from a name."""
    return f"00000000-0000-0000-0000-{sum(map(ord, name)):012x}"


@asynccontextmanager
async def api_server() -> AsyncIterator[Api]:
    """Run a server."""
    api = Api()
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
