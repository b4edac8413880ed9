"""The routes of history for programs, and of figures for the timelines of pages."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from aiohttp import web

from exporter.concurrency import in_thread
from exporter.history import Ask, NotKeptError, Past, Track, Wanted
from exporter.history.ring import History
from exporter.metrics import IDENTITY_LABELS
from exporter.model import Snapshot
from exporter.web.kit.http.responses import CONTENT_TYPES, reply
from exporter.web.kit.parameters import require_json
from exporter.web.kit.render_queue import BodyCache
from exporter.web.node.parameters import BadValueError, asked_span, read_ask
from exporter.web.node.timelines.stacks import first_known

FIGURE_POINTS = 120
_HISTORY_SECONDS = 1.0
_FIGURE_SECONDS = 10.0
# Digits after the point by the suffix of a field's name. Values have seven significant digits in memory.
_DIGITS: Mapping[str, int | None] = {"bytes": None, "ratio": 6}
_STACKED = frozenset({"container", "gpu"})


def routes(history: History, current: Callable[[], Snapshot]) -> list[web.RouteDef]:
    """Return the routes of history; ``current`` returns the newest snapshot."""
    past = _HistoryRoutes(history, current)
    return [
        web.get("/api/v1/history", past.history),
        web.get("/figures/node", past.node),
        web.get("/figures/gpu/{uuid}", past.gpu),
        web.get("/figures/holder/{namespace}/{pod}/{container:[^/]*}", past.holder),
    ]


class _HistoryRoutes:
    def __init__(self, history: History, current: Callable[[], Snapshot]) -> None:
        self._history = history
        self._current = current
        self._kept = BodyCache()

    async def history(self, request: web.Request) -> web.Response:
        """Return history as columns, one number or null for each step.

        ``{"start", "end", "step", "count", "source", "note", "series": [...]}``: ``count`` steps of ``step``
        seconds from Unix time ``start`` to ``end``; the last may not be over. ``source`` is ``memory``,
        ``note`` a text for readers or "". Each series has its ``level``, the labels of the level (null if it
        has none), and ``count`` values for each field of ``exporter.history.FIELDS``. A value is the mean of
        the known values in its step.
        """

        async def make() -> bytes:
            past = await self._history.read(ask)
            return await in_thread(history_json, past)

        require_json(request)
        try:
            ask = read_ask(request.query)
            body = await self._kept.get(("history", ask), _HISTORY_SECONDS, make)
        except (BadValueError, NotKeptError) as error:
            return _refusal(error)
        return await reply(request, body, CONTENT_TYPES["json"])

    async def node(self, request: web.Request) -> web.Response:
        return await self._figures(request, Wanted(levels=_STACKED, summing=True), "node")

    async def gpu(self, request: web.Request) -> web.Response:
        uuid = request.match_info["uuid"]
        return await self._figures(request, Wanted(levels=_STACKED, uuid=uuid, summing=True), "node")

    async def holder(self, request: web.Request) -> web.Response:
        names = request.match_info
        holder = names["namespace"], names["pod"], names["container"]
        wanted = Wanted(levels=frozenset({"container"}), holder=holder, summing=True)
        return await self._figures(request, wanted, "holder")

    async def _figures(self, request: web.Request, wanted: Wanted, kind: str) -> web.Response:
        async def make() -> bytes:
            past = await self._history.read(ask)
            return await in_thread(figures_json, past, self._current(), kind)

        require_json(request)
        try:
            ask = Ask(span=asked_span(request.query), points=FIGURE_POINTS, wanted=wanted)
            fresh = min(_FIGURE_SECONDS, max(1.0, ask.span / FIGURE_POINTS / 3))
            body = await self._kept.get(("figures", ask), fresh, make)
        except (BadValueError, NotKeptError) as error:
            return _refusal(error)
        return await reply(request, body, CONTENT_TYPES["json"])


def history_json(past: Past) -> bytes:
    head = {
        "start": past.start,
        "end": past.end,
        "step": past.step,
        "count": past.count,
        "source": "memory",
        "note": past.note,
    }
    # One series at a time: encoding a large answer in one call would block the other threads.
    series = (json.dumps(_series(track), separators=(",", ":")).encode() for track in past.tracks)
    commas = chain((b"",), repeat(b","))
    begin = f'{json.dumps(head)[:-1]}, "series": ['.encode()
    return b"".join(chain((begin,), chain.from_iterable(zip(commas, series, strict=False)), (b"]}",)))


def _series(track: Track) -> dict[str, Any]:
    series: dict[str, Any] = {"level": track.level}
    series |= {name: track.labels.get(name) or None for name in IDENTITY_LABELS[track.level]}
    for field, values in track.values.items():
        digits = _DIGITS.get(field.rpartition("_")[2], 3)
        series[field] = [None if value is None else round(value, digits) for value in values]
    return series


def figures_json(past: Past, snapshot: Snapshot, kind: str) -> bytes:
    """Return the figures of a node or a GPU (``kind`` is "node"), or of a holder ("holder"), as JSON.

    ``begins`` is the Unix time of the first step with a known value. Names of devices are from the snapshot.
    """
    from exporter.web.node.timelines.figures import CONFIG, holder_figures, node_figures  # noqa: PLC0415 - for pages

    # They are read several times; those of a figure are few and short.
    past = replace(past, tracks=tuple(past.tracks))
    known = first_known(past)
    draw = holder_figures if kind == "holder" else node_figures
    figures = draw(past, _device_names(snapshot)) if past.tracks else []
    if kind == "holder" and not _is_there(past, snapshot):
        # Captions are of the last steps, in which it was for a part of the time.
        figures = [figure._replace(summary="It is no longer there.") for figure in figures]
    document = {
        "start": past.start,
        "end": past.end,
        "step": past.step,
        "source": "memory",
        "note": past.note,
        "begins": None if known is None else past.start + known * past.step,
        "config": CONFIG,
        "figures": [figure._asdict() for figure in figures],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _is_there(past: Past, snapshot: Snapshot) -> bool:
    """Return whether one of the containers of a history holds or uses a device now."""
    there = {(row.holder.namespace, row.holder.pod, row.holder.container) for row in snapshot.containers}
    names = ("namespace", "pod", "container")
    return any(tuple(track.labels[name] for name in names) in there for track in past.tracks)


def _device_names(snapshot: Snapshot) -> dict[str, str]:
    """Return the names of GPUs and MIG devices by uuid."""
    from exporter.web.node.pages.scene import name_of  # noqa: PLC0415 - for pages

    names = {gpu.identity.uuid: name_of(gpu) for gpu in snapshot.gpus}
    for mig in snapshot.migs:
        uuid = mig.device.mig_uuid
        words = (names.get(mig.device.uuid), mig.reading.profile, f"({uuid[:12]})")
        names[uuid] = " ".join(filter(None, words))
    return names


def _refusal(error: Exception) -> web.Response:
    text = str(error) if isinstance(error, BadValueError) else f"range: {error}"
    return web.json_response({"error": f"{text.removesuffix('.')}."}, status=400)
