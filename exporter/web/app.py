"""The routes. GET and HEAD only: no request can change anything."""

from collections.abc import Iterable, Sequence

from aiohttp import web

from exporter.web.api import openapi
from exporter.web.api import routes as api_routes
from exporter.web.http import assets
from exporter.web.http.errors import answer_errors
from exporter.web.http.responses import ZIPPER, Zipper, secure
from exporter.web.live import page_stream, snapshot_stream
from exporter.web.live.broadcaster import Broadcaster
from exporter.web.pages import routes as screens
from exporter.web.site import Site
from exporter.web.timelines import routes as past


def make_app(site: Site, *, prefix: str = "", frame_ancestors: Sequence[str] = ()) -> web.Application:
    """Build the application; it is served below the path ``prefix`` too, such as ``/gpuslice``.

    ``frame_ancestors`` are the origins whose pages may frame it.
    """
    hub = Broadcaster(site.ticker)
    shared = [*openapi.routes(), *assets.routes()]
    streams = [*page_stream.routes(site.pages, hub), *snapshot_stream.routes(site.pages, hub)]
    app = build_app(
        [*screens.routes(site), *api_routes.routes(site), *past.routes(site), *shared, *streams],
        prefix=prefix,
        frame_ancestors=frame_ancestors,
    )
    app.on_shutdown.append(hub.close)
    return app


def build_app(
    routes: Sequence[web.RouteDef], *, prefix: str = "", frame_ancestors: Sequence[str] = ()
) -> web.Application:
    """Build an application of these routes that has the manners of this one."""
    app = web.Application()
    app[ZIPPER] = Zipper()
    secure(app, frame_ancestors)
    answer_errors(app, prefix)
    # What is below comes before the others, because the prefix may look like one of their paths.
    app.add_routes(_below(prefix, routes) if prefix else ())
    app.add_routes(routes)
    app.add_routes([_into(prefix)] if prefix else ())
    return app


def _below(prefix: str, routes: Iterable[web.RouteDef]) -> list[web.RouteDef]:
    return [web.route(route.method, prefix + route.path, route.handler, **route.kwargs) for route in routes]


def _into(prefix: str) -> web.RouteDef:
    """Lead into the folder of that name, relatively: a proxy may have put a path of its own before it."""
    folder = f"{prefix.rpartition('/')[2]}/"

    async def lead(request: web.Request) -> web.Response:
        query = request.rel_url.raw_query_string
        return web.Response(status=307, headers={"Location": f"{folder}?{query}" if query else folder})

    return web.get(prefix, lead)
