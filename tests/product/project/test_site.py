"""The site of the documentation is built without a warning, is complete, and loads nothing from elsewhere."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[3]
ARCHITECTURE = ROOT / "docs/architecture.md"
PICTURE = ROOT / "docs/images/architecture.svg"
# Generated pages: the search, and the redirect from the site's address to its first page.
GENERATED = {"search.html", "genindex.html", "index.html"}
SVG = "{http://www.w3.org/2000/svg}"
# Addresses that a browser fetches by itself, and those of links.
FETCHED = re.compile(
    r'<(?:script|img|iframe|source|link)\b[^>]*?\s(?:src|href)="([^"]*)"|url\(["\']?([^"\')]*)|@import'
)
LINKS = re.compile(r'<a\b[^>]*?\shref="([^"]*)"')
IDS = re.compile(r'\sid="([^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as ``make site`` does."""
    folder = tmp_path_factory.mktemp("site")
    options = ("--quiet", "--fail-on-warning", "--nitpicky", "-c", "docs/site")
    words = [sys.executable, "-m", "sphinx", *options, "--doctree-dir", folder / "doctrees"]
    words += [".", folder / "html"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder / "html"


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _pages(site: Path) -> dict[str, Path]:
    """Return the pages that are not generated, by path."""
    pages = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    return {place: path for place, path in pages.items() if place not in GENERATED}


@pytest.mark.slow
def test_every_page_is_on_the_site(site: Path) -> None:
    """Docs, runbooks, the chart's README, the guide for contributors and the changelog."""
    kinds = (
        "docs/*.md",
        "docs/platforms/*.md",
        "alerts/runbooks/*.md",
        "deploy/charts/*/README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    )
    written = {
        path.relative_to(ROOT).with_suffix(".html").as_posix() for kind in kinds for path in ROOT.glob(kind)
    }

    assert _pages(site).keys() == written


@pytest.mark.slow
def test_every_page_is_in_the_sidebar(site: Path) -> None:
    """Of the first page."""
    first = site / "docs/index.html"
    (sidebar,) = re.findall(r'<div class="sidebar-tree">(.*?)</ul>\s*</div>', _text(first), re.DOTALL)
    places = {(first.parent / href).resolve() for href in re.findall(r'href="([^"#]+)"', sidebar)}

    assert {path.resolve() for path in _pages(site).values()} - {first.resolve()} <= places


@pytest.mark.slow
def test_the_address_of_the_site_leads_to_its_first_page(site: Path) -> None:
    (target,) = re.findall(r'url=([^"]+)"', _text(site / "index.html"))

    assert (site / target).is_file()


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures are files of the site."""
    files = [path for path in site.rglob("*") if path.suffix in {".html", ".css"}]
    fetched = {(path, one or other) for path in files for one, other in FETCHED.findall(_text(path))}
    wanted = {
        (path, target.partition("?")[0]) for path, target in fetched if not target.startswith(("data:", "#"))
    }

    assert wanted
    assert {
        (path.name, target) for path, target in wanted if not (path.parent / unquote(target)).is_file()
    } == set()


@pytest.mark.slow
def test_every_link_within_the_site_has_a_target(site: Path) -> None:
    """A page, and the anchor in it."""
    broken = set()
    for path in _pages(site).values():
        for link in LINKS.findall(_text(path)):
            place, _, anchor = link.partition("#")
            target = (path.parent / unquote(place)).resolve() if place else path
            outside = re.match(r"\w+:", link) is not None
            if not outside and not (target.is_file() and (not anchor or unquote(anchor) in _ids(target))):
                broken.add((path.name, link))

    assert broken == set()


@cache
def _ids(path: Path) -> set[str]:
    return {*IDS.findall(_text(path)), ""}


@pytest.mark.slow
def test_links_to_sources_name_files_of_the_repository(site: Path) -> None:
    sources = {
        link
        for path in _pages(site).values()
        for link in re.findall(
            r'href="https://github\.com/gpuslice/gpuslice-exporter/(?:blob|tree)/main/([^"?#]+)', _text(path)
        )
    }

    assert "alerts/thresholds.toml" in sources
    assert [link for link in sources if not (ROOT / link).exists()] == []


def test_the_picture_names_modules_that_exist() -> None:
    texts = [each.text or "" for each in ET.parse(PICTURE).iter(f"{SVG}text") if each.get("class") == "code"]  # noqa: S314 - it is ours
    names = {name for text in texts for name in text.split()}

    assert len(names) > 10
    assert [name for name in names if not _module(name)] == []


def _module(name: str) -> bool:
    return any(
        (folder / name).is_dir() or (folder / f"{name}.py").is_file() for folder in (ROOT, ROOT / "exporter")
    )


def test_the_page_of_the_architecture_names_paths_that_exist() -> None:
    """In the repository, or in exporter/."""
    paths = re.findall(r"`((?:[\w.-]+/)+[\w.-]*|\w+\.py)`", _text(ARCHITECTURE))

    assert paths
    assert [path for path in paths if not any((at / path).exists() for at in (ROOT, ROOT / "exporter"))] == []
