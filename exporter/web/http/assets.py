"""Static files: read once, compressed once, and named by what they hold, so that browsers keep them.

Every address has a hash of all files in it, and is good for ever. A page from before an upgrade asks under
another hash: it gets the file of today, to be kept for that moment only.
"""

import asyncio
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from exporter import __version__
from exporter.concurrency import in_thread
from exporter.exposition.page import accepts_gzip
from exporter.web.http.responses import FilePortions, compress, digest, reply

STATIC = Path(__file__).parents[1] / "static"
PLOTLY = "plotly.min.js"
FOR_EVER = "public, max-age=31536000, immutable"
# What others build on comes first, and what overrules them last; the rest stands by name between them.
_FIRST_STYLES = ("page.css", "controls.css")
_LAST_STYLES = ("print.css",)
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_IMPORT = re.compile(r'\b(?:from\s+|import\s*\(?\s*)"\./([^"]+)"')


class Asset(NamedTuple):
    """A static file with its compressed copy."""

    body: bytes
    zipped: bytes
    content_type: str
    tag: str


class Bundle(NamedTuple):
    """The files by their names, such as ``js/app.js``, and the hash of all of them."""

    hash: str
    assets: Mapping[str, Asset]


class Library(NamedTuple):
    """The JavaScript of the installed plotly package."""

    path: Path
    hash: str


@cache
def bundle() -> Bundle:
    """Give the static files of this program."""
    return read_bundle(STATIC)


def read_bundle(folder: Path) -> Bundle:
    """Read the static files in a folder: all styles as one sheet, the scripts, and the icon."""
    bodies = {"app.css": _styles(folder)}
    bodies |= {f"js/{path.name}": path.read_bytes() for path in sorted(folder.glob("js/*.js"))}
    bodies |= {path.name: path.read_bytes() for path in sorted(folder.glob("*.svg"))}
    assets = {
        name: Asset(body, compress(body), _TYPES[Path(name).suffix], digest(body))
        for name, body in bodies.items()
    }
    return Bundle(digest("".join(f"{name} {asset.tag}\n" for name, asset in assets.items()).encode()), assets)


@cache
def library() -> Library | None:
    """Find the JavaScript of plotly, without importing the package; None where that has none."""
    spec = find_spec("plotly")
    for place in (spec and spec.submodule_search_locations) or ():
        path = Path(place) / "package_data" / PLOTLY
        if path.is_file():
            with path.open("rb") as file:
                return Library(path, hashlib.file_digest(file, "sha256").hexdigest()[:24])
    return None


def asset(name: str) -> str:
    """Give the address of a file, from the page of the node on; raises KeyError where there is none."""
    if name == PLOTLY:
        found = library()
        return f"static/{found.hash if found else 'none'}/{PLOTLY}"
    files = bundle()
    if name not in files.assets:
        raise KeyError(name)
    return f"static/{files.hash}/{name}"


@cache
def modules() -> tuple[str, ...]:
    """List the scripts that ``js/app.js`` leads to, so that a page can ask for all of them at once."""
    found: dict[str, None] = {}
    waiting = ["js/app.js"]
    while waiting:
        name = waiting.pop()
        script = bundle().assets.get(name)
        if script is not None and name not in found:
            found[name] = None
            waiting += (f"js/{other}" for other in _IMPORT.findall(script.body.decode()))
    return tuple(found)


def routes() -> list[web.RouteDef]:
    """List the routes of the static files."""
    return [web.get(r"/static/{hash:[^/]+}/{name:.+}", _Static().file)]


class _Static:
    def __init__(self) -> None:
        self._bundle = bundle()
        self._zipping = asyncio.Lock()
        self._zipped = b""

    async def file(self, request: web.Request) -> web.StreamResponse:
        name, known = request.match_info["name"], request.match_info["hash"]
        if name == PLOTLY:
            return await self._plotly(request, known)
        found = self._bundle.assets.get(name)
        if found is None:
            raise web.HTTPNotFound(text="There is no such file.")
        return await reply(
            request,
            found.body,
            found.content_type,
            zipped=found.zipped,
            tag=found.tag,
            cache=_cache(known, self._bundle.hash),
        )

    async def _plotly(self, request: web.Request, known: str) -> web.StreamResponse:
        """Hand out 5 MB of JavaScript, of which only a compressed copy is kept, once somebody took it."""
        found = await in_thread(library)
        if found is None:
            raise web.HTTPNotFound(text="The installed plotly package has no plotly.min.js.")
        cache_control, content_type = _cache(known, found.hash), _TYPES[".js"]
        if not accepts_gzip(request.headers.get("Accept-Encoding", "")):
            headers = {
                "Content-Type": content_type,
                "Cache-Control": cache_control,
                "Vary": "Accept-Encoding",
            }
            size = (await in_thread(found.path.stat)).st_size
            return web.Response(body=FilePortions(found.path, size), headers=headers)
        async with self._zipping:
            self._zipped = self._zipped or await in_thread(_zip_file, found.path)
        return await reply(
            request, b"", content_type, zipped=self._zipped, tag=found.hash, cache=cache_control
        )


def _zip_file(path: Path) -> bytes:
    return compress(path.read_bytes())


def _cache(known: str, current: str) -> str:
    return FOR_EVER if known == current else "no-cache"


def _styles(folder: Path) -> bytes:
    return b"\n".join([*(path.read_bytes() for path in _ordered(folder.glob("*.css"))), _widths()])


def _ordered(paths: Iterable[Path]) -> Iterator[Path]:
    by_name = {path.name: path for path in sorted(paths)}
    between = [name for name in by_name if name not in (*_FIRST_STYLES, *_LAST_STYLES)]
    return (by_name[name] for name in (*_FIRST_STYLES, *between, *_LAST_STYLES) if name in by_name)


def _widths() -> bytes:
    """Write the rules for how wide a cell is beside its neighbours, in percent of the GPU.

    A policy without inline styles has no other way.
    """
    return "".join(f".g{percent}{{flex-grow:{percent}}}\n" for percent in range(1, 101)).encode()


def version() -> str:
    """Name the version of the program, with the hash of its static files."""
    return f"{__version__} {bundle().hash}"
