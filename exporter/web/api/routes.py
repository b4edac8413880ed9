"""Routes for programs: metrics, the API, and the health of this process."""

import json

from aiohttp import web

from exporter.exposition.page import accepts_gzip, choose_format
from exporter.web.http.parameters import requested_format
from exporter.web.http.responses import reply
from exporter.web.site import Site

JSON = "application/json; charset=utf-8"
# The formats of a snapshot, and their content types.
FORMATS = {"json": JSON, "csv": "text/csv; charset=utf-8", "text": "text/plain; charset=utf-8"}


def routes(site: Site) -> list[web.RouteDef]:
    """Return the routes for programs."""
    machine = _Machine(site)
    return [
        web.get("/metrics", machine.metrics),
        web.get("/api/v1/snapshot", machine.snapshot),
        web.get("/api/v1/doctor", machine.doctor),
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
        pages, headers = self._pages, {}
        make = {"json": pages.snapshot_json, "csv": pages.snapshot_csv, "text": pages.snapshot_text}[wanted]
        if wanted == "csv":
            name = _file_name(pages.snapshot.node.name)
            headers["Content-Disposition"] = f'attachment; filename="gpuslice-{name}.csv"'
        return await reply(
            request, await make(), FORMATS[wanted], vary="Accept, Accept-Encoding", headers=headers
        )

    async def doctor(self, request: web.Request) -> web.Response:
        """Return what ``doctor --json`` prints, by the last poll."""
        report = await self._pages.each_second("report", self._report)
        if not report.checks:
            raise web.HTTPServiceUnavailable(text="The first poll is not done yet.")
        return await reply(request, json.dumps(report.as_dict()).encode(), JSON)

    async def healthy(self, _request: web.Request) -> web.Response:
        """Return 503 only if a restart helps, because the kubelet then restarts the container."""
        reason = self._restart_reason()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Return 200 after the first poll, even if it found nothing: the node must still be scraped."""
        done = self._pages.snapshot.sequence > 0
        return web.Response(status=200 if done else 503, text="ok\n" if done else "before the first poll\n")


def _file_name(name: str) -> str:
    """Return a name without the characters that are unsafe in file names or headers."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in name)
