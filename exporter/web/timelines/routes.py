"""The routes of what was: history for programs, and figures for the timelines of the pages."""

import json
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any

from aiohttp import web

from exporter.history import NotKeptError, Past, Track, Wanted
from exporter.metrics import LEVEL_LABELS
from exporter.model import Snapshot
from exporter.threads import in_thread
from exporter.web.serving.responses import reply
from exporter.web.site import Site
from exporter.web.timelines.kept import Kept
from exporter.web.timelines.query import BadValueError, asked_span, read_ask

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
