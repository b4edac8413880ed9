"""An API server as far as the objects go that scheduling depends on: it lists and watches, over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import web
from kubernetes_asyncio.client import Configuration

NODE = "gpu-node-07"
DRA = ("resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules")


class Kept:
    """One collection. A test puts objects in, and sets what is refused, forgotten or never answered.

    ``silent`` lets everything wait, ``refuse`` answers everything, ``refuse_watch`` only watches, by a
    status; ``expired`` answers the next watch with an error event, as a server does that has forgotten what
    changed since, and ``expired_pages`` so many further pages of lists. ``asked`` are the queries so far;
    ``accepts`` what must come as Accept, by a format. ``garbage`` is what comes instead of a list.
    """

    def __init__(self, versions: Iterator[int], accepts: str) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.silent = False
        self.refuse = 0
        self.refuse_watch = 0
        self.expired = False
        self.expired_pages = 0
        self.garbage: bytes | None = None
        self.asked: list[dict[str, str]] = []
        self.watching = asyncio.Event()
        self._accepts = accepts
        self._versions = versions
        self._version = next(versions)
        self._streams: list[asyncio.Queue[bytes | None]] = []

    def put(self, about: dict[str, Any]) -> None:
        """Add or replace an object, by its uid, and notify the watches."""
        self._version = next(self._versions)
        metadata = about["metadata"] | {"resourceVersion": str(self._version)}
        kind = "MODIFIED" if metadata["uid"] in self.objects else "ADDED"
        self.objects[metadata["uid"]] = about | {"metadata": metadata}
        self.send(kind, self.objects[metadata["uid"]])

    def delete(self, uid: str) -> None:
        """Delete an object, and notify the watches."""
        self._version = next(self._versions)
        gone = self.objects.pop(uid)
        self.send("DELETED", gone | {"metadata": gone["metadata"] | {"resourceVersion": str(self._version)}})

    def bookmark(self) -> None:
        """Send the watches a bookmark."""
        self._version = next(self._versions)
        self.send("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})

    def send(self, kind: str, about: Any) -> None:
        """Send the watches an event."""
        self.send_bytes(json.dumps({"type": kind, "object": about}).encode() + b"\n")

    def send_bytes(self, sent: bytes) -> None:
        """Send the watches these bytes."""
        for stream in self._streams:
            stream.put_nowait(sent)

    def end_watches(self) -> None:
        """End all watches in good order, as a server does after the time that was asked for."""
        for stream in self._streams:
            stream.put_nowait(None)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch."""
        self.asked.append(dict(request.query))
        watch = "watch" in request.query
        if self.silent:
            await asyncio.Event().wait()
        status = self.refuse or (self.refuse_watch if watch else 0)
        if status:
            return web.json_response({"kind": "Status", "code": status}, status=status)
        if request.headers["Accept"] != self._accepts.format("" if watch else "List"):
            return web.Response(status=406)
        if watch:
            return await self._watch(request)
        if self.garbage is not None:
            return web.Response(body=self.garbage, content_type="application/json")
        return self._list(int(request.query.get("limit", 0)), request.query.get("continue", ""))

    def _list(self, limit: int, rest: str) -> web.Response:
        """Answer a list, or the page of one that begins after so many objects."""
        if rest and self.expired_pages:
            self.expired_pages -= 1
            return web.json_response({"kind": "Status", "code": 410, "reason": "Expired"}, status=410)
        begin, items = int(rest or 0), list(self.objects.values())
        end = begin + limit if limit else len(items)
        metadata = {"resourceVersion": str(self._version)}
        if end < len(items):
            metadata["continue"] = str(end)
        return web.json_response({"metadata": metadata, "items": items[begin:end]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if self.expired:
            self.expired = False
            error = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
            await answer.write(json.dumps(error).encode() + b"\n")
            return answer
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams.append(stream)
        self.watching.set()
        try:
            while (sent := await stream.get()) is not None:
                await answer.write(sent)
        finally:
            self._streams.remove(stream)
            self.watching.clear()
        return answer


class Api:
    """The server, with one node in it; ``tokens`` are what came as Authorization.

    ``versions`` are those in which it has the kinds of ``dra``; without any it does not have that group.
    ``refuse_group`` answers the question for these versions by a status.
    """

    def __init__(self) -> None:
        self.nodes = Kept(count(100), "application/json")
        self.pods = Kept(count(5000), "application/json")
        self.dra = {name: Kept(count(9000), "application/json") for name in DRA}
        self.versions: tuple[str, ...] = ("v1",)
        self.refuse_group = 0
        self.tokens: list[str] = []
        self._runner: web.AppRunner | None = None
        self._port = 0
        self.nodes.objects["node"] = _node({"kubernetes.io/os": "linux"}, "100")

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._port}"

    async def configure(self) -> Configuration:
        """Return the configuration of a client of this server."""
        configuration = Configuration()
        configuration.host = self.url
        return configuration

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server, and return its path."""
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "this", "user": "me"}}],
            "clusters": [{"name": "this", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": "of-file"}}],
        }
        path.write_text(json.dumps(config))
        return path

    def label(self, **labels: str) -> None:
        """Replace the node's labels, and notify the watches; in names, two underlines stand for a slash."""
        self.nodes.put(
            _node({name.replace("__", "/").replace("_", "."): text for name, text in labels.items()})
        )

    def middlewares(self) -> list[Any]:
        """Return what each request goes through first."""
        return []

    async def start(self) -> None:
        """Listen, on the port of the last time if there was one."""
        app = web.Application(middlewares=self.middlewares())
        app.router.add_get("/api/v1/nodes", self._answer)
        app.router.add_get("/api/v1/pods", self._answer)
        app.router.add_get("/apis/resource.k8s.io", self._group)
        app.router.add_get("/apis/resource.k8s.io/{version}/{kind}", self._answer_dra)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the listener and every connection."""
        for kept in (self.nodes, self.pods, *self.dra.values()):
            kept.watching.clear()
            kept.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        return await (self.nodes if request.path.endswith("nodes") else self.pods).answer(request)

    async def _answer_dra(self, request: web.Request) -> web.StreamResponse:
        kept = self.dra.get(request.match_info["kind"])
        if kept is not None and kept.refuse:
            # Rights are by group and kind, whether there are any such or not.
            return await kept.answer(request)
        if kept is None or request.match_info["version"] not in self.versions:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        return await kept.answer(request)

    async def _group(self, _: web.Request) -> web.Response:
        if status := self.refuse_group or (0 if self.versions else 404):
            return web.json_response({"kind": "Status", "code": status}, status=status)
        return web.json_response({"versions": [{"version": version} for version in self.versions]})


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
