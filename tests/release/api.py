"""An API server as far as one node's metadata goes: it lists and watches, over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from kubernetes_asyncio.client import Configuration

NODE = "gpu-node-07"
PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"


class Api:
    """The server. A test changes ``labels`` by ``label``, and sets what the server refuses or forgets.

    ``silent`` lets everything wait, ``refuse`` answers everything, ``refuse_watch`` only watches, by a
    status; ``expired`` answers the next watch with an error event, as a server does that has forgotten what
    changed since. ``asked`` are the queries so far, ``tokens`` what came as Authorization.
    """

    def __init__(self) -> None:
        self.labels: dict[str, str] | None = {"kubernetes.io/os": "linux"}
        self.silent = False
        self.refuse = 0
        self.refuse_watch = 0
        self.expired = False
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.watching = asyncio.Event()
        self._version = 100
        self._streams: list[asyncio.Queue[dict[str, Any] | None]] = []
        self._runner: web.AppRunner | None = None
        self._port = 0

    def configure(self) -> Configuration:
        """Make the configuration of a client of this server."""
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{self._port}"
        return configuration

    def label(self, **labels: str) -> None:
        """Replace the node's labels, and tell the watches; in names, two underlines stand for a slash."""
        self._version += 1
        self.labels = {name.replace("__", "/").replace("_", "."): text for name, text in labels.items()}
        self._send("MODIFIED", self._node())

    def delete(self) -> None:
        """Delete the node, and tell the watches."""
        self._version += 1
        gone = self._node()
        self.labels = None
        self._send("DELETED", gone)

    def bookmark(self) -> None:
        """Tell the watches how far they are."""
        self._version += 1
        self._send("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})

    def end_watches(self) -> None:
        """End all watches in good order, as a server does after the time that was asked for."""
        for stream in self._streams:
            stream.put_nowait(None)

    async def start(self) -> None:
        """Listen, on the port of the last time if there was one."""
        app = web.Application()
        app.router.add_get("/api/v1/nodes", self._nodes)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the listener and every connection."""
        self.watching.clear()
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    def _node(self) -> dict[str, Any]:
        metadata = {"name": NODE, "resourceVersion": str(self._version), "labels": self.labels}
        return {"kind": "PartialObjectMetadata", "metadata": metadata}

    def _send(self, kind: str, about: dict[str, Any]) -> None:
        for stream in self._streams:
            stream.put_nowait({"type": kind, "object": about})

    async def _nodes(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        self.tokens.append(request.headers.get("Authorization", ""))
        watch = "watch" in request.query
        if self.silent:
            await asyncio.Event().wait()
        status = self.refuse or (self.refuse_watch if watch else 0)
        if status:
            return web.json_response({"kind": "Status", "code": status}, status=status)
        if request.headers["Accept"] != PARTIAL.format("" if watch else "List"):
            return web.Response(status=406)
        return await self._watch(request) if watch else self._list()

    def _list(self) -> web.Response:
        items = [] if self.labels is None else [self._node()]
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        if self.expired:
            self.expired = False
            error = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
            await answer.write(json.dumps(error).encode() + b"\n")
            return answer
        stream: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._streams.append(stream)
        self.watching.set()
        try:
            while (event := await stream.get()) is not None:
                await answer.write(json.dumps(event).encode() + b"\n")
        finally:
            self._streams.remove(stream)
            self.watching.clear()
        return answer


@asynccontextmanager
async def api_server() -> AsyncIterator[Api]:
    """Run a server."""
    api = Api()
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
