"""Static files: read and compressed once, and cached by browsers.

Every address contains a hash of all files, so it can be cached forever. A page from before an upgrade uses an
old hash: it gets the current file, uncached.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from exporter import __version__
from exporter.concurrency import in_thread
from exporter.exposition.negotiation import accepts_gzip
from exporter.web.kit.http.responses import compress, digest, reply

STATIC = Path(__file__).parents[2] / "static"
PLOTLY = "plotly.min.js"
FOREVER = "public, max-age=31536000, immutable"
# Base styles come first, overrides last, and the others by name in between.
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
    """All static files."""

    hash: str
    assets: Mapping[str, Asset]  # by name, such as ``js/app.js``


class Library(NamedTuple):
    """The JavaScript of the installed plotly package."""

    path: Path
    hash: str


@cache
def bundle() -> Bundle:
    """Return the static files of this program."""
    return read_bundle(STATIC)


def read_bundle(folder: Path) -> Bundle:
    """Return the static files in a folder: all styles as one sheet, the scripts, and the icon."""
    bodies = {"app.css": _stylesheet(folder)}
    bodies |= {f"js/{path.name}": path.read_bytes() for path in sorted(folder.glob("js/*.js"))}
    bodies |= {path.name: path.read_bytes() for path in sorted(folder.glob("*.svg"))}
    assets = {
        name: Asset(body, compress(body), _TYPES[Path(name).suffix], digest(body))
        for name, body in bodies.items()
    }
    return Bundle(digest("".join(f"{name} {asset.tag}\n" for name, asset in assets.items()).encode()), assets)


@cache
def library() -> Library | None:
    """Return the JavaScript of plotly, found without importing the package; None if it is not there."""
    spec = find_spec("plotly")
    for place in (spec and spec.submodule_search_locations) or ():
        path = Path(place) / "package_data" / PLOTLY
        if path.is_file():
            with path.open("rb") as file:
                return Library(path, hashlib.file_digest(file, "sha256").hexdigest()[:24])
    return None


def asset(name: str) -> str:
    """Return the address of a file, relative to the node page; raises KeyError if there is no such file."""
    if name == PLOTLY:
        plotly = library()
        return f"static/{plotly.hash if plotly else 'none'}/{PLOTLY}"
    files = bundle()
    if name not in files.assets:
        raise KeyError(name)
    return f"static/{files.hash}/{name}"


@cache
def modules() -> tuple[str, ...]:
    """Return the scripts that ``js/app.js`` imports, so that a page can load all of them at once."""
    names: dict[str, None] = {}
    waiting = ["js/app.js"]
    while waiting:
        name = waiting.pop()
        script = bundle().assets.get(name)
        if script is not None and name not in names:
            names[name] = None
            waiting += (f"js/{other}" for other in _IMPORT.findall(script.body.decode()))
    return tuple(names)


def routes() -> list[web.RouteDef]:
    """Return the routes of the static files."""
    return [web.get(r"/static/{hash:[^/]+}/{name:.+}", _Static().file)]


class _Static:
    def __init__(self) -> None:
        self._bundle = bundle()
        self._reading = asyncio.Lock()
        self._plain = self._zipped = b""

    async def file(self, request: web.Request) -> web.StreamResponse:
        name, requested_hash = request.match_info["name"], request.match_info["hash"]
        if name == PLOTLY:
            return await self._plotly(request, requested_hash)
        static_file = self._bundle.assets.get(name)
        if static_file is None:
            raise web.HTTPNotFound(text="There is no such file.")
        return await reply(
            request,
            static_file.body,
            static_file.content_type,
            zipped=static_file.zipped,
            tag=static_file.tag,
            cache=FOREVER if requested_hash == self._bundle.hash else "no-cache",
        )

    async def _plotly(self, request: web.Request, requested_hash: str) -> web.StreamResponse:
        """Return 5 MB of JavaScript; they are kept as they were requested, usually compressed."""
        plotly = await in_thread(library)
        if plotly is None:
            raise web.HTTPNotFound(text="The installed plotly package has no plotly.min.js.")
        async with self._reading:
            if accepts_gzip(request.headers.get("Accept-Encoding", "")):
                self._zipped = self._zipped or await in_thread(lambda: compress(plotly.path.read_bytes()))
            else:
                self._plain = self._plain or await in_thread(plotly.path.read_bytes)
        return await reply(
            request,
            self._plain,
            _TYPES[".js"],
            zipped=self._zipped,
            tag=plotly.hash,
            cache=FOREVER if requested_hash == plotly.hash else "no-cache",
        )


def _stylesheet(folder: Path) -> bytes:
    """Return all styles as one sheet, with a class ``w1`` to ``w100`` for each width in percent of a GPU.

    Classes, because the content security policy forbids inline styles.
    """
    by_name = {path.name: path for path in sorted(folder.glob("*.css"))}
    others = [name for name in by_name if name not in (*_FIRST_STYLES, *_LAST_STYLES)]
    names = [name for name in (*_FIRST_STYLES, *others, *_LAST_STYLES) if name in by_name]
    widths = "".join(f".w{percent}{{flex-grow:{percent}}}\n" for percent in range(1, 101))
    return b"\n".join([*(by_name[name].read_bytes() for name in names), widths.encode()])


def version() -> str:
    """Return the version of the program with the hash of its static files."""
    return f"{__version__} {bundle().hash}"
