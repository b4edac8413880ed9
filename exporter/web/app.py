"""The application with its routes. GET and HEAD only: no request can change anything."""

from collections.abc import Sequence

from aiohttp import web

from exporter.web.api import openapi
from exporter.web.api import routes as api_routes
from exporter.web.http import assets
from exporter.web.http.errors import answer_errors
from exporter.web.http.responses import ZIPPER, Zipper, secure
from exporter.web.live import page_stream, snapshot_stream
from exporter.web.live.broadcaster import Broadcaster
from exporter.web.pages import routes as page_routes
from exporter.web.site import Site
from exporter.web.timelines import routes as timeline_routes


def make_app(site: Site, *, prefix: str = "", frame_ancestors: Sequence[str] = ()) -> web.Application:
    """Return the application of a node, also served below the path ``prefix``, such as ``/gpuslice``.

    ``frame_ancestors`` are the origins of pages that may frame it.
    """
    streams = Broadcaster(site.ticker)
    routes = [
        *page_routes.routes(site),
        *api_routes.routes(site),
        *timeline_routes.routes(site),
        openapi.route(),
        *assets.routes(),
        *page_stream.routes(site.pages, streams),
        *snapshot_stream.routes(site.pages, streams),
    ]
    app = build_app(routes, prefix=prefix, frame_ancestors=frame_ancestors)
    app.on_shutdown.append(streams.close)
    return app


def build_app(
    routes: Sequence[web.RouteDef], *, prefix: str = "", frame_ancestors: Sequence[str] = ()
) -> web.Application:
    """Return an application with these routes, and the headers, errors and compression that all have."""
    app = web.Application()
    app[ZIPPER] = Zipper()
    secure(app, frame_ancestors)
    answer_errors(app, prefix)
    if prefix:
        # First, because the prefix may look like one of the paths.
        app.add_routes(
            web.route(route.method, prefix + route.path, route.handler, **route.kwargs) for route in routes
        )
    app.add_routes(routes)
    if prefix:
        app.add_routes([_redirect_to_folder(prefix)])
    return app


def _redirect_to_folder(prefix: str) -> web.RouteDef:
    """Return the redirect from a path to the same with a slash; relative, since proxies may change paths."""
    folder = f"{prefix.rpartition('/')[2]}/"

    async def redirect(request: web.Request) -> web.Response:
        query = request.rel_url.raw_query_string
        return web.Response(status=307, headers={"Location": f"{folder}?{query}" if query else folder})

    return web.get(prefix, redirect)
