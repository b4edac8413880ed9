"""The pages for people."""

from typing import TYPE_CHECKING

from aiohttp import web

from exporter.web.http.errors import prefers_html
from exporter.web.http.responses import reply
from exporter.web.pages.page_pieces import Drawing
from exporter.web.pages.place import Place, asked_query
from exporter.web.site import Site

if TYPE_CHECKING:
    from exporter.web.pages.views.scene import Scene


def routes(site: Site) -> list[web.RouteDef]:
    """Return the routes of pages."""

    def doctor(scene: "Scene", _names: tuple[str, ...]) -> Drawing:
        from exporter.web.pages.layout import doctor_drawing  # noqa: PLC0415 - only who opens pages needs it

        return doctor_drawing(scene, site.report())

    site.pages.draws("doctor", doctor)
    screens = _Screens(site)
    return [
        web.get("/", screens.node),
        web.get("/gpu/{uuid}", screens.gpu),
        web.get("/doctor", screens.doctor),
        web.get("/holder/{namespace}/{pod}/{container:[^/]*}", screens.holder),
    ]


class _Screens:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def node(self, request: web.Request) -> web.Response:
        """Return the node: to browsers as a page, to programs such as curl as text."""
        vary, place = "Accept, Accept-Encoding", Place("node", (), asked_query(request.query))
        if prefers_html(request):
            return await self._answer(request, place, vary)
        body = await self._site.pages.snapshot_text()
        return await reply(request, body, "text/plain; charset=utf-8", vary=vary)

    async def gpu(self, request: web.Request) -> web.Response:
        place = Place("gpu", (request.match_info["uuid"],), asked_query(request.query))
        return await self._answer(request, place)

    async def holder(self, request: web.Request) -> web.Response:
        names = tuple(request.match_info[name] for name in ("namespace", "pod", "container"))
        return await self._answer(request, Place("holder", names, asked_query(request.query)))

    async def doctor(self, request: web.Request) -> web.Response:
        return await self._answer(request, Place("doctor", (), asked_query(request.query)))

    async def _answer(
        self, request: web.Request, place: Place, vary: str = "Accept-Encoding"
    ) -> web.Response:
        body = await self._site.pages.html(place)
        if body is None:
            raise web.HTTPNotFound(text=f"No such {place.kind}; the page of the node lists those there are.")
        return await reply(request, body, "text/html; charset=utf-8", vary=vary)
