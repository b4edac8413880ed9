"""What programs ask for: metrics, the API, and how the program itself is doing."""

from aiohttp import web

from exporter.exposition import accepts_gzip, choose_format
from exporter.web.site import Site


def routes(site: Site) -> list[web.RouteDef]:
    """List the routes for programs."""
    machine = _Machine(site)
    return [
        web.get("/metrics", machine.metrics),
        web.get("/api/v1/snapshot", machine.snapshot),
        web.get("/-/healthy", machine.healthy),
        web.get("/-/ready", machine.ready),
    ]


class _Machine:
    def __init__(self, site: Site) -> None:
        self._pages = site.pages
        self._restart_reason = site.restart_reason

    async def metrics(self, request: web.Request) -> web.Response:
        fmt = choose_format(request.headers.get("Accept", ""))
        zipped = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        headers = {"Content-Type": fmt.content_type, "Vary": "Accept, Accept-Encoding"}
        if zipped:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=await self._pages.metrics(fmt, zipped), headers=headers)

    async def snapshot(self, request: web.Request) -> web.Response:
        snapshot = self._pages.snapshot
        tag = f"{snapshot.sequence}-{snapshot.timestamp:.3f}"
        headers = {"ETag": f'"{tag}"', "Cache-Control": "no-cache"}
        if any(known.value == tag for known in request.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        body = await self._pages.snapshot_json()
        return web.Response(body=body, content_type="application/json", charset="utf-8", headers=headers)

    async def healthy(self, _request: web.Request) -> web.Response:
        """Fail only where a restart helps: the kubelet then restarts the container."""
        reason = self._restart_reason()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """Say whether the first poll is done; a node where it found nothing must still be scraped."""
        done = self._pages.snapshot.sequence > 0
        return web.Response(status=200 if done else 503, text="ok\n" if done else "before the first poll\n")
