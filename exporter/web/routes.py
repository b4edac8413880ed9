"""The routes of a node: the pages for people, and for programs metrics, the API and health."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web
from markupsafe import Markup

from exporter.doctor.report import Report
from exporter.exposition.page import accepts_gzip, choose_format
from exporter.history import PastReader
from exporter.model import ContainerRow
from exporter.web.html import Drawing
from exporter.web.http.parameters import prefers_html, requested_format
from exporter.web.http.responses import reply
from exporter.web.live.broadcaster import Ticker
from exporter.web.pages.place import PATHS, Kind, requested_place
from exporter.web.render_cache import RenderCache

if TYPE_CHECKING:
    from exporter.web.pages.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The site of one node."""

    pages: RenderCache
    restart_reason: Callable[[], str | None]  # why the process needs a restart, None if it does not
    report: Callable[[], Report]  # the doctor's report on the last poll
    past: PastReader
    spans: tuple[str, ...] = ("5m", "1h", "6h")  # ranges of timelines
    sparkline: Callable[[ContainerRow], Markup] | None = None  # draws the last hour; None without history
    ticker: Ticker = field(default_factory=Ticker)  # ticks with each snapshot


def page_routes(site: Site) -> list[web.RouteDef]:
    """Return the routes of pages."""

    def draw_doctor(scene: "Scene", _names: tuple[str, ...]) -> Drawing:
        from exporter.web.pages.layout import doctor_drawing  # noqa: PLC0415 - only pages need it

        return doctor_drawing(scene, site.report())

    async def answer(kind: Kind, request: web.Request) -> web.Response:
        """Return a page; the node also as text, for programs such as curl."""
        place = requested_place(kind, request)
        vary = "Accept, Accept-Encoding" if kind == "node" else "Accept-Encoding"
        if kind == "node" and not prefers_html(request):
            text = await site.pages.snapshot_text()
            return await reply(request, text, "text/plain; charset=utf-8", vary=vary)
        page = await site.pages.html(place)
        if page is None:
            raise web.HTTPNotFound(text=f"No such {kind}; the node page lists all of them.")
        return await reply(request, page, "text/html; charset=utf-8", vary=vary)

    site.pages.draws("doctor", draw_doctor)
    return [web.get(f"/{path}", partial(answer, kind)) for kind, path in PATHS.items()]


JSON = "application/json; charset=utf-8"
# The formats of a snapshot, and their content types.
FORMATS = {"json": JSON, "csv": "text/csv; charset=utf-8", "text": "text/plain; charset=utf-8"}
# The formats of advice.
ADVICE_FORMATS = {"json": JSON, "csv": FORMATS["csv"]}


def api_routes(site: Site) -> list[web.RouteDef]:
    """Return the routes for programs."""
    machine = _Machine(site)
    return [
        web.get("/metrics", machine.metrics),
        web.get("/api/v1/snapshot", machine.snapshot),
        web.get("/api/v1/doctor", machine.doctor),
        web.get("/api/v1/advice", machine.advice),
        web.get("/-/healthy", machine.healthy),
        web.get("/-/ready", machine.ready),
    ]


class _Machine:
    def __init__(self, site: Site) -> None:
        self._pages = site.pages
        self._restart_reason = site.restart_reason
        self._report = site.report

    async def metrics(self, request: web.Request) -> web.Response:
        fmt = choose_format(request.headers.get("Accept", ""))
        zipped = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        headers = {"Content-Type": fmt.content_type, "Vary": "Accept, Accept-Encoding"}
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=await self._pages.metrics(fmt, zipped), headers=headers)

    async def snapshot(self, request: web.Request) -> web.Response:
        """Return the snapshot in the requested format."""
        wanted = requested_format(request, FORMATS)
        pages = self._pages
        make = {"json": pages.snapshot_json, "csv": pages.snapshot_csv, "text": pages.snapshot_text}[wanted]
        headers = self._file("gpuslice") if wanted == "csv" else {}
        return await reply(
            request, await make(), FORMATS[wanted], vary="Accept, Accept-Encoding", headers=headers
        )

    async def doctor(self, request: web.Request) -> web.Response:
        """Return what ``doctor --json`` prints, by the last poll."""
        report = await self._pages.each_second("report", self._report)
        if not report.checks:
            raise web.HTTPServiceUnavailable(text="The first poll is not done yet.")
        return await reply(request, json.dumps(report.as_dict()).encode(), JSON)

    async def advice(self, request: web.Request) -> web.Response:
        """Return which slice would fit each holder, or why that is unknown, in the requested format."""
        wanted = requested_format(request, ADVICE_FORMATS)
        csv = wanted == "csv"
        body = await (self._pages.advice_csv() if csv else self._pages.advice_json())
        headers = self._file("gpuslice-advice") if csv else {}
        return await reply(
            request, body, ADVICE_FORMATS[wanted], vary="Accept, Accept-Encoding", headers=headers
        )

    def _file(self, name: str) -> dict[str, str]:
        """Return the header that saves a response as a CSV file of the node."""
        node = re.sub(
            r"[^a-zA-Z0-9_.-]", "_", self._pages.snapshot.node.name
        )  # safe in file names and headers
        return {"Content-Disposition": f'attachment; filename="{name}-{node}.csv"'}

    async def healthy(self, _request: web.Request) -> web.Response:
        """Return 503 only if a restart helps, because the kubelet then restarts the container."""
        reason = self._restart_reason()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Return 200 after the first poll, even if it found nothing: the node must still be scraped."""
        done = self._pages.snapshot.sequence > 0
        return web.Response(status=200 if done else 503, text="ok\n" if done else "before the first poll\n")
