"""Static files: where they are, how long they are kept, and how much a first visit costs."""

import asyncio
import gzip
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import ClientResponse

from exporter.demo.scenario import catalog
from exporter.web.kit.http.assets import FOREVER, PLOTLY, STATIC, asset, bundle, library, modules, read_bundle
from tests.together.end_to_end.serving import Served, serving

SCENARIO = "t4-timeslicing"
GPU = catalog.load(SCENARIO).gpus[0].uuid
LINK = re.compile(r'(?:href|src)="([^"]*static/[^"]*)"')
FIRST_LOAD = 100_000
# They share one server, which is polled once.
MODULE = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    """Serve a node that was polled once."""
    async with serving(catalog.load(SCENARIO)) as running:
        await running.poll(0)
        yield running


@pytest.fixture
def other_plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put a plotly package without anything in it before the installed one."""
    package = tmp_path / "plotly"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    # Another test may have imported the installed one.
    monkeypatch.delitem(sys.modules, "plotly", raising=False)
    library.cache_clear()
    yield
    library.cache_clear()


async def _get(served: Served, path: str, encoding: str = "identity") -> tuple[ClientResponse, bytes]:
    headers = {"Accept": "text/html", "Accept-Encoding": encoding}
    async with served.client.get(f"{served.url}/{path}", headers=headers) as response:
        return response, await response.read()


@pytest.mark.parametrize("name", bundle().assets)
@MODULE
async def test_a_file_may_be_cached_forever_under_its_address(served: Served, name: str) -> None:
    response, body = await _get(served, asset(name))
    zipped, smaller = await _get(served, asset(name), "gzip")

    assert response.status == zipped.status == 200
    assert response.headers["Cache-Control"] == zipped.headers["Cache-Control"] == FOREVER
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert response.headers["Content-Type"].startswith(types[name.rpartition(".")[2]])
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(smaller) == body
    assert name == "app.css" or body == (STATIC / name).read_bytes()
    assert response.headers["ETag"] != zipped.headers["ETag"]


@MODULE
async def test_a_page_older_than_an_upgrade_gets_the_current_files(served: Served) -> None:
    """Under another hash, not cached without revalidation."""
    response, body = await _get(served, "static/0123456789abcdef/js/app.js")
    headers = {"If-None-Match": response.headers["ETag"]}
    async with served.client.get(response.url, headers=headers) as again:
        assert (again.status, await again.read()) == (304, b"")

    assert (response.status, response.headers["Cache-Control"]) == (200, "no-cache")
    assert body == (STATIC / "js" / "app.js").read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "static",
        "static/",
        "static/app.css",
        "static/page.css",
        "static/{hash}",
        "static/{hash}/",
        "static/{hash}/page.css",
        "static/{hash}/app.css/",
        "static/{hash}/js",
        "static/{hash}/js/none.js",
        "static/{hash}/APP.CSS",
        "static/{hash}/app.css%00",
    ],
)
@MODULE
async def test_unknown_files_are_not_found(served: Served, path: str) -> None:
    response, _ = await _get(served, path.format(hash=bundle().hash))

    assert response.status == 404


def test_an_unknown_name_has_no_address() -> None:
    """A template with a wrong name fails when it is rendered, not in the browser."""
    with pytest.raises(KeyError):
        asset("none.css")


def test_the_styles_are_one_sheet_in_a_fixed_order(tmp_path: Path) -> None:
    """The base sheet first, the one for paper last, then the widths."""
    folder = tmp_path / "static"
    shutil.copytree(STATIC, folder)
    sheet = read_bundle(folder).assets["app.css"].body.decode()
    places = {path.name: sheet.index(path.read_text()) for path in folder.glob("*.css")}

    order = sorted(places, key=lambda name: places[name])
    assert order[:2] == ["page.css", "controls.css"]
    assert order[-1] == "print.css"
    assert order[2:-1] == sorted(order[2:-1])
    widths = re.findall(r"^\.w(\d+)\{flex-grow:(\d+)\}$", sheet, re.MULTILINE)
    assert widths == [(f"{percent}", f"{percent}") for percent in range(1, 101)]


def test_any_change_gives_all_files_new_addresses(tmp_path: Path) -> None:
    folder, copy = tmp_path / "static", tmp_path / "copy"
    shutil.copytree(STATIC, folder)
    shutil.copytree(folder, copy)
    hashes = [read_bundle(copy).hash, read_bundle(folder).hash]
    (folder / "js" / "app.js").write_text("export const other = 1;\n")
    hashes.append(read_bundle(folder).hash)
    (folder / "js" / "app.js").rename(folder / "js" / "apq.js")
    hashes.append(read_bundle(folder).hash)

    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_scripts_import_existing_files_and_all_are_preloaded() -> None:
    scripts = {name: file.body.decode() for name, file in bundle().assets.items() if name.endswith(".js")}
    imports = {
        name: set(re.findall(r'(?:from|import)\s*\(?\s*"([^"]+)"', text)) for name, text in scripts.items()
    }

    for name, others in imports.items():
        for other in others:
            assert other.startswith("./"), (name, other)
            assert f"js/{other[2:]}" in scripts, (name, other)
    assert set(modules()) >= {"js/app.js"} | {f"js/{other[2:]}" for other in imports["js/app.js"]}
    assert "js/theme.js" not in modules()


@MODULE
async def test_plotly_is_served_as_installed(served: Served) -> None:
    """Under its own hash, compressed once."""
    (place,) = find_spec("plotly").submodule_search_locations
    installed = (Path(place) / "package_data" / PLOTLY).read_bytes()
    plain, body = await _get(served, asset(PLOTLY))
    answers = await asyncio.gather(*(_get(served, asset(PLOTLY), "gzip") for _ in range(3)))

    assert body == installed
    assert plain.headers["Cache-Control"] == FOREVER
    assert plain.headers["Content-Type"] == "text/javascript; charset=utf-8"
    for zipped, smaller in answers:
        assert zipped.headers["Content-Encoding"] == "gzip"
        assert zipped.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert zipped.headers["Cache-Control"] == FOREVER
        assert smaller == answers[0][1]
    assert gzip.decompress(answers[0][1]) == installed
    assert library().hash not in asset("app.css")


@MODULE
async def test_plotly_is_not_cached_under_another_hash(served: Served) -> None:
    for encoding in ("gzip", "identity"):
        response, _ = await _get(served, f"static/old/{PLOTLY}", encoding)
        assert (response.status, response.headers["Cache-Control"]) == (200, "no-cache")


@pytest.mark.usefixtures("other_plotly")
@MODULE
async def test_without_plotly_pages_work_and_the_file_is_404(served: Served) -> None:
    page, _ = await _get(served, "")
    response, body = await _get(served, asset(PLOTLY))

    assert page.status == 200
    assert response.status == 404
    assert "no plotly.min.js" in body.decode()


def test_finding_the_script_of_plotly_does_not_import_the_package() -> None:
    code = (
        "import sys; from exporter.web.kit.http.assets import asset; "
        "assert '/plotly' in asset('plotly.min.js');"
        "print(sum(name.split('.')[0] == 'plotly' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "0\n"


@pytest.mark.parametrize("path", ["", f"gpu/{GPU}", "doctor", "nowhere", "no/where/at/all", "gpu/none"])
@MODULE
async def test_every_file_a_page_refers_to_exists(served: Served, path: str) -> None:
    """Also on error pages."""
    response, body = await _get(served, path)
    links = LINK.findall(body.decode())

    assert any(link.endswith("/app.css") for link in links)
    for link in links:
        at = response.url.join(type(response.url)(link))
        async with served.client.get(at) as file:
            assert (file.status, file.headers["Cache-Control"]) == (200, FOREVER)


@MODULE
async def test_a_first_visit_loads_less_than_100_kb() -> None:
    async with serving(catalog.load("showcase")) as served:
        await served.poll(0)
        page, body = await _get(served, "", "gzip")
        links = dict.fromkeys(LINK.findall(gzip.decompress(body).decode()))
        sizes = {"page": len(body)}
        for link in links:
            if PLOTLY not in link:
                _, content = await _get(served, link, "gzip")
                sizes[link.partition("/")[2].partition("/")[2]] = len(content)

    assert page.status == 200
    assert {"page", "app.css", "js/app.js", "js/theme.js", "icon.svg"} <= set(sizes)
    assert sum(sizes.values()) < FIRST_LOAD, sizes
