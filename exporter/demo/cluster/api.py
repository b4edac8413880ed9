"""A Kubernetes API in software, with the objects that scheduling depends on: lists and watches over HTTP.

Lists come in pages, a watch begins after the version that it names, and old versions have expired.
Format: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, Final

from aiohttp import web

DRA: Final = ("resourceclaims", "resourceslices", "deviceclasses", "devicetaintrules")
HOST: Final = "127.0.0.1"
# Events that a watch can begin before.
KEPT_EVENTS: Final = 1000


class Collection:
    """The objects of one kind, by uid, and their watches; ``versions`` are those of the next changes."""

    def __init__(self, versions: Iterator[int]) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self._versions = versions
        self._version = next(versions)
        self._events: deque[tuple[int, bytes]] = deque(maxlen=KEPT_EVENTS)
        self._expired = 0  # the newest version of which no event is kept
        self._streams: list[asyncio.Queue[bytes | None]] = []

    def put(self, about: Mapping[str, Any]) -> None:
        """Add or replace an object, and notify the watches."""
        uid = about["metadata"]["uid"]
        kind = "MODIFIED" if uid in self.objects else "ADDED"
        self.objects[uid] = self._changed(kind, about)

    def delete(self, uid: str) -> None:
        """Delete an object, and notify the watches."""
        self._changed("DELETED", self.objects.pop(uid))

    def replace(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        """Make these the objects, by uid; those that stay as they are have no event."""
        for uid in [uid for uid in self.objects if uid not in wanted]:
            self.delete(uid)
        for uid, about in wanted.items():
            known = self.objects.get(uid)
            if known is None or known != _with_version(about, known["metadata"]["resourceVersion"]):
                self.put(about)

    def bookmark(self) -> None:
        """Send the watches a bookmark, which says that they have missed nothing."""
        self._version = next(self._versions)
        self.send("BOOKMARK", {"metadata": {"resourceVersion": str(self._version)}})

    def send(self, kind: str, about: Any) -> None:
        """Send the watches an event."""
        self.send_bytes(_event(kind, about))

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
        if "watch" in request.query:
            answer = web.StreamResponse(headers={"Content-Type": "application/json"})
            # A client that leaves is no error.
            with suppress(ConnectionError):
                await answer.prepare(request)
                await self._watch(request, answer)
            return answer
        return self._list(int(request.query.get("limit", 0)), request.query.get("continue", ""))

    def _changed(self, kind: str, about: Mapping[str, Any]) -> dict[str, Any]:
        """Give an object the next version, keep the event and notify the watches; return the object."""
        self._version = next(self._versions)
        if len(self._events) == KEPT_EVENTS:
            self._expired = self._events[0][0]
        versioned = _with_version(about, str(self._version))
        self._events.append((self._version, _event(kind, versioned)))
        self.send_bytes(self._events[-1][1])
        return versioned

    def _list(self, limit: int, rest: str) -> web.Response:
        """Answer a list, or the page of one that begins after so many objects."""
        begin, items = int(rest or 0), list(self.objects.values())
        end = begin + limit if limit else len(items)
        metadata = {"resourceVersion": str(self._version)}
        if end < len(items):
            metadata["continue"] = str(end)
        return web.json_response({"metadata": metadata, "items": items[begin:end]})

    async def _watch(self, request: web.Request, answer: web.StreamResponse) -> None:
        since = int(request.query.get("resourceVersion") or self._version)
        if since < self._expired:
            await answer.write(_event("ERROR", status(HTTPStatus.GONE, "Expired")))
            return
        stream: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, event in self._events:
            if version > since:
                stream.put_nowait(event)
        self._streams.append(stream)
        seconds = float(request.query.get("timeoutSeconds") or "inf")
        try:
            await self._stream(stream, answer, None if seconds == float("inf") else seconds)
        finally:
            self._streams.remove(stream)

    async def _stream(
        self, stream: asyncio.Queue[bytes | None], answer: web.StreamResponse, seconds: float | None
    ) -> None:
        """Send what comes, for so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (sent := await stream.get()) is not None:
                    await answer.write(sent)


class FakeApi:
    """The server. ``versions`` are those in which it has the kinds of ``dra``, () if it has no such group."""

    def __init__(self) -> None:
        versions = count(100)
        self.nodes = Collection(versions)
        self.pods = Collection(versions)
        self.dra: Mapping[str, Collection] = {name: Collection(versions) for name in DRA}
        self.versions: tuple[str, ...] = ("v1",)
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://{HOST}:{self._port}"

    @property
    def collections(self) -> tuple[Collection, ...]:
        """All kinds."""
        return (self.nodes, self.pods, *self.dra.values())

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

    async def start(self) -> None:
        """Listen, on the port of the last time if there was one."""
        app = web.Application(middlewares=self.middlewares())
        app.router.add_get("/api/v1/nodes", self._answer)
        app.router.add_get("/api/v1/pods", self._answer)
        app.router.add_get("/apis/resource.k8s.io", self._answer_group)
        app.router.add_get("/apis/resource.k8s.io/{version}/{kind}", self._answer_dra)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self._port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the listener and every connection."""
        for collection in self.collections:
            collection.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    def middlewares(self) -> list[Any]:
        """Return what each request goes through first."""
        return []

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Answer about nodes or pods."""
        return await (self.nodes if request.path.endswith("nodes") else self.pods).answer(request)

    async def _answer_dra(self, request: web.Request) -> web.StreamResponse:
        collection = self.dra.get(request.match_info["kind"])
        if collection is None or request.match_info["version"] not in self.versions:
            return refusal(HTTPStatus.NOT_FOUND)
        return await collection.answer(request)

    async def _answer_group(self, _: web.Request) -> web.StreamResponse:
        if not self.versions:
            return refusal(HTTPStatus.NOT_FOUND)
        return web.json_response({"versions": [{"version": version} for version in self.versions]})


def status(code: int, reason: str = "") -> dict[str, Any]:
    """Return the object by which the API says that something was refused."""
    return {"kind": "Status", "code": int(code), **({"reason": reason} if reason else {})}


def refusal(code: int, reason: str = "") -> web.Response:
    """Return an answer that refuses a request."""
    return web.json_response(status(code, reason), status=int(code))


def _event(kind: str, about: Any) -> bytes:
    return json.dumps({"type": kind, "object": about}).encode() + b"\n"


def _with_version(about: Mapping[str, Any], version: str) -> dict[str, Any]:
    return dict(about) | {"metadata": about["metadata"] | {"resourceVersion": version}}
