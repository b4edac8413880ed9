"""The routes of what was: history for programs, and figures for the timelines of the pages."""

import asyncio
import json
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from itertools import chain, repeat
from typing import Any

from aiohttp import web

from exporter.concurrency import in_thread
from exporter.history import NotKeptError, Past, Track, Wanted
from exporter.metrics import LEVEL_LABELS
from exporter.model import Snapshot
from exporter.web.http.responses import reply
from exporter.web.pages.render_queue import RenderQueue, SharedTask
from exporter.web.site import Site
from exporter.web.timelines.query import BadValueError, asked_span, read_ask

MOST_BYTES = 16 << 20
MOST_THINGS = 64


class Kept:
    """Bodies by what was asked, at most so many and so large altogether; the oldest go first.

    They are made in turns, and those who ask for one meanwhile wait for it.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, SharedTask[bytes]] = OrderedDict()
        self._turns = RenderQueue()

    async def get(self, key: Hashable, seconds: float, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Give what was made for this key within the last ``seconds``, or make it.

        Answers 503 where too much waits to be made.
        """
        work = self._made.get(key)
        if work is None:
            self._turns.refuse_where_full()
            work = SharedTask(make, lambda failed: self._drop(key, failed), self._turns)
            self._made[key] = work
            work.task.add_done_callback(lambda _: self._done(key, work, seconds))
            self._bound()
        return await work.wait()

    def _done(self, key: Hashable, work: SharedTask[bytes], seconds: float) -> None:
        if self._made.get(key) is work:
            self._bound()
            # The timer must not hold on to what has had to make room.
            asyncio.get_running_loop().call_later(seconds, self._expire, key, weakref.ref(work))

    def _expire(self, key: Hashable, made: "weakref.ref[SharedTask[bytes]]") -> None:
        work = made()
        if work is not None:
            self._drop(key, work)

    def _drop(self, key: Hashable, work: SharedTask[bytes]) -> None:
        if self._made.get(key) is work:
            del self._made[key]

    def _bound(self) -> None:
        sizes = {key: _size(work.task) for key, work in self._made.items()}
        total = sum(sizes.values())
        while len(self._made) > MOST_THINGS or total > MOST_BYTES:
            key, _ = self._made.popitem(last=False)
            total -= sizes[key]


def _size(task: "asyncio.Task[bytes]") -> int:
    done = task.done() and not task.cancelled() and task.exception() is None
    return len(task.result()) if done else 0


FIGURE_POINTS = 120
_HISTORY_SECONDS = 1.0
_FIGURE_SECONDS = 10.0
_JSON = "application/json; charset=utf-8"
# Digits after the point, by how the name of a field ends: a cell of memory has seven digits in all.
_DIGITS: Mapping[str, int | None] = {"bytes": None, "ratio": 6}
_STACKED = frozenset({"container", "gpu"})


def routes(site: Site) -> list[web.RouteDef]:
    """List the routes of the past."""
    past = _Past(site)
    site.pages.looks_back(site.spans, site.sparkline)
    return [
        web.get("/api/v1/history", past.history),
        web.get("/figures/node", past.node),
        web.get("/figures/gpu/{uuid}", past.gpu),
        web.get("/figures/holder/{namespace}/{pod}/{container:[^/]*}", past.holder),
    ]


class _Past:
    def __init__(self, site: Site) -> None:
        self._reader = site.past
        self._pages = site.pages
        self._kept = Kept()

    async def history(self, request: web.Request) -> web.Response:
        """Answer with the past as columns, one number or null for each step.

        ``{"start", "end", "step", "count", "source", "note", "series": [...]}``: ``count`` steps of ``step``
        seconds from Unix time ``start`` to ``end``, of which the last need not be over. ``source`` is
        ``memory`` or ``prometheus``; ``note`` is what a reader should know, "" where there is nothing. Each
        series has its ``level``, the labels of this level (null where it has none), and a list of ``count``
        for each field of ``exporter.history.past.FIELDS``, whose names and units are those of the table.
        A value is the mean of what was known in its step.
        """

        async def make() -> bytes:
            past = await self._reader.read(span=ask.span, end=ask.end, points=ask.points, wanted=ask.wanted)
            return await in_thread(history_json, past)

        try:
            ask = read_ask(request.query)
            body = await self._kept.get(("history", ask), _HISTORY_SECONDS, make)
        except (BadValueError, NotKeptError) as error:
            return _refusal(error)
        return await reply(request, body, _JSON)

    async def node(self, request: web.Request) -> web.Response:
        """Answer with the figures of the node."""
        return await self._figures(request, Wanted(levels=_STACKED, summing=True), "node")

    async def gpu(self, request: web.Request) -> web.Response:
        """Answer with the figures of one GPU."""
        uuid = request.match_info["uuid"]
        return await self._figures(request, Wanted(levels=_STACKED, uuid=uuid, summing=True), "node")

    async def holder(self, request: web.Request) -> web.Response:
        """Answer with the figures of one holder."""
        of = request.match_info
        names = of["namespace"], of["pod"], of["container"]
        wanted = Wanted(levels=frozenset({"container"}), holder=names, summing=True)
        return await self._figures(request, wanted, "holder")

    async def _figures(self, request: web.Request, wanted: Wanted, kind: str) -> web.Response:
        async def make() -> bytes:
            past = await self._reader.read(span=span, end=None, points=FIGURE_POINTS, wanted=wanted)
            return await in_thread(_figures_json, past, self._pages.snapshot, kind)

        try:
            span = asked_span(request.query)
            fresh = min(_FIGURE_SECONDS, max(1.0, span / FIGURE_POINTS / 3))
            body = await self._kept.get(("figures", wanted, span), fresh, make)
        except (BadValueError, NotKeptError) as error:
            return _refusal(error)
        return await reply(request, body, _JSON)


def history_json(past: Past) -> bytes:
    """Write the past as JSON."""
    head = {
        "start": past.start,
        "end": past.start + past.count * past.step,
        "step": past.step,
        "count": past.count,
        "source": past.source,
        "note": past.note,
    }
    # Series by series: written at once, a large answer would keep the interpreter from everybody else.
    series = (json.dumps(_series(track), separators=(",", ":")).encode() for track in past.tracks)
    commas = chain((b"",), repeat(b","))
    begin = f'{json.dumps(head)[:-1]}, "series": ['.encode()
    return b"".join(chain((begin,), chain.from_iterable(zip(commas, series, strict=False)), (b"]}",)))


def _figures_json(past: Past, snapshot: Snapshot, kind: str) -> bytes:
    from exporter.web.timelines.documents import figures_json  # noqa: PLC0415 - only open pages need it

    return figures_json(past, snapshot, kind)


def _series(track: Track) -> dict[str, Any]:
    labels = {name: track.labels.get(name) for name in LEVEL_LABELS[track.level]}
    columns = {field: _rounded(field, values) for field, values in track.values.items()}
    return {"level": track.level, **labels, **columns}


def _rounded(field: str, values: Iterable[float | None]) -> list[float | None]:
    digits = _DIGITS.get(field.rpartition("_")[2], 3)
    return [None if value is None else round(value, digits) for value in values]


def _refusal(error: Exception) -> web.Response:
    text = str(error) if isinstance(error, BadValueError) else f"range: {error}"
    return web.json_response({"error": f"{text.removesuffix('.')}."}, status=400)
