"""The pages for people."""

from aiohttp import web

from exporter.web.places import Place
from exporter.web.query import read_query
from exporter.web.site import Site


def routes(site: Site) -> list[web.RouteDef]:
    """List the routes of pages."""
    screens = _Screens(site)
    return [web.get("/", screens.node), web.get("/gpu/{uuid}", screens.gpu)]


class _Screens:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def node(self, request: web.Request) -> web.Response:
        return await self._answer(Place("node", (), read_query(request.query)))

    async def gpu(self, request: web.Request) -> web.Response:
        return await self._answer(Place("gpu", (request.match_info["uuid"],), read_query(request.query)))

    async def _answer(self, place: Place) -> web.Response:
        body = await self._site.pages.html(place)
        if body is None:
            raise web.HTTPNotFound(text=f"no such {place.kind}; the page of the node lists those there are\n")
        headers = {"Cache-Control": "no-cache"}
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)
