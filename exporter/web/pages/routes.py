"""The pages for people."""

from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from exporter.web.http.parameters import prefers_html
from exporter.web.http.responses import reply
from exporter.web.pages.page_pieces import Drawing
from exporter.web.pages.place import PATHS, Kind, requested_place
from exporter.web.site import Site

if TYPE_CHECKING:
    from exporter.web.pages.scene import Scene


def routes(site: Site) -> list[web.RouteDef]:
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
